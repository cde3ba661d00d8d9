"""The stacks screen: groups of tasks, one of them in full, and what did not answer."""

from __future__ import annotations

import time
from concurrent.futures import InvalidStateError
from contextlib import suppress
from pathlib import Path

from launcher.errors import LauncherError
from launcher.ids import TaskId
from launcher.run.snapshot import HangView, Snapshot
from launcher.run.stack_groups import (
    ProcessStack,
    StackFrame,
    Stacks,
    TaskStacks,
    ThreadStack,
    Unanswered,
)
from launcher.run.states import Hang, RunPhase, TaskState
from tests.support.fakes import ScriptedRun
from tests.support.screens import screen_text, showing, shows, until, visible
from tui.screens.run_screen import RunScreen
from tui.screens.stacks_screen import StacksScreen
from tui.widgets.table import Table

LOADS = (StackFrame("__next__", "/srv/data.py", 12), StackFrame("step", "/srv/train.py", 41))
WAITS = (StackFrame("all_reduce", "/srv/dist.py", 2806), StackFrame("step", "/srv/train.py", 44))


def task(index: int, frames: tuple[StackFrame, ...], name: str = "main") -> TaskStacks:
    threads = (ThreadStack(name, frames), ThreadStack("pool-1", (StackFrame("idle"),)))
    process = ProcessStack(100 + index, "python train.py", "python", "sleeps in futex", threads)
    return TaskStacks(TaskId("worker", index), "tf1", (process,))


def found(snapshot: Snapshot, *missing: Unanswered) -> Stacks:
    workers = [one.id.index for one in snapshot.tasks if one.id.job == "worker"]
    stacks = tuple(task(index, LOADS if index == 3 else WAITS) for index in workers)
    return Stacks(1_763_657_402.0, stacks, missing)


def run(folder: Path) -> ScriptedRun:
    made = ScriptedRun(folder, workers=6)
    made.change(state=RunPhase.RUNNING)
    return made


def torchrun(index: int, *ranks: int) -> TaskStacks:
    """A task that has started ranks; rank 3 is elsewhere, and has a loader."""
    waits = (StackFrame("run", "/x/site-packages/torch/distributed/launcher/api.py", 1),)
    found = [ProcessStack(100, "torchrun", "python", "sleeps", (ThreadStack("main", waits),))]
    for rank in ranks:
        threads = (ThreadStack("main", LOADS if rank == 3 else WAITS),)
        command = f"python train.py {rank}"
        found.append(ProcessStack(200 + rank, command, "python", "runs", threads, rank=rank))
    if 3 in ranks:
        loader = ProcessStack(300, "loader", "python", "sleeps", threads, rank=3, parent=203)
        found.append(loader)
    return TaskStacks(TaskId("worker", index), "tf1", tuple(found))


async def test_ranks_of_a_task_are_groups_of_their_own(tmp_path: Path) -> None:
    """Below torchrun the rank that is elsewhere is on top, with its own processes alone."""
    control = run(tmp_path)
    async with showing(control, (120, 40)) as (app, pilot):
        await pilot.press("b")
        await until(pilot, lambda: bool(control.looks))
        stacks = (torchrun(0, 0, 1), torchrun(1, 2, 3))
        control.looks[0].set_result(Stacks(1_763_657_402.0, stacks))
        await shows(pilot, "4 ranks in 2 places at")
        await shows(pilot, "worker:0 ranks 0–1, worker:1 rank 2")
        await shows(pilot, "worker:1 rank 3 on tf1")
        await shows(pilot, "process 300: loader")
        assert "train.py 2" not in screen_text(app)
    control.logs.close()


async def test_the_smallest_group_is_on_top_and_in_full(tmp_path: Path) -> None:
    """`b` asks; the cursor on a group shows its tasks; Enter shows it alone, Esc goes back step by
    step; hosts that did not answer are named."""
    control = run(tmp_path)
    async with showing(control, (120, 40)) as (app, pilot):
        await pilot.press("b")
        await until(pilot, lambda: isinstance(app.screen, StacksScreen))
        await shows(pilot, "asking all hosts")
        await until(pilot, lambda: bool(control.looks))
        control.looks[0].set_result(
            found(control.snapshot(), Unanswered("tf3", "cannot be reached (ps:0)"))
        )
        await shows(pilot, "6 tasks in 2 places at")
        await shows(pilot, "worker:0–2, 4–5")
        await shows(pilot, "tf3: cannot be reached (ps:0)")
        await shows(pilot, "worker:3 on tf1")
        await shows(pilot, "__next__  data.py:12")
        await shows(pilot, "thread pool-1")
        table = app.screen.query_one("#groups", Table)
        await pilot.press("j", "enter")
        await shows(pilot, "5 tasks: worker:0–2, 4–5")
        await shows(pilot, "all_reduce  dist.py:2806")
        assert not table.display
        await pilot.press("escape")
        await until(pilot, lambda: table.display)
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, RunScreen))
    assert control.asked == ["stacks"]
    control.logs.close()


async def test_it_asks_again_and_says_why_there_is_no_answer(tmp_path: Path) -> None:
    """What was shown stays; an answer that comes when the screen has gone changes nothing."""
    control = run(tmp_path)
    async with showing(control, (80, 24)) as (app, pilot):
        await pilot.press("b")
        await until(pilot, lambda: bool(control.looks))
        control.looks[0].set_result(found(control.snapshot()))
        await shows(pilot, "worker:3 on tf1")
        await pilot.press("f5")
        await until(pilot, lambda: len(control.looks) == 2)
        control.looks[1].set_exception(LauncherError("no launcher supervises this run"))
        await shows(pilot, "no launcher supervises this run")
        await shows(pilot, "worker:3 on tf1")
        await pilot.press("f5")
        await until(pilot, lambda: len(control.looks) == 3)
        await pilot.press("b")
        await until(pilot, lambda: isinstance(app.screen, RunScreen))
        late = found(control.snapshot(), Unanswered("tf9", "too late"))
        with suppress(InvalidStateError):  # nobody waits any more
            control.looks[2].set_result(late)
        await pilot.pause()
        assert isinstance(app.screen, RunScreen)
        await pilot.press("b")
        await until(pilot, lambda: len(control.looks) == 4)
        control.looks[3].set_result(Stacks(0.0, ()))
        await shows(pilot, "no task runs now")
        assert not visible(app, "too late")
    control.logs.close()


