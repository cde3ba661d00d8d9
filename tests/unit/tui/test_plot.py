"""Curves of the metrics screen, and the load of GPUs and hosts."""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.ids import TaskId
from launcher.run.gpus import (
    GpuFigures,
    GpuInstance,
    GpuProcess,
    GpuSample,
    GpuView,
    Throttle,
)
from launcher.run.snapshot import HostView, Snapshot, TaskView
from launcher.run.states import HostState, RunPhase, TaskState
from launcher.store.metrics import PointColumns
from tui.curves import (
    Band,
    Curve,
    band,
    by_step,
    rates,
    resampled,
    scale,
    step_ticks,
    tick_texts,
    time_ticks,
)
from tui.gpu_load import GpuHistory, LoadHistory, alert, ills, task_warnings, users
from tui.widgets.plot import MEDIAN, Drawn, Scene, marker, plot


@pytest.mark.parametrize(
    ("low", "high", "texts"),
    [
        (0.02, 2.4, ["0", "0.5", "1.0", "1.5", "2.0", "2.5"]),
        (0, 2200, ["0", "0.5k", "1.0k", "1.5k", "2.0k", "2.5k"]),
        (0.1234, 0.1301, ["0.122", "0.124", "0.126", "0.128", "0.130", "0.132"]),
        (-3, 7e6, ["-2M", "0", "2M", "4M", "6M", "8M"]),
        (1e-6, 9e-6, ["0", "2e-06", "4e-06", "6e-06", "8e-06", "1e-05"]),
    ],
)
def test_a_scale_is_round_and_short(low: float, high: float, texts: list[str]) -> None:
    """1, 2 or 5 × 10^n apart, in as many digits as tell them apart."""
    assert tick_texts(scale(low, high, 10)) == texts


