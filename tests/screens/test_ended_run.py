"""A run that has ended: its panel, its receipt, and its launch once more."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Static

from launcher.cluster.read import loads
from launcher.errors import TfmuxError
from launcher.history.control import RunControl
from launcher.ids import TaskId
from launcher.run.cause import Evidence, Kind, Verdict
from launcher.run.snapshot import Failure, HostReceipt, KeptResults, Receipt, Survivor
from launcher.run.states import HostState, Outcome, RunPhase, TaskState
from launcher.store.runs import RunFolder
from tests.support.cluster_texts import cluster_text
from tests.support.fakes import ScriptedRun
from tests.support.screens import screen_text, showing, shows, until, visible
from tui.app import TfmuxApp
from tui.config import Config
from tui.run_clients import RunClients
from tui.screens.cause_screen import CauseScreen
from tui.screens.dialogs import ReceiptScreen
from tui.screens.editor.screen import EditorScreen
from tui.screens.help import HelpScreen
from tui.screens.hosts_screen import HostsScreen
from tui.screens.prompt_dialogs import PromptDialogs
from tui.screens.run_screen import RunScreen
from tui.screens.stacks_screen import StacksScreen
from tui.widgets.pane import Pane

# What the screens of a run say and offer once it has ended.

NOTHING_AFTERWARDS = ("Restart", "TERM, KILL", "Detach", "Stacks", "Kill all")


async def test_hosts_say_what_is_left_on_them(run: ScriptedRun) -> None:
    """Each host has the word of its receipt instead of a state, and no load: nobody measures it
    any more. A host that was never connected to has none."""
    hosts = [
        replace(host, cpu=0.5, memory_used=1 << 30, memory_total=1 << 31, last_heard=1.0)
        for host in run.snapshot().hosts
    ]
    run.change(state=RunPhase.RUNNING, hosts=tuple(hosts))
    async with showing(run, (120, 40)) as (app, pilot):
        await pilot.press("H")
        await until(pilot, lambda: isinstance(app.screen, HostsScreen))
        await shows(pilot, "50 %")
        run.change(hosts=(*hosts[:3], replace(hosts[3], state=HostState.CONNECTING)))
        clean = HostReceipt("tf1", signalled=3, confirmed=True, seconds=0.2)
        doubtful = HostReceipt("tf2", doubt="its watchdog has left no word")
        run.end(receipt=Receipt((clean, doubtful, HostReceipt("tf3")), begun=True))
        await shows(pilot, "none left")
        rows = {row[3:6]: row for row in screen_text(app)}
        assert "none left" in rows["tf1"]
        assert "not confirmed" in rows["tf2"]
        assert "unreachable" in rows["tf3"]
        assert "never connected" in rows["tf4"]
        assert not visible(app, "50 %")
        assert not visible(app, " ago")
        await pilot.press("down")
        await shows(pilot, "not confirmed: its watchdog has left no word")


async def test_a_task_that_never_began_waits_for_nothing(run: ScriptedRun) -> None:
    """Given a run whose preflight has failed, when it is over, then no pane says when its task is
    to start, and a host that is called as in the file has no second name."""
    hosts = run.snapshot().hosts
    refused = replace(
        hosts[0], destination=hosts[0].name, state=HostState.REFUSED, reason="no Python"
    )
    async with showing(run, (80, 24)) as (app, pilot):
        await shows(pilot, "starts when")
        run.change(hosts=(refused, *hosts[1:]))
        run.end(Outcome.PREFLIGHT, 3)
        await shows(pilot, "was not started")
        await shows(pilot, f" {refused.name}: no Python")
        assert not visible(app, "starts when") and not visible(app, "starts next")


async def test_the_list_of_tasks_has_the_words_of_their_titles(run: ScriptedRun) -> None:
    """How a task ended stands there too, behind the step it came to."""
    run.task("ps:0", state=TaskState.STOPPED, exit_code=0)
    run.task("worker:0", state=TaskState.FAILED, exit_code=3, step=900)
    run.task("worker:1", state=TaskState.KILLED, exit_signal="KILL")
    async with showing(run, (120, 40)) as (app, pilot):
        run.end()
        await pilot.press("space", "space")
        await shows(pilot, "900  exit 3 │")
        rows = [row.partition("│")[0].split() for row in screen_text(app)]
        ends = {row[1]: row[2:] for row in rows if len(row) > 2}
        assert ends["ps:0"] == ["stopped,", "exit", "0"]
        assert ends["worker:1"] == ["killed,", "SIGKILL"]


async def test_help_lists_only_what_still_means_something(run: ScriptedRun) -> None:
    """No restart, no signal, no detaching, no stacks; the kill key shows the receipt."""
    run.all_tasks(state=TaskState.RUNNING)
    run.change(state=RunPhase.RUNNING)
    async with showing(run, (120, 40)) as (app, pilot):
        await pilot.press("question_mark")
        await until(pilot, lambda: isinstance(app.screen, HelpScreen))
        for words in NOTHING_AFTERWARDS:
            await shows(pilot, words)
        await pilot.press("escape")
        run.end()
        await shows(pilot, "no process is left")
        await pilot.press("question_mark")
        await until(pilot, lambda: isinstance(app.screen, HelpScreen))
        await shows(pilot, "Receipt")
        for words in NOTHING_AFTERWARDS:
            assert not visible(app, words), words


async def test_help_tears_no_group_where_there_is_room(run: ScriptedRun) -> None:
    """Both of its columns begin with the title of a group."""
    run.all_tasks(state=TaskState.RUNNING)
    run.change(state=RunPhase.RUNNING)
    async with showing(run, (120, 40)) as (app, pilot):
        await until(pilot, lambda: isinstance(app.focused, Pane))
        await pilot.press("question_mark")
        await shows(pilot, "Half a page down, up")
        first = next(row for row in screen_text(app) if " Log " in row)
        assert " Task " in first


async def test_stacks_of_a_run_that_has_ended_leave_no_empty_boxes(run: ScriptedRun) -> None:
    """The key does nothing after the end; on a screen that was open before, the last answer
    stays, or nothing but the sentence."""
    run.change(state=RunPhase.RUNNING)
    async with showing(run, (80, 24)) as (app, pilot):
        await pilot.press("b")
        await until(pilot, lambda: isinstance(app.screen, StacksScreen))
        await shows(pilot, "asking all hosts")
        run.end()
        await shows(pilot, "F9 receipt")
        await pilot.press("f5")
        await shows(pilot, "the run is over; there are no stacks to take")
        assert not visible(app, "Groups")
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(app.screen, StacksScreen))
        await pilot.press("b")
        await pilot.pause()
        assert not isinstance(app.screen, StacksScreen)


KEPT = KeptResults("tf1", 3, 1_200_000_000, "/home/me/.local/state/tfmux/run-1.tf1/results")


async def test_files_that_stay_on_hosts_are_named_when_they_are_known(run: ScriptedRun) -> None:
    """They come after the receipt, and stand below it."""
    async with showing(run, (160, 40)) as (app, pilot):
        run.end()
        await shows(pilot, "no process is left")
        assert not visible(app, "new files")
        run.change(results_kept=(KEPT,))
        await shows(pilot, "tf1: 3 new files, 1.2 GB, kept in /home/me/")
        await shows(pilot, f"`tfmux collect {run.snapshot().run_id}` fetches them")


async def test_a_receipt_that_is_open_names_them_too(run: ScriptedRun) -> None:
    """After a kill, which shows the receipt at once."""
    run.all_tasks(state=TaskState.RUNNING)
    run.change(state=RunPhase.RUNNING)
    async with showing(run, (160, 40)) as (_, pilot):
        run.end(outcome=Outcome.KILLED, exit_code=130)
        await shows(pilot, "Receipt")
        run.change(results_kept=(KEPT,))
        await shows(pilot, "tf1: 3 new files, 1.2 GB, kept in /home/me/")


# The summary of a failure and the receipt's own page: the cause first, and what to do next.

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


# From the end of a run to the next one: keys of its screens.


@pytest.fixture
def other(tmp_path: Path) -> ScriptedRun:
    """The run that is launched next."""
    (tmp_path / "other").mkdir()
    return ScriptedRun(tmp_path / "other", workers=1)


class Clients(RunClients):
    """Launches no process for a run that is launched again."""

    def __init__(self, launch: Callable[[str], RunControl]) -> None:
        super().__init__()
        self._launch = launch

    def launch_again(self, run_id: str, ask: object) -> RunControl:
        """What the test launches."""
        return self._launch(run_id)

    def kill(self, run_id: str, ask: object) -> Future[RunControl]:
        """The run that is killed again is one of the test, too."""
        done = Future[RunControl]()
        try:
            done.set_result(self._launch(run_id))
        except TfmuxError as error:
            done.set_exception(error)
        return done


@asynccontextmanager
async def launching(
    run: ScriptedRun, launch: Callable[[str], RunControl], size: tuple[int, int] = (80, 24)
) -> AsyncIterator[tuple[TfmuxApp, Pilot[int]]]:
    """The screen of `tfmux up`, from which `launch` launches again."""
    app = TfmuxApp(run, config=Config(), clients=Clients(launch), prompts=PromptDialogs())
    async with app.run_test(size=size, notifications=True) as pilot:
        yield app, pilot


@pytest.mark.parametrize("keys", [[], ["H"], ["f9"], ["M", "H"]], ids=str)
async def test_a_key_launches_the_ended_run_again(
    keys: list[str], run: ScriptedRun, other: ScriptedRun
) -> None:
    """From its logs, from another page of it and from its receipt; what is shown then is the new
    run, and the keys are about that."""
    asked: list[str] = []

    def launch(run_id: str) -> RunControl:
        asked.append(run_id)
        return other

    async with launching(run, launch) as (app, pilot):
        run.end(exit_code=1)
        await shows(pilot, "l launch again")
        await pilot.press(*keys)
        if "H" in keys:
            await until(pilot, lambda: isinstance(app.screen, HostsScreen))
        if "f9" in keys:
            await until(pilot, lambda: isinstance(app.screen, ReceiptScreen))
            await shows(pilot, "l launch again")
        other.change(state=RunPhase.RUNNING)
        other.all_tasks(state=TaskState.RUNNING)
        await pilot.press("l")
        await until(pilot, lambda: app.control is other)
        assert asked == [run.snapshot().run_id]
        assert isinstance(app.screen, RunScreen) and app.screen.control is other
        assert [type(screen) for screen in app.screen_stack] == [RunScreen]
        await until(pilot, lambda: not visible(app, "launch again"))
        await pilot.press("f9")
        await until(pilot, lambda: bool(other.asked))
        assert not run.asked


@pytest.mark.parametrize("size", [(80, 24), (200, 50)], ids=str)
@pytest.mark.parametrize("outcome", [Outcome.KILLED, Outcome.FAILED])
async def test_one_key_kills_again_what_a_kill_has_left(
    run: ScriptedRun, other: ScriptedRun, outcome: Outcome, size: tuple[int, int]
) -> None:
    """Given an end that a host has not confirmed, when the kill key is pressed, which the receipt
    or the summary names, then the run is killed again, and the next receipt is shown."""
    asked: list[str] = []

    def kill(run_id: str) -> RunControl:
        asked.append(run_id)
        return other

    async with launching(run, kill, size) as (app, pilot):
        survivors = (Survivor(4121, "sleep 9", "S"), Survivor(4122, "cat", "D"))
        left = HostReceipt("tf2", 2, survivors)
        if outcome is Outcome.KILLED:
            await pilot.press("f9")
            await until(pilot, lambda: "kill_all" in run.asked)
            await shows(pilot, "F9 KILL now")
        run.end(outcome, 1, receipt=Receipt((left,), begun=True))
        before = (
            "F9 kill again   Esc back" if outcome is Outcome.KILLED else "F9 kill again  l launch"
        )
        await shows(pilot, before)
        await shows(pilot, "kill -KILL 4121")
        assert not visible(app, "4121 4122")
        await pilot.press("f9")
        await until(pilot, lambda: app.control is other)
        assert asked == [run.snapshot().run_id]
        other.end(Outcome.KILLED, 1)
        await until(pilot, lambda: isinstance(app.screen, ReceiptScreen))
        await shows(pilot, "Esc back   l launch again   e edit   y copy report")
        assert not visible(app, "kill again")


async def test_a_refused_kill_is_told(run: ScriptedRun) -> None:
    """The summary stays, and with it the key."""

    def kill(run_id: str) -> RunControl:
        raise TfmuxError("its files cannot be read")

    async with launching(run, kill) as (app, pilot):
        run.end(Outcome.FAILED, 1, receipt=Receipt((HostReceipt("tf2"),), begun=True))
        await shows(pilot, "F9 kill again  l launch")
        await pilot.press("f9")
        await shows(pilot, "its files cannot be read")
        assert app.control is run


async def test_the_receipt_leads_to_the_file(
    run: ScriptedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given the receipt of a run that a person has ended, when its key for the file is pressed,
    then the receipt goes and the file is opened."""
    opened: list[bool] = []

    def edit(app: TfmuxApp) -> None:
        opened.append(app.screen.is_modal)

    monkeypatch.setattr(TfmuxApp, "action_edit_file", edit)
    async with launching(run, _none) as (app, pilot):
        run.end(Outcome.KILLED, exit_code=1)
        await pilot.press("f9")
        await until(pilot, lambda: isinstance(app.screen, ReceiptScreen))
        await shows(pilot, "l launch again   e edit   y copy report")
        await pilot.press("e")
        await until(pilot, lambda: opened == [False])


