"""The hosts screen: a row a GPU, whose it is and what is wrong with it; the same in titles and
header."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launcher.ids import TaskId
from launcher.run.gpus import GpuFigures, GpuProcess, GpuSample, GpuView, Throttle
from launcher.run.states import HostState, Outcome, RunPhase, TaskState
from tests.support.fakes import ScriptedRun
from tests.support.screens import screen_text, showing, shows, until, visible
from tui.screens.hosts_screen import HostsScreen
from tui.widgets.table import Table

GB = 1_000_000_000
EACH = 8


def gpu(index: int, task: TaskId | None = None, *others: GpuProcess, **said: Any) -> GpuView:
    held = (GpuProcess(4000 + index, task, memory=61 * GB),) if task is not None else ()
    made: dict[str, Any] = {
        "utilisation": 0.9,
        "memory_used": 62 * GB,
        "memory_total": 80 * GB,
        "temperature": 60.0 + index,
        "power": 650.0,
        **said,
    }
    return GpuView(index, "NVIDIA H100", f"GPU-{index}", processes=(*held, *others), **made)


def training(folder: Path, hosts: int = 4, **third: Any) -> ScriptedRun:
    """Hosts with eight GPUs and eight workers each; the third GPU of tf2 has other values."""
    run = ScriptedRun(folder, ps=0, workers=hosts * EACH, hosts=hosts)
    run.change(state=RunPhase.RUNNING)
    run.all_tasks(state=TaskState.RUNNING, pid=4121)
    run.occupy_hosts(*[HostState.UP] * hosts, now=time.time())
    give(run, **third)
    return run


def give(run: ScriptedRun, **third: Any) -> None:
    hosts = []
    for host in run.snapshot().hosts:
        own = [task.id for task in run.snapshot().tasks if task.host == host.name]
        gpus = [gpu(index, own[index]) for index in range(EACH)]
        if host.name == "tf2":
            gpus[3] = gpu(3, own[3], **third)
            root = GpuProcess(455, None, "root", "python3 busy.py", 2 * GB)
            gpus[5] = gpu(5, own[5], root)
        hosts.append(replace(host, gpus=tuple(gpus)))
    run.change(hosts=tuple(hosts))


def rows_of(app: Any, table: str) -> list[str]:
    """The rows of a table that are in sight."""
    region = app.screen.query_one(table, Table).region
    return [
        row[region.x : region.right]
        for row in screen_text(app)[region.y + 1 : region.bottom]
        if row[region.x : region.right].strip()
    ]


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50)], ids="{0[0]}x{0[1]}".format)
async def test_every_gpu_has_a_row(tmp_path: Path, size: tuple[int, int]) -> None:
    """Given four hosts with eight GPUs each, then those of the host under the cursor are all in
    sight, with load, memory, temperature and their tasks, and from 200 columns on those of all
    hosts; a task has its GPU memory; a process that is no task's is named."""
    run = training(tmp_path)
    async with showing(run, size) as (app, pilot):
        await pilot.press("H", "j")
        await shows(pilot, "Tasks on tf2")
        if size[0] == 200:
            await shows(pilot, "32 GPUs of 4 hosts: NVIDIA H100")
        else:
            await shows(pilot, "GPUs of tf2: NVIDIA H100")
        for index in range(EACH):
            task = f"worker:{index * 4 + 1} 61 GB"
            row = next(row for row in rows_of(app, "#gpus") if task in row)
            words = row.split()
            assert {str(index), "90", "78", f"{60 + index}"} <= set(words), row
        await shows(pilot, "GPU 5: root's pid 455 (python3 busy.py), 2.0 GB")
        tasks = rows_of(app, "#tasks")
        assert any("worker:1 " in row and " 61 GB " in row for row in tasks), tasks
        await pilot.press("k")
        await shows(pilot, "Tasks on tf1")
        await until(pilot, lambda: not visible(app, "GPU 5: root"))
    run.logs.close()


async def test_the_tasks_of_hosts_with_gpus_are_in_sight_at_80_columns(tmp_path: Path) -> None:
    """Given hosts with GPUs and leases on a narrow terminal, then their tasks are told in the row
    of each, as a whole."""
    run = training(tmp_path, hosts=2)
    run.task("worker:1", state=TaskState.FAILED, exit_code=1)
    async with showing(run, (80, 24)) as (app, pilot):
        await pilot.press("H")
        await until(pilot, lambda: any("R 8" in row for row in rows_of(app, "#hosts")))
        assert any("worker:1  R 7" in row for row in rows_of(app, "#hosts"))
    run.logs.close()


async def test_a_lost_host_has_no_load(tmp_path: Path) -> None:
    """Given a host that is lost, then its row and those of its GPUs and tasks show no figures that
    its agent told before; its neighbours keep theirs."""
    run = training(tmp_path)
    run.change(
        hosts=tuple(
            replace(host, cpu=0.37, state=HostState.LOST if host.name == "tf2" else host.state)
            for host in run.snapshot().hosts
        )
    )
    async with showing(run, (120, 40)) as (app, pilot):
        await pilot.press("H", "j")
        await shows(pilot, "GPUs of tf2: NVIDIA H100")
        rows = {row.strip("│ ").split()[0]: row for row in rows_of(app, "#hosts")}
        assert "37" in rows["tf1"] and "lost" in rows["tf2"] and "37" not in rows["tf2"], rows
        row = next(row for row in rows_of(app, "#gpus") if "worker:1 " in row)
        assert "90" not in row and "60 C" not in row, row
    run.logs.close()