@given(st.floats(-1e15, 1e15), st.floats(1e-6, 1e15), st.integers(1, 40))
def test_a_scale_has_three_values_and_holds_the_curve(low: float, wide: float, rows: int) -> None:
    """Whatever the range: in order, no two with the same text, and not crowded."""
    if wide > 1e-6 * abs(low):
        found = scale(low, low + wide, rows)
        assert 3 <= len(found) <= max(7, rows // 2 + 1) and found == sorted(found)
        assert found[0] <= low + wide * 1e-6 and found[-1] >= low + wide * (1 - 1e-6)
        assert len(set(tick_texts(found))) == len(found)


def test_times_are_round_on_a_clock() -> None:
    """Not every 50 s, but every minute; days too."""
    assert time_ticks(0, 240, 5) == [0, 60, 120, 180, 240]
    assert time_ticks(3500, 12_000, 3) == [3600, 7200, 10_800]
    assert time_ticks(0, 86_400 * 40, 5) == [0, 864_000, 1_728_000, 2_592_000, 3_456_000]


def rows(curves: list[Curve], width: int = 60, height: int = 12, **of: bool) -> list[str]:
    """The rows of a plot of curves from 0 to 100 s."""
    drawn = [Drawn(number, one) for number, one in enumerate(curves)]
    text = plot(Scene(drawn, (0.0, 100.0)), width, height, of.get("colourless", False))
    return text.plain.split("\n")


def dots(curves: list[Curve]) -> list[int]:
    """The dots of each cell of a plot, as the bits of its braille."""
    return [max(0, ord(letter) - 0x2800) & 0xFF for row in rows(curves) for letter in row]


def columns(row: str) -> list[int]:
    """The columns of a row that have dots."""
    return [at for at, letter in enumerate(row) if "\u2800" < letter <= "\u28ff"]


@pytest.mark.parametrize("count", [2, 30, 59, 61, 119, 5000])
def test_a_curve_is_drawn_to_its_end(count: int) -> None:
    """In the first and the last column, however many points are drawn as one."""
    xs = [100 * i / (count - 1) for i in range(count)]
    found = rows([(xs, [float(i) for i in range(count)])])
    dots = [column for row in found for column in columns(row)]
    assert max(dots) == 59
    assert min(dots) == len(found[0].split("┤")[0].split("│")[0]) + 1
    assert resampled((xs, xs), 50)[0][-1] == 100


def test_the_newest_rate_is_that_of_the_newest_point() -> None:
    """Although less than a whole span has passed since the rate before."""
    times, steps = array("d", range(1000, 1010)), array("d", range(0, 100, 10))
    xs, ys = rates(PointColumns(times, steps), 1000.0)
    assert xs == [2, 4, 6, 8, 9] and ys == [10] * 5


def test_curves_that_cross_leave_each_other_in_sight() -> None:
    """Two curves in the same cells: both have a share of them, with dots of both."""
    flat: Curve = ([0.0, 100.0], [1.0, 1.0])
    text = plot(Scene([Drawn(0, flat), Drawn(1, flat)], (0.0, 100.0)), 60, 8, False)
    styles = [str(span.style) for span in text.spans if "color" in str(span.style)]
    assert abs(styles.count(styles[0]) - len(styles) / 2) <= 4
    rising: Curve = ([0.0, 100.0], [0.0, 1.0])
    falling: Curve = ([0.0, 100.0], [1.0, 0.0])
    both, up, down = map(dots, ([rising, falling], [rising], [falling]))
    assert both == [one | other for one, other in zip(up, down, strict=True)]
    assert any(one & ~other and other & ~one for one, other in zip(up, down, strict=True))


@pytest.mark.parametrize("height", [8, 12, 20])
def test_names_stand_at_the_ends_of_curves(height: int) -> None:
    """Also of curves that end in the same place, each in a row of its own."""
    flat: Curve = ([0.0, 100.0], [1.0, 1.0])
    drawn = [Drawn(number, flat, f"worker:{number}") for number in range(3)]
    found = plot(Scene(drawn, (0.0, 100.0)), 80, height, False).plain.split("\n")
    assert sorted(row.split()[-1] for row in found if "worker" in row) == [
        f"worker:{number}" for number in range(3)
    ]
    assert sum("┤" in row for row in found) >= 3


def test_without_colours_each_curve_has_a_marker() -> None:
    """Two curves apart: each drawn with its own character, none in braille."""
    found = rows([([0.0, 100.0], [0.0, 0.0]), ([0.0, 100.0], [5.0, 5.0])], colourless=True)
    drawn = [number for row in found for number in (1, 0) if marker(number) * 9 in row]
    assert drawn == [1, 0] and marker(0) != marker(1)
    assert not any(columns(row) for row in found)


def test_a_curve_over_steps_forgets_what_was_done_again() -> None:
    """Given a task that begins anew at step 20 after it had reached 40, then the curve over steps
    goes on from 20; a value before the first step has no place."""
    steps: Curve = ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [10.0, 20.0, 30.0, 40.0, 20.0, 50.0])
    losses: Curve = ([0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [9.0, 8.0, 7.0, 6.0, 5.0, 7.5, 4.0])
    assert by_step(losses, steps) == ([10.0, 20.0, 50.0], [8.0, 7.5, 4.0])
    assert by_step(losses, ([], [])) == ([], [])


def test_a_band_is_that_of_the_curves_that_live() -> None:
    """Given five curves of which one ends early and one begins late, then least, middle and largest
    are of those that are there; without a curve there is no band."""
    whole = [([0.0, 50.0, 100.0], [level] * 3) for level in (1.0, 2.0, 9.0)]
    early: Curve = ([0.0, 20.0], [100.0, 100.0])
    late: Curve = ([80.0, 100.0], [-5.0, -5.0])
    found = band([*whole, early, late, ([], [])], 11)
    assert found.xs == [10.0 * place for place in range(11)]
    assert found.highs == [100.0] * 3 + [9.0] * 8
    assert found.lows == [1.0] * 8 + [-5.0] * 3
    assert found.middles[5] == 2.0 and found.middles[0] == 5.5
    assert band([], 5) == Band([], [], [], [])


def test_a_band_is_filled_behind_its_median() -> None:
    """From the least to the largest value, between its places too; with its marker in place of
    colours, and the place of a failure on the scale of steps below."""
    one = Band([0.0, 100.0], [1.0, 1.0], [2.0, 2.0], [3.0, 3.0])
    median = Drawn(MEDIAN, (one.xs, one.middles), "median")
    scene = Scene([median], (0.0, 100.0), failed=50.0, band=one, steps=True)
    found = plot(scene, 80, 12, True).plain.split("\n")
    filled = [row for row in found if "░" in row]
    assert len(filled) >= 8 and all(row.count("░") > 60 for row in filled)
    assert any(marker(MEDIAN) * 9 in row and row.endswith("median") for row in found)
    assert "✗" in found[-2] and found[-1].split()[0] == "0" and "100" in found[-1]
    assert all("│" in row[20:60] for row in found[:-2] if "░" not in row and "-" not in row)


def test_steps_are_round() -> None:
    """1, 2 or 5 × 10^n, however many steps there are."""
    assert step_ticks(0, 1147, 4) == [0, 500, 1000]
    assert step_ticks(0, 3e9, 5) == [0, 1e9, 2e9, 3e9]


# What is wrong with GPUs, whose they are, and the load of hosts over the last minutes.

NOW = 1_800_000_000.0
GB = 1_000_000_000
WORKERS = tuple(TaskId("worker", index) for index in range(4))


def gpu(index: int = 0, **said: Any) -> GpuView:
    held = (GpuProcess(70 + index, WORKERS[index], memory=3 * GB),)
    return GpuView(index, "NVIDIA H200", **{"processes": held, "memory_used": 3 * GB, **said})


def task(index: int, state: TaskState = TaskState.RUNNING, *gpus: str) -> TaskView:
    return TaskView(WORKERS[index], "tf1", "tf1:2222", state, attempt=1, gpus=gpus)


def run(*gpus: GpuView, state: TaskState = TaskState.RUNNING) -> Snapshot:
    hosts = (HostView("tf1", "tf1", HostState.UP, gpus=gpus),)
    tasks = tuple(task(index, state) for index in range(4))
    return Snapshot("r", "r", RunPhase.RUNNING, 1.0, tasks=tasks, hosts=hosts)


@pytest.mark.parametrize(
    ("said", "texts"),
    [
        ({}, []),
        ({"idle_since": NOW - 59}, []),
        ({"idle_since": NOW - 60}, ["idle 60 s"]),
        ({"temperature": 86.0}, []),
        ({"temperature": 91.4}, ["hot 91 C"]),
        ({"throttled": (Throttle.THERMAL,)}, ["hot"]),
        ({"throttled": (Throttle.POWER_CAP,)}, []),
        ({"throttled": (Throttle.POWER_BRAKE, Throttle.POWER_CAP)}, ["throttled (power-brake)"]),
        (
            {"throttled": (Throttle.HARDWARE, Throttle.THERMAL), "temperature": 93.0},
            ["hot 93 C", "throttled (hardware)"],
        ),
        ({"problem": "GPU is lost\x1b[2J"}, ["cannot be used: GPU is lost"]),
        ({"xids": (79,)}, ["has reported Xid 79 (the GPU has fallen off the bus)"]),
        ({"ecc_errors": 2}, []),
    ],
)
def test_what_is_wrong_with_a_gpu(said: dict[str, Any], texts: list[str]) -> None:
    """A minute without work, heat and a brake are; a cap on its power is usual under load."""
    assert [one.text for one in ills(gpu(**said), NOW)] == texts


def test_tasks_are_warned_of_their_own_gpus_while_they_run() -> None:
    """Given four tasks with a GPU each, then a task has the worst of its GPU's ills, by its process
    or by the plan; one that has not begun to work, or has ended, has none."""
    idle = gpu(1, idle_since=NOW - 75)
    found = task_warnings(run(gpu(0), idle, gpu(2, temperature=91.0, idle_since=NOW - 90)), NOW)
    assert {str(name): one.whole for name, one in found.items()} == {
        "worker:1": "GPU idle 75 s",
        "worker:2": "GPU hot 91 C",
    }
    for state in (TaskState.STARTING, TaskState.EXITED):
        assert not task_warnings(run(idle, state=state), NOW)
    assert not task_warnings(replace(run(idle), state=RunPhase.ENDED), NOW)
    given = replace(run(replace(idle, processes=())), tasks=(task(3, TaskState.RUNNING, "1"),))
    assert list(task_warnings(given, NOW)) == [WORKERS[3]]


def test_the_header_names_the_worst_and_who_has_it() -> None:
    """For idle GPUs the header has the time that holds of all; nothing where all is well."""
    assert alert({}) == ""
    idle = [gpu(index, idle_since=NOW - 60 - 15 * index) for index in range(3)]
    assert alert(task_warnings(run(*idle), NOW)) == "! worker:0–2: GPU idle 60 s"
    hot = gpu(3, temperature=92.0)
    assert alert(task_warnings(run(*idle, hot), NOW)) == "! worker:3: GPU hot 92 C"
    broken = gpu(0, problem="ERR!"), gpu(1, problem="GPU is lost"), gpu(2, problem="ERR!")
    said = alert(task_warnings(run(*broken, hot), NOW))
    assert said == "! worker:0, 2: GPU cannot be used: ERR!"


def test_whose_a_gpu_is() -> None:
    """Tasks with what all their processes hold there, a task that was given it and does not use it,
    processes of others by user, pid and command, and what is not listed."""
    foreign = GpuProcess(455, None, "root", "python3 busy.py", 2 * GB)
    shared = gpu(
        processes=(
            GpuProcess(70, WORKERS[0], memory=3 * GB),
            GpuProcess(71, WORKERS[0], memory=GB),
            GpuProcess(72, WORKERS[1]),
            foreign,
            GpuProcess(9, None, memory=GB, elsewhere=True),
        ),
        unlisted=2,
    )
    tasks = [task(0), task(1), task(2, TaskState.RUNNING, "0"), task(3, TaskState.RUNNING, "1")]
    found = users(shared, tasks, "red")
    assert found.plain.split("  ") == [
        "worker:0 4.0 GB",
        "worker:1",
        "worker:2",
        "root's pid 455 (python3 busy.py), 2.0 GB",
        "a process in another container (pid 9 there), 1.0 GB",
        "and 2 more processes",
    ]
    assert "red" in {str(span.style) for span in found.spans}
    assert "5.0 GB unlisted" in users(
        gpu(memory_used=8 * GB), [], ""
    ).plain  # fmt: skip
    divided = gpu(
        processes=(GpuProcess(9, None, "eve", "x", 5 * GB, instance="MIG-2"),),
        instances=(GpuInstance("2g.20gb", "MIG-1"), GpuInstance("1g.10gb", "MIG-2")),
    )
    said = [users(part, [], "").plain for part in divided.parts]
    assert said == ["MIG 2g.20gb", "MIG 1g.10gb  eve's pid 9 (x), 5.0 GB"]


def test_the_load_of_gpus_over_time() -> None:
    """Given samples of three GPUs, then each has a sparkline of the whole, and all have their mean;
    one whose load is not known has none."""
    samples = [
        GpuSample(
            "tf1", (GpuFigures(0, n / 7), GpuFigures(1, 0.0), GpuFigures(2)), time=NOW + 5 * n
        )
        for n in range(8)
    ]
    history = GpuHistory(samples)
    assert history.one(0, 8) == "▁▂▃▄▅▆▇█"
    assert history.one(1, 8) == "▁" * 8
    assert history.one(2, 8) == history.one(7, 8) == GpuHistory(()).all(8) == ""
    assert history.all(8)[0] == "▁" and history.all(8)[-1] in "▄▅"


def test_the_load_of_a_host_over_time() -> None:
    """Given reports of two seconds each, then sparklines show shares of the whole; a host that is
    silent adds nothing, nor does a run that has ended."""
    history = LoadHistory()
    host = HostView("tf1", "tf1", HostState.UP, memory_used=1, memory_total=2)
    for number in range(8):
        said = replace(host, cpu=1 - number / 7, last_heard=NOW + 2 * number)
        snapshot = replace(run(), hosts=(said,))
        for _ in range(3):
            history.take(snapshot)
        history.take(replace(snapshot, hosts=(replace(said, last_heard=NOW + 2 * number + 1),)))
        history.take(replace(snapshot, state=RunPhase.ENDED))
    assert history.cpu("tf1", 8) == "█▇▆▅▄▃▂▁"
    assert history.memory("tf1", 4) == "▅▅▅▅"
    assert history.cpu("tf2", 8) == ""
    for number in range(1000):
        history.take(
            replace(run(), hosts=(replace(host, cpu=0.0, last_heard=NOW + 100 + 2 * number),))
        )
    assert history.cpu("tf1", 12) == "▁" * 12  # what is long ago is forgotten
