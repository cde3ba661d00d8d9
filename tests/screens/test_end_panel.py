"""The summary of a failure and the receipt's own page: the cause first, and what to do next."""

from __future__ import annotations

import pytest
from textual.widgets import Static

from launcher.ids import TaskId
from launcher.run.cause import Evidence, Kind, Verdict
from launcher.run.snapshot import Failure, HostReceipt, Receipt, Survivor
from launcher.run.states import Outcome, RunPhase, TaskState
from tests.support.fakes import ScriptedRun
from tests.support.screens import screen_text, showing, shows, until, visible
from tui.app import TfmuxApp
from tui.screens.cause_screen import CauseScreen
from tui.screens.dialogs import ReceiptScreen
from tui.widgets.pane import Pane

SIZES = [(80, 24), (120, 40), (200, 50)]
CAUSE = "worker:1 on tf3 is stopped"
LAST = tuple(f"guilty line {number}" for number in range(1, 9))
UNCLEAN = Receipt(
    (
        HostReceipt("tf1", signalled=3, confirmed=True, seconds=0.2),
        HostReceipt("tf2", 2, (Survivor(4121, "python train.py", "D"),), seconds=5.0),
        HostReceipt("tf3", signalled=3, confirmed=True, seconds=0.2),
        HostReceipt("tf4", signalled=3, confirmed=True, seconds=0.2),
    ),
    begun=True,
)


def fail(run: ScriptedRun, outcome: Outcome, receipt: Receipt | None = None) -> None:
    """A worker is guilty, and another one has failed first."""
    (run.logs.folder / "cluster.toml").write_text('name = "mnist"\n')
    run.all_tasks(state=TaskState.RUNNING, attempt=1)
    run.change(state=RunPhase.RUNNING)
    run.write("worker:1", "\n".join(LAST).encode() + b"\n")
    run.write("worker:2", b"a victim's line\n")
    run.task("worker:2", state=TaskState.FAILED, exit_code=1)
    guilty = TaskId("worker", 1)
    verdict = Verdict((guilty,), Kind.STOPPED, True, CAUSE, (Evidence(guilty, "state T"),))
    run.change(verdict=verdict)
    tail = ("a victim's line",)
    failure = Failure(TaskId("worker", 2), "tf4", "exit 1", 1.0, (), tail)
    run.end(outcome, 1, failure=failure, receipt=receipt)


def rows_with(app: TfmuxApp, *texts: str) -> list[int]:
    """The last rows of the screen that hold each text."""
    rows = screen_text(app)
    return [max((n for n, row in enumerate(rows) if text in row), default=-1) for text in texts]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("page", [False, True], ids=["panel", "receipt"])
async def test_the_cause_stands_above_what_the_hosts_confirm(
    run: ScriptedRun, size: tuple[int, int], page: bool
) -> None:
    """Given a run whose guilty task is not the first that failed, when it has ended, then the
    summary and the receipt's own page have the cause, below it the guilty task's last three lines,
    and the hosts in one line at the end, all in sight at once."""
    async with showing(run, size) as (app, pilot):
        fail(run, Outcome.FAILED)
        await shows(pilot, f"cause: {CAUSE}")
        if page:
            await pilot.press("f9")
            await until(pilot, lambda: isinstance(app.screen, ReceiptScreen))
        await shows(pilot, "no process is left, 4 hosts confirmed")
        wanted = [f"cause: {CAUSE}", *(f"| {line}" for line in LAST[-3:])]
        places = rows_with(app, *wanted, "no process is left, 4 hosts confirmed")
        assert -1 not in places and places == sorted(places), screen_text(app)
        assert not visible(app, "| a victim's line")


async def test_the_exception_is_in_sight_on_a_low_screen(run: ScriptedRun) -> None:
    """Given a failure whose log ends in a long traceback, when it is shown at 80×24, then the line
    of the exception and two before it have a row each: no marks of Python, no second rows."""
    trace = (
        "Traceback (most recent call last):",
        f'  File "/home/me/{"deep/" * 30}train.py", line 7, in load_shard',
        f"    return parse(shard, columns={'x' * 100})",
        "           ^^^^^^^^~~~~~~^^^^^^",
        "ValueError: shard 3 has 7 columns",
    )
    async with showing(run, (80, 24)) as (app, pilot):
        run.all_tasks(state=TaskState.RUNNING, attempt=1)
        run.change(state=RunPhase.RUNNING)
        run.task("worker:2", state=TaskState.FAILED, exit_code=1)
        guilty = TaskId("worker", 2)
        text = f"worker:2 on tf4 raised ValueError: shard 3 has 7 columns ({'deep/' * 6}train.py:7)"
        run.change(verdict=Verdict((guilty,), Kind.RAISED, True, text))
        run.end(Outcome.FAILED, 1, failure=Failure(guilty, "tf4", "exit 1", 1.0, (), trace))
        await shows(pilot, f"cause: {text[:40]}")
        wanted = (
            '  File "/home/me/deep',
            "    return parse(",
            "| ValueError: shard 3 has 7 columns",
        )
        rows = [row for row in screen_text(app) if "  | " in row]
        assert len(rows) == 3, screen_text(app)
        assert all(one in row for one, row in zip(wanted, rows, strict=True)), rows
        await shows(pilot, "no process is left")