async def test_gpus_can_be_scrolled_to(tmp_path: Path) -> None:
    """Given more GPUs than rows, then Tab goes to them."""
    run = training(tmp_path, hosts=1)
    (host,) = run.snapshot().hosts
    run.change(hosts=(replace(host, gpus=tuple(gpu(index) for index in range(30))),))
    async with showing(run, (80, 24)) as (app, pilot):
        await pilot.press("H")
        await shows(pilot, "GPUs of tf1")
        assert not any(" 29 " in row for row in rows_of(app, "#gpus"))
        await pilot.press("tab", "end")
        await until(pilot, lambda: any(" 29 " in row for row in rows_of(app, "#gpus")))
    run.logs.close()


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ({"utilisation": 0.0, "idle_since": -12600.0}, "idle 3 h"),
        ({"temperature": 91.0}, "hot 91 C"),
        ({"throttled": (Throttle.POWER_BRAKE,)}, "throttled (power-brake)"),
        ({"problem": "GPU is lost"}, "cannot be used: GPU is lost"),
    ],
    ids=["idle", "hot", "throttled", "lost"],
)
async def test_titles_and_header_warn_of_a_tasks_gpu(
    tmp_path: Path, said: dict[str, Any], text: str
) -> None:
    """On every page of the run, while the task runs; its row of the GPU says the same. The warning
    goes with its reason."""
    if "idle_since" in said:
        said = {**said, "idle_since": time.time() + said["idle_since"]}
    run = training(tmp_path, **said)
    whole = f"GPU {text}"
    async with showing(run, (200, 50)) as (app, pilot):
        await shows(pilot, f"! worker:13: {whole}")
        await pilot.press("apostrophe", *"worker:13", "enter")
        await shows(pilot, f"running  {whole.partition(' (')[0][:16]}")
        for key in ("M", "H"):
            await pilot.press(key)
            await until(pilot, lambda: f"! worker:13: {whole}" in screen_text(app)[0])
        assert isinstance(app.screen, HostsScreen)
        assert any(f" {text}  worker:13 61 GB" in row for row in rows_of(app, "#gpus"))
        (row,) = (row for row in rows_of(app, "#hosts") if "! GPU 3" in row)
        assert " tf2 " in row
        give(run)
        await until(pilot, lambda: not visible(app, text))
    run.logs.close()


async def test_a_long_sentence_about_a_gpu_hides_no_task(tmp_path: Path) -> None:
    """Given nvidia-smi's sentence about a GPU that is lost, then the row of the GPU still has its
    task, that of the host its tasks, and the sentence stands as a whole over these."""
    lost = "Unable to determine the device handle for GPU0000:07:00.0: Unknown Error"
    run = training(tmp_path, problem=lost)
    hosts = run.snapshot().hosts
    run.change(hosts=(hosts[0], replace(hosts[1], gpu_problem=lost), *hosts[2:]))
    async with showing(run, (200, 50)) as (app, pilot):
        await pilot.press("H", "j")
        await shows(pilot, "GPU0000:07:00.0: Unknown Error  ")  # the end of the sentence
        assert any(
            "cannot be used: " in row and "worker:13" in row for row in rows_of(app, "#gpus")
        )
        (row,) = (row for row in rows_of(app, "#hosts") if " tf2 " in row)
        assert "! GPU 3" in row and "R 8" in row and "Unable" not in row
    run.logs.close()


async def test_without_gpus_nothing_speaks_of_them(tmp_path: Path) -> None:
    """No column, no empty table; columns that say nothing leave their room to the others. After the
    end of a run nobody measures its GPUs."""
    run = training(tmp_path)
    with_gpus = run.snapshot().hosts
    run.change(hosts=tuple(replace(host, gpus=()) for host in with_gpus))
    async with showing(run, (80, 24)) as (app, pilot):
        await pilot.press("H")
        await shows(pilot, "lease")
        assert not visible(app, "gpu") and not visible(app, "GPU") and not visible(app, "note")
        run.change(hosts=with_gpus)
        await shows(pilot, "gpu memory")
        run.change(state=RunPhase.ENDED, outcome=Outcome.SUCCESS, ended=time.time())
        await until(pilot, lambda: not visible(app, "gpu") and not visible(app, "GPU"))
    run.logs.close()


async def test_load_over_time_where_there_is_room(tmp_path: Path) -> None:
    """Given reports of a minute, then a wide screen has sparklines of the processor, the memory and
    each GPU; a report that says the same draws nothing anew."""
    run = training(tmp_path)
    began = time.time()
    async with showing(run, (200, 50)) as (app, pilot):
        await pilot.press("H")
        await shows(pilot, "32 GPUs")
        screen = app.screen
        assert isinstance(screen, HostsScreen)
        for number in range(40):
            run.change(hosts=tuple(
                replace(host, cpu=number / 39, last_heard=began + 2 * number)
                for host in run.snapshot().hosts
            ))  # fmt: skip
            screen.logs.monitor.history.take(run.snapshot())
        figures = tuple(GpuFigures(index, 0.9) for index in range(EACH))
        samples = [GpuSample("", figures, time=began + 5 * number) for number in range(40)]
        run.samples = dict.fromkeys(("tf1", "tf2", "tf3", "tf4"), samples)
        await until(pilot, lambda: sum("▄▄▅▅▆▇▇█" in row for row in rows_of(app, "#hosts")) == 4)
        assert sum("▇▇▇▇▇▇▇▇▇▇" in row for row in rows_of(app, "#gpus")) == 32
    run.logs.close()