async def test_the_end_of_an_empty_list(tmp_path: Path) -> None:
    """End before the first answer, and after one without groups, put the cursor above the list: the
    app ended with IndexError."""
    control = run(tmp_path)
    async with showing(control, (120, 40)) as (app, pilot):
        await pilot.press("b")
        await until(pilot, lambda: bool(control.looks))
        await pilot.press("end", "ctrl+end", "up", "pageup", "home", "end")
        control.looks[0].set_result(Stacks(0.0, ()))
        await shows(pilot, "no task runs now")
        await pilot.press("end", "ctrl+end", "up", "enter", "end", "f5")
        await until(pilot, lambda: len(control.looks) == 2)
        control.looks[1].set_result(found(control.snapshot()))
        await shows(pilot, "worker:3 on tf1")
        assert app.screen.query_one("#groups", Table).key == "0"
    control.logs.close()


async def test_the_kill_key_works_while_hosts_are_asked(tmp_path: Path) -> None:
    """Nothing is waited for."""
    control = run(tmp_path)
    async with showing(control, (80, 24)) as (_, pilot):
        await pilot.press("b")
        await until(pilot, lambda: bool(control.looks))
        await pilot.press("f9")
        await until(pilot, lambda: "kill_all" in control.asked)
        await shows(pilot, "killing all")
    control.logs.close()


async def test_hostile_names_are_text(tmp_path: Path) -> None:
    """Markup in the names of functions and files is shown as it is."""
    control = run(tmp_path)
    async with showing(control, (120, 40)) as (_, pilot):
        await pilot.press("b")
        await until(pilot, lambda: bool(control.looks))
        frames = (StackFrame("[bold]f[/]", "/srv/[red]x.py", 1),)
        control.looks[0].set_result(Stacks(0.0, (task(0, frames),)))
        await shows(pilot, "[bold]f[/] [red]x.py:1")
        await shows(pilot, "[bold]f[/]  [red]x.py:1")
    control.logs.close()


async def test_the_header_says_where_a_stalled_run_stands(tmp_path: Path) -> None:
    """While it is stalled; what was seen at another hang is told with its failure."""
    control, now = run(tmp_path), time.time()
    control.task("worker:3", state=TaskState.RUNNING, stalled_since=now - 95)
    text = "worker:3 is in __next__ data.py:12; 5 others wait in step train.py:44"
    control.change(hang=HangView(Hang.STALLED, text, "stacks-stalled.json", now))
    async with showing(control, (200, 50)) as (app, pilot):
        await shows(pilot, "! worker:3 on localhost stalled for ")
        await shows(pilot, text)
        control.change(hang=HangView(Hang.AT_END, text, "stacks-at-end.json", now))
        await until(pilot, lambda: not any(text in row for row in screen_text(app)))
    control.logs.close()


PACKAGES = "/home/somebody/venv/lib/python3.12/site-packages/"
DEEP = (
    *(StackFrame(f"dispatch_{n}", f"{PACKAGES}torch/distributed/utils.py", n) for n in range(9)),
    StackFrame("gather", "/home/somebody/projects/mnist/model/heads.py", 31),
    StackFrame("step", "/home/somebody/projects/mnist/train.py", 41),
)
JOIN = (
    StackFrame("join", "/usr/lib/python3.12/threading.py", 1123),
    StackFrame("main", "/home/somebody/projects/mnist/train.py", 90),
)
IDLE = (
    StackFrame("get", f"{PACKAGES}tqdm/_monitor.py", 60),
    StackFrame("run", "/usr/lib/python3.12/a.py", 1),
)


async def test_the_users_own_code_is_read_at_80_columns(tmp_path: Path) -> None:
    """Given a program in a thread of its own, nine frames deep in a library, then its own frames
    are in sight with files and lines at 80 columns, above the thread that joins it; frames of
    libraries stand in one line until the group is shown alone."""
    control = run(tmp_path)
    async with showing(control, (80, 24)) as (app, pilot):
        await pilot.press("b")
        await until(pilot, lambda: bool(control.looks))
        threads = (ThreadStack("main", JOIN), ThreadStack("tqdm", IDLE), ThreadStack("work", DEEP))
        process = ProcessStack(7, "python train.py", "python", "sleeps", threads)
        stacks = TaskStacks(TaskId("worker", 0), "a", (process,))
        control.looks[0].set_result(Stacks(0.0, (stacks,)))
        await shows(pilot, "gather heads.py:31 → … → dispatch_0 utils.py:0")
        await shows(pilot, "dispatch_0  torch/distributed/utils.py:0  ← 8 more")
        await shows(pilot, "gather      model/heads.py:31")
        await shows(pilot, "step        train.py:41")
        rows = screen_text(app)
        order = ["thread work", "thread main", "thread tqdm"]
        at = [next(n for n, row in enumerate(rows) if name in row) for name in order]
        assert at == sorted(at)
        assert not visible(app, "dispatch_8") and not visible(app, "site-packages")
        await pilot.press("enter")
        await shows(pilot, "dispatch_8  torch/distributed/utils.py:8")
    control.logs.close()