@pytest.mark.parametrize(("key", "asked"), [("r", "again"), ("e", "edit_file")])
async def test_the_keys_of_the_summary_lead_on(
    run: ScriptedRun, monkeypatch: pytest.MonkeyPatch, key: str, asked: str
) -> None:
    """Given the summary of a failure, when its keys are pressed, then the run is launched again, or
    its file is opened; with the summary hidden, `e` goes to errors again."""
    done: list[str] = []
    for name in ("again", "edit_file"):
        monkeypatch.setattr(TfmuxApp, f"action_{name}", lambda app, name=name: done.append(name))
    run.all_tasks(state=TaskState.RUNNING, attempt=1)
    run.change(state=RunPhase.RUNNING)
    async with launching(run, _none) as (app, pilot):
        run.end(exit_code=1)
        await shows(pilot, "l launch again  e edit  y copy report  Esc hide")
        assert sum("launch again" in row for row in screen_text(app)) == 1, "one place names it"
        await pilot.press(key)
        await until(pilot, lambda: done == [asked])
        await pilot.press("escape")
        await shows(pilot, "F9 receipt  l launch again  F4 edit")
        await pilot.press("e")
        await shows(pilot, "no line of any task looks like an")
        assert done == [asked]


def _none(run_id: str) -> RunControl:
    raise AssertionError(run_id)


