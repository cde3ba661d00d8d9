"""What the screens of a run say and offer once it has ended."""

from __future__ import annotations

from dataclasses import replace

from launcher.run.snapshot import HostReceipt, KeptResults, Receipt
from launcher.run.states import HostState, Outcome, RunPhase, TaskState
from tests.support.fakes import ScriptedRun
from tests.support.screens import screen_text, showing, shows, until, visible
from tui.screens.help import HelpScreen
from tui.screens.hosts_screen import HostsScreen
from tui.screens.stacks_screen import StacksScreen
from tui.widgets.pane import Pane

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