@pytest.mark.parametrize("size", SIZES)
async def test_why_the_run_ended_its_guilty_task_stands_below_the_cause(
    run: ScriptedRun, size: tuple[int, int]
) -> None:
    """Given a task that hangs and was ended as it never listened, when the run is over, then the
    panel says below the cause which setting that is about."""
    guilty = TaskId("worker", 1)
    why = "not ready after 120 s: it does not listen on port 2222 (ready in [jobs.worker], line 7)"
    async with showing(run, size) as (app, pilot):
        run.all_tasks(state=TaskState.RUNNING, attempt=1)
        run.task("worker:1", state=TaskState.FAILED, exit_signal="TERM", reason=why)
        run.change(verdict=Verdict((guilty,), Kind.STUCK, True, "worker:1 on tf3 is in load"))
        run.end(Outcome.FAILED, 1, failure=Failure(guilty, "tf3", why, 1.0))
        await shows(pilot, "cause: worker:1 on tf3 is in load")
        await shows(pilot, "not ready after 120 s: it does not listen")
        await shows(pilot, "[jobs.worker], line")
        rows = screen_text(app)
        assert "no process is left" in rows[-2], "no row is lost below the receipt"


async def test_what_the_cause_says_is_not_said_again(run: ScriptedRun) -> None:
    """Given a task that has raised, which is the cause, when its run is over, then the panel has no
    second line for that task, none for evidence that the cause repeats, and not the only line of
    its log, which the cause quotes; the footer names no key
    that means something else in the panel."""
    guilty, error = TaskId("worker", 2), "ValueError: bad shard"
    async with showing(run, (200, 50)) as (app, pilot):
        run.all_tasks(state=TaskState.RUNNING, attempt=1)
        run.change(state=RunPhase.RUNNING)
        await shows(pilot, "e errors")
        run.task("worker:2", state=TaskState.FAILED, exit_code=1)
        evidence = (Evidence(guilty, error), Evidence(TaskId("worker", 1), "connection lost"))
        run.change(
            verdict=Verdict((guilty,), Kind.RAISED, True, f"worker:2 raised {error}", evidence)
        )
        run.end(Outcome.FAILED, 1, failure=Failure(guilty, "tf4", "exit 1", 1.0, (), (error,)))
        await shows(pilot, "worker:1: connection lost")
        assert not visible(app, f"| {error}")
        assert not visible(app, f"· worker:2: {error}")
        assert not visible(app, "first failure: worker:2 on tf4")
        assert not visible(app, "e errors")


@pytest.mark.parametrize("size", SIZES)
async def test_a_host_that_is_not_clean_has_a_line_of_its_own(
    run: ScriptedRun, size: tuple[int, int]
) -> None:
    """Given a host on which a process is left, when the receipt is shown, then that host and its
    process have lines, the clean hosts are one line below, and the header says it, too."""
    async with showing(run, size) as (app, pilot):
        fail(run, Outcome.FAILED, UNCLEAN)
        await shows(pilot, "not confirmed on every host")
        assert "not confirmed on every host" in screen_text(app)[0]
        await pilot.press("f9")
        await until(pilot, lambda: isinstance(app.screen, ReceiptScreen))
        await shows(pilot, "3 other hosts: no process is left")
        wanted = ("tf2: not confirmed: 2 processes signalled, 1 left", "tf2: pid 4121 (D) python")
        places = rows_with(app, *wanted, "3 other hosts: no process is left")
        assert -1 not in places and places == sorted(places), screen_text(app)
        said = str(app.screen.query_one("#receipt-text", Static).render())
        assert said.index("3 other hosts") < said.index("cause: "), "what may be left comes first"
        assert not visible(app, "tf1: ")


