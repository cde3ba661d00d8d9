"""Screens of the cause and of stacks: the guilty task, its evidence, and where tasks stand."""

from __future__ import annotations

import time
from concurrent.futures import InvalidStateError
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from launcher.errors import LauncherError
from launcher.ids import TaskId
from launcher.run.cause import Evidence, Kind, Verdict
from launcher.run.snapshot import Failure, HangView, Snapshot
from launcher.run.stack_groups import (
    ProcessStack,
    StackFrame,
    Stacks,
    TaskStacks,
    ThreadStack,
    Unanswered,
)
from launcher.run.states import Hang, Outcome, RunPhase, TaskState
from tests.support.fakes import ScriptedRun
from tests.support.screens import focused_task, screen_text, showing, shows, until, visible
from tui.app import TfmuxApp
from tui.screens.cause_screen import CauseScreen
from tui.screens.run_screen import RunScreen
from tui.screens.stacks_screen import StacksScreen
from tui.widgets.table import Table

# The cause screen: the verdict, its evidence, and where each line of it leads.

SIZES = [(80, 24), (200, 50)]
RAISED = "ValueError: bad batch 17"
FAILED = Verdict(
    (TaskId("worker", 1),),
    Kind.RAISED,
    True,
    f"worker:1 on tf3 raised {RAISED} (data.py:12); 2 others waited for it",
    (
        Evidence(TaskId("worker", 1), RAISED, in_log=True),
        Evidence(
            TaskId("worker", 2),
            "RuntimeError: Connection closed by peer [10.0.0.3]:2222",
            in_log=True,
        ),
    ),
)
HANGS = Verdict(
    (TaskId("worker", 2),),
    Kind.STUCK,
    False,
    "probably worker:2 on tf4: it has been in next_batch (data.py:12) for 62 s",
    (Evidence(TaskId("worker", 2), "in next_batch data.py:12"),),
)


def in_pane(app: TfmuxApp, text: str) -> bool:
    """A row begins with the text, in or outside of a frame."""
    return any(row.strip("│┃ ").startswith(text) for row in screen_text(app))


def fail(run: ScriptedRun) -> None:
    """One worker raises and prints on, and another misses it."""
    run.all_tasks(state=TaskState.RUNNING, attempt=1)
    rest = b"".join(b"later line %d\n" % number for number in range(60))
    run.write("worker:1", b"first\n\x1b[31m" + RAISED.encode() + b"\x1b[0m\n" + rest)
    run.write("worker:2", b"[rank2]: RuntimeError: Connection closed by peer [10.0.0.3]:2222\n")
    run.task("worker:1", state=TaskState.FAILED, exit_code=1, ended=time.time())
    failure = Failure(TaskId("worker", 1), "tf3", "exit 1", time.time(), (TaskId("worker", 2),))
    run.change(verdict=FAILED)
    run.end(Outcome.FAILED, 1, failure=failure)


@pytest.mark.parametrize("size", SIZES)
async def test_each_line_leads_to_its_place_in_the_log(
    run: ScriptedRun, size: tuple[int, int]
) -> None:
    """Given a run that has failed, when its cause is opened, then the sentence, how sure it is, the
    guilty task with its host and the evidence are there; Enter on a line shows it in the pane of
    its task, and Esc leads back to the logs."""
    fail(run)
    async with showing(run, size) as (app, pilot):
        await shows(pilot, "cause: worker:1 on tf3 raised")
        await pilot.press("C")
        await until(pilot, lambda: isinstance(app.screen, CauseScreen))
        await shows(pilot, "this is certain")
        await shows(pilot, "! worker:1")
        await shows(pilot, "Connection closed by peer [10.0.0.3]")
        assert "Esc back" in screen_text(app)[-1], "the keys are at the lower edge"
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, RunScreen))
        await pilot.press("C", "down")
        await until(pilot, lambda: app.screen.query_one(Table).cursor_row == 1)
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, RunScreen))
        await until(pilot, lambda: focused_task(app) == "worker:1")
        await until(pilot, lambda: in_pane(app, RAISED))
        await pilot.press("C", "down", "down", "enter")
        await until(pilot, lambda: isinstance(app.screen, RunScreen))
        await until(pilot, lambda: focused_task(app) == "worker:2")


async def test_a_message_comes_before_where_it_was_written(run: ScriptedRun) -> None:
    """Given evidence that TensorFlow has printed with time, thread and place in its source, then
    the row begins with the severity and the message; Enter still finds the line."""
    fail(run)
    line = "E0000 00:00:1795816131.093980   12586 ring_alg.cc:291] Aborting RingReduce"
    run.write("worker:2", line.encode() + b"\n")
    run.change(
        verdict=replace(FAILED, evidence=(Evidence(TaskId("worker", 2), line, in_log=True),))
    )
    async with showing(run, (80, 24)) as (app, pilot):
        await shows(pilot, "cause: worker:1 on tf3 raised")
        await pilot.press("C")
        await shows(pilot, "E Aborting RingReduce")
        assert not visible(app, "ring_alg.cc")
        await pilot.press("down", "enter")
        await until(pilot, lambda: isinstance(app.screen, RunScreen))
        await until(pilot, lambda: focused_task(app) == "worker:2")
        await shows(pilot, "ring_alg.cc:291] Aborting RingReduce")