async def test_an_active_run_is_not_launched_again(run: ScriptedRun) -> None:
    """The key says what comes first."""

    def launch(run_id: str) -> RunControl:
        raise AssertionError(run_id)

    async with launching(run, launch, (120, 40)) as (app, pilot):
        run.change(state=RunPhase.RUNNING)
        await pilot.press("l")
        await shows(pilot, "the run is active: F9 ends it")
        assert app.control is run


async def test_why_it_is_not_launched(run: ScriptedRun) -> None:
    """The sentence of the launch; the ended run stays on the screen."""

    def launch(run_id: str) -> RunControl:
        raise TfmuxError("cluster.toml:3: run.workdir: there is no such directory")

    async with launching(run, launch, (120, 40)) as (app, pilot):
        run.end()
        await shows(pilot, "l launch again")
        await pilot.press("l")
        await shows(pilot, "there is no such directory")
        assert app.control is run and isinstance(app.screen, RunScreen)


async def test_the_file_of_an_ended_run_is_edited_and_launched(
    run: ScriptedRun,
    other: ScriptedRun,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Given `tfmux up` on a run whose worker:1 has failed, when `e` is pressed, then the editor
    opens on the place of that task; `q` leads back to the run, and a launch from the editor is
    shown in its place."""
    hosts = {host: {"ssh": f"me@{host}.invalid"} for host in ("tf1", "tf2", "tf3")}
    text = cluster_text({"ps": "tf1:2222", "worker": "tf2:2222 tf3:2222"}, "mnist-async", hosts)
    (tmp_path / "project").mkdir()
    file = tmp_path / "project/mnist.toml"
    file.write_text(text)
    run_id = run.snapshot().run_id
    folder = RunFolder.create(run_id, text, loads(text, str(file), file.parent))
    launched: list[str] = []

    def launch(_: RunClients, cluster: object, text: str, *more: object) -> RunControl:
        launched.append(text)
        return other

    monkeypatch.setattr(RunClients, "launch", launch)
    run.all_tasks(state=TaskState.RUNNING, attempt=1)
    run.change(state=RunPhase.RUNNING)
    async with launching(run, _none) as (app, pilot):
        run.task("worker:1", state=TaskState.FAILED, exit_code=1)
        run.end(exit_code=1, failure=Failure(TaskId("worker", 1), "tf3", "exit 1", 1.0))
        await shows(pilot, "e edit")
        await pilot.press("e")
        await until(pilot, lambda: isinstance(app.screen, EditorScreen))
        editor = app.screen
        assert isinstance(editor, EditorScreen) and editor.draft.path == file, folder
        await until(pilot, lambda: (editor._table.host, editor._table.job) == ("tf3", "worker"))
        await pilot.press("q")
        await until(pilot, lambda: isinstance(app.screen, RunScreen))
        await pilot.press("e")
        await until(pilot, lambda: isinstance(app.screen, EditorScreen))
        await pilot.press("M")  # would take the editor away
        await pilot.press("l")
        await until(pilot, lambda: app.control is other)
        assert launched == [text]
        assert [type(screen) for screen in app.screen_stack] == [RunScreen]


@pytest.mark.parametrize(
    ("code", "field"),
    [
        ("python-missing", "python"),
        ("tcp-refused", "ssh"),
        ("login-refused", "ssh"),
        ("key-file", "identity"),
        ("via-failed", "ssh"),
    ],
)
async def test_a_refused_host_leads_to_the_setting_that_is_about_the_reason(
    run: ScriptedRun, tmp_path: Path, code: str, field: str
) -> None:
    """Given a run of which a host was refused, when its file is opened, then the cursor is on the
    setting of that host which the reason is about; `via` is in the column of ssh."""
    hosts = {
        host: {"ssh": f"me@{host}.invalid", "python": "/opt/python", "identity": "/tmp/key"}
        for host in ("tf1", "tf2", "tf3")
    }
    text = cluster_text({"ps": "tf1:2222", "worker": "tf2:2222 tf3:2222"}, "mnist-async", hosts)
    file = tmp_path / "mnist.toml"
    file.write_text(text)
    RunFolder.create(run.snapshot().run_id, text, loads(text, str(file), tmp_path))
    views = run.snapshot().hosts
    refused = replace(views[1], state=HostState.REFUSED, reason="no", code=code)
    run.change(hosts=(views[0], refused, *views[2:]))
    async with launching(run, _none) as (app, pilot):
        run.end(Outcome.PREFLIGHT, 3)
        await shows(pilot, "e edit")
        await pilot.press("e")
        await until(pilot, lambda: isinstance(app.screen, EditorScreen))
        editor = app.screen
        assert isinstance(editor, EditorScreen)
        await until(pilot, lambda: (editor._table.host, editor._table.field) == ("tf2", field))