@pytest.mark.parametrize("where", ["panel", "cause", "receipt"])
async def test_one_key_copies_a_report(run: ScriptedRun, where: str) -> None:
    """Given a run that has failed, when `y` is pressed on the summary, on the page of the cause or
    on the receipt, then the report is on the clipboard."""
    async with showing(run, (80, 24)) as (app, pilot):
        await until(pilot, lambda: isinstance(app.focused, Pane))
        fail(run, Outcome.FAILED)
        await shows(pilot, "y copy report")
        if where == "cause":
            await pilot.press("C")
            await until(pilot, lambda: isinstance(app.screen, CauseScreen))
        elif where == "receipt":
            await pilot.press("f9")
            await until(pilot, lambda: isinstance(app.screen, ReceiptScreen))
        await pilot.press("y")
        await until(pilot, lambda: "cause: " in app.clipboard)
        assert f"cause: {CAUSE}\n" in app.clipboard and f"  | {LAST[0]}\n" in app.clipboard


async def test_without_the_summary_the_key_copies_lines(run: ScriptedRun) -> None:
    """Given the summary, when it is hidden or lines are selected, then `y` copies lines."""
    async with showing(run, (120, 40)) as (app, pilot):
        await until(pilot, lambda: isinstance(app.focused, Pane))
        fail(run, Outcome.FAILED)
        await shows(pilot, "y copy report")
        await pilot.press("v", "y")
        await until(pilot, lambda: app.clipboard == f"{LAST[-1]}\n")
        await pilot.press("escape", "y")
        await until(pilot, lambda: app.clipboard.endswith(f"{LAST[-2]}\n{LAST[-1]}\n"))


@pytest.mark.parametrize("size", SIZES)
async def test_the_pane_of_the_guilty_task_is_marked(
    run: ScriptedRun, size: tuple[int, int]
) -> None:
    """Given a run that hangs, when one task is named, then its pane's title says so and no other
    one does; when it is not sure the title says that, and where all tasks are guilty none is
    marked."""
    async with showing(run, size) as (app, pilot):
        run.all_tasks(state=TaskState.RUNNING, attempt=1)
        guilty = TaskId("worker", 1)
        verdict = Verdict((guilty,), Kind.STUCK, True, CAUSE)
        run.change(state=RunPhase.RUNNING, verdict=verdict)
        await shows(pilot, "! cause")
        marked = [line for line in screen_text(app) if "! cause" in line]
        assert len(marked) == 1 and "worker:1" in marked[0].partition("! cause")[0], marked
        run.change(verdict=verdict.doubted())
        await shows(pilot, "? cause")
        everybody = tuple(task.id for task in run.snapshot().tasks)
        run.change(verdict=Verdict(everybody, Kind.ALIKE, True, "all are stopped"))
        await until(pilot, lambda: not visible(app, "? cause"))
        assert not visible(app, "! cause")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("first", ["worker:1", "worker:2"], ids=["guilty", "victim"])
async def test_the_lines_of_a_failure_end_with_what_points_to_it(
    run: ScriptedRun, size: tuple[int, int], first: str
) -> None:
    """Given a task that raises, and libraries that say much when they end it, when the run has
    failed, then the summary has the end of the traceback, whoever was the first to fail; so has
    the report."""
    said = ["Traceback (most recent call last):", '  File "fault.py", line 22', "ValueError: bad"]
    noise = [f"library line {number}" for number in range(60)]
    async with showing(run, size) as (app, pilot):
        await until(pilot, lambda: isinstance(app.focused, Pane))
        (run.logs.folder / "cluster.toml").write_text('name = "mnist"\n')
        run.all_tasks(state=TaskState.RUNNING, attempt=1)
        run.change(state=RunPhase.RUNNING)
        run.write("worker:1", "\n".join([*said, *noise, ""]).encode())
        run.task(first, state=TaskState.FAILED, exit_code=134)
        guilty = TaskId("worker", 1)
        evidence = (Evidence(guilty, "ValueError: bad", True),)
        run.change(verdict=Verdict((guilty,), Kind.RAISED, True, "worker:1 raised", evidence))
        failure = Failure(TaskId.parse(first), "tf3", "ABRT", 1.0, (), tuple(noise[-20:]))
        run.end(Outcome.FAILED, 1, failure=failure)
        await shows(pilot, "| ValueError: bad")
        assert visible(app, '|   File "fault.py", line 22') and not visible(app, "| library line")
        await shows(pilot, "y copy report")
        await pilot.press("y")
        await until(pilot, lambda: "  | ValueError: bad\n" in app.clipboard)
        assert "| library line" not in app.clipboard