@pytest.mark.parametrize("size", SIZES)
async def test_a_line_that_no_log_has_leads_to_the_stacks(
    run: ScriptedRun, size: tuple[int, int]
) -> None:
    """Given a run that hangs, when a line of the evidence tells of a stack, then Enter opens the
    stacks with the cursor on the group of its task; a click on the header opens the cause."""
    run.all_tasks(state=TaskState.RUNNING, attempt=1)
    run.task("worker:2", stalled_since=time.time() - 95)
    run.change(state=RunPhase.RUNNING, verdict=HANGS)
    async with showing(run, size) as (app, pilot):
        await shows(pilot, "probably worker:2 on tf4")
        await pilot.click("RunHeader", offset=(30, 0))
        await until(pilot, lambda: isinstance(app.screen, CauseScreen))
        await shows(pilot, "probable: another task may be guilty")
        await shows(pilot, "running, stalled for ")
        await pilot.press("down", "enter")
        await until(pilot, lambda: isinstance(app.screen, StacksScreen))
        await until(pilot, lambda: bool(run.looks))

        def stack(index: int, function: str) -> TaskStacks:
            threads = (ThreadStack("main", (StackFrame(function, "/srv/data.py", 12),)),)
            return TaskStacks(
                TaskId("worker", index), "tf1", (ProcessStack(7, "python", "python", "", threads),)
            )

        names = ["all_reduce", "save", "next_batch"]
        run.looks[0].set_result(Stacks(0.0, tuple(map(stack, range(3), names))))
        await shows(pilot, "worker:2 on tf1")
        # when the run goes on, the page says so
        await pilot.press("C")
        await until(pilot, lambda: isinstance(app.screen, CauseScreen))
        run.task("worker:2", stalled_since=None)
        run.change(verdict=None)
        await shows(pilot, "No task has failed, and none has stalled.")
        await pilot.press("enter", "down", "enter")
        assert isinstance(app.screen, CauseScreen)


@pytest.mark.parametrize("size", SIZES)
async def test_those_that_wait_are_listed_with_their_places(
    run: ScriptedRun, size: tuple[int, int]
) -> None:
    """Given a run that hangs, then the page lists who waits, those in the same place in one line,
    and Enter on it opens the stacks with the cursor on their group."""
    run.all_tasks(state=TaskState.RUNNING, attempt=1)
    run.task("worker:2", stalled_since=time.time() - 95)
    place = "waits in all_reduce (train.py:20)"
    waiting = [Evidence(TaskId("worker", number), place) for number in range(2)]
    verdict = replace(HANGS, evidence=(*HANGS.evidence, *waiting))
    run.change(state=RunPhase.RUNNING, verdict=verdict)
    async with showing(run, size) as (app, pilot):
        await shows(pilot, "probably worker:2 on tf4")
        await pilot.press("C")
        await shows(pilot, place)
        [line] = [row for row in screen_text(app) if place in row]
        assert "worker:0–1" in line and "2 hosts" in line
        await pilot.press("down", "down")
        await until(pilot, lambda: app.screen.query_one(Table).cursor_row == 2)
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, StacksScreen) and bool(run.looks))
        main = (ThreadStack("main", (StackFrame("all_reduce", "/srv/train.py", 20),)),)
        process = ProcessStack(7, "python", "python", "", main)
        tasks = [TaskStacks(one.task, "tf1", (process,)) for one in waiting]
        odd = replace(tasks[0], task=TaskId("worker", 2))
        elsewhere = ThreadStack("main", (StackFrame("next_batch", "/srv/data.py", 12),))
        odd = replace(odd, processes=(replace(process, threads=(elsewhere,)),))
        run.looks[0].set_result(Stacks(0.0, (*tasks, odd)))
        await shows(pilot, "2 tasks: worker:0–1")


async def test_without_a_verdict_it_says_what_is_known(run: ScriptedRun) -> None:
    """A failure to which nothing points has the tasks that failed, the first one on top, and Enter
    shows the end of its log."""
    run.all_tasks(state=TaskState.RUNNING, attempt=1)
    run.write("worker:0", b"one\ntwo\nthree\n")
    run.task("worker:0", state=TaskState.FAILED, exit_code=3, ended=time.time())
    run.end(Outcome.FAILED, 1, failure=Failure(TaskId("worker", 0), "tf2", "exit 3", 1.0))
    async with showing(run, (80, 24)) as (app, pilot):
        await pilot.press("C")
        await shows(pilot, "This task failed first")
        await shows(pilot, "! worker:0")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, RunScreen))
        await shows(pilot, "three")


