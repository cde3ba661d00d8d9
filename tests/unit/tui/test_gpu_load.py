"""What is wrong with GPUs, whose they are, and the load of hosts over the last minutes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

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
from tui.gpu_load import GpuHistory, LoadHistory, alert, ills, task_warnings, users

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