async def test_hostile_evidence_is_bounded_and_printable(run: ScriptedRun) -> None:
    """Given evidence with escape sequences, markup, foreign tasks, and far too much of it, the page
    stays a page, and Enter on any of its lines does no harm."""
    run.all_tasks(state=TaskState.RUNNING, attempt=1)
    evil = "\x1b]52;c;YQ==\x07\x1b[2J[bold red]x[/]\u202e\n" + "y" * 3_000
    one, foreign = TaskId("worker", 1), TaskId("worker", 99)
    lines = (
        Evidence(foreign, "no task at all"),
        Evidence(foreign, "gone", in_log=True),
        Evidence(one, evil, in_log=True),
        *([Evidence(one, "z")] * 500),
    )
    tasks = tuple(TaskId("worker", number) for number in range(500))
    run.change(
        state=RunPhase.RUNNING,
        verdict=Verdict(tasks, Kind.ALIKE, True, f"all raised {evil}", lines),
    )
    async with showing(run, (80, 24)) as (app, pilot):
        await pilot.press("C")
        await shows(pilot, "no task at all")
        await shows(pilot, "and 468 other tasks")
        rows = screen_text(app)
        assert len(rows) == 24 and all(row.isprintable() for row in rows)
        await pilot.press(*["down"] * 4)
        await until(pilot, lambda: app.screen.query_one(Table).cursor_row == 4)
        await pilot.press("enter")
        notes = app._notifications
        await until(pilot, lambda: any("leads to no task" in note.message for note in notes))
        await pilot.press("down", "down")
        await shows(pilot, "[bold red]x[/]")
        assert not visible(app, "\x1b")
        await pilot.press("enter")
        await until(pilot, lambda: any("is not there" in note.message for note in notes))
        assert isinstance(app.screen, RunScreen) and focused_task(app) == "worker:1"
        await pilot.press("C", "end", "enter")
        await until(pilot, lambda: isinstance(app.screen, StacksScreen))


@pytest.mark.parametrize("size", SIZES)
async def test_a_stall_is_named_on_every_page_and_one_key_away(
    run: ScriptedRun, size: tuple[int, int]
) -> None:
    """The header of logs, metrics, hosts, stacks and cause names task, host and since when; `!`
    leads from each of them to the end of the log of the task that stalled first."""
    run.all_tasks(state=TaskState.RUNNING, attempt=1)
    run.task("worker:2", stalled_since=time.time() - 95)
    run.change(state=RunPhase.RUNNING)
    run.write("worker:2", b"one\nits last line\n")
    named = "! worker:2 on tf4 stalled for "
    async with showing(run, size) as (app, pilot):
        await until(pilot, lambda: named in screen_text(app)[0])
        for key in ("M", "H", "b", "C"):
            await pilot.press("1", key)
            await until(pilot, lambda: not isinstance(app.screen, RunScreen))
            await until(pilot, lambda: named in screen_text(app)[0])
            await pilot.press("exclamation_mark")
            await until(pilot, lambda: isinstance(app.screen, RunScreen))
            await until(pilot, lambda: focused_task(app) == "worker:2")


async def test_the_summary_has_cause_last_lines_and_keys_on_a_low_terminal(
    run: ScriptedRun,
) -> None:
    """The cause comes before the receipt; the keys that lead on stand in its frame."""
    run.all_tasks(state=TaskState.RUNNING, attempt=1)
    run.change(verdict=FAILED)
    tail = ("zero", "one", "two", RAISED)
    run.task("worker:1", state=TaskState.FAILED, exit_code=1, ended=time.time())
    async with showing(run, (80, 24)) as (app, pilot):
        await shows(pilot, "worker:1")
        run.end(Outcome.FAILED, 1, Failure(TaskId("worker", 1), "tf3", "exit 1", 1.0, (), tail))
        await shows(pilot, "! log  C cause  l launch again  e edit  y copy report  Esc hide")
        await shows(pilot, "| one")
        rows = screen_text(app)
        cause = next(i for i, row in enumerate(rows) if "cause: worker:1 on tf3" in row)
        assert cause < next(i for i, row in enumerate(rows) if f"| {RAISED}" in row)
        assert not visible(app, "| zero")


# The stacks screen: groups of tasks, one of them in full, and what did not answer.

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
    control = run(tmp_path)
    async with showing(control, (80, 24)) as (_, pilot):
        await pilot.press("b")
        await until(pilot, lambda: bool(control.looks))
        await pilot.press("f9")
        await until(pilot, lambda: "kill_all" in control.asked)
        await shows(pilot, "killing all")
    control.logs.close()


async def test_hostile_names_are_text(tmp_path: Path) -> None:
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
