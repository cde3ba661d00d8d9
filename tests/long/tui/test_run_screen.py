"""The run screen, driven by its keys."""

from __future__ import annotations

import time

from launcher.ids import TaskId
from launcher.run.snapshot import Failure, HostReceipt, Receipt, Survivor
from launcher.run.states import Outcome, TaskState
from tests.support.fakes import ScriptedRun
from tests.support.screens import focused_task, showing, shows, until, visible
from tui.screens.dialogs import LeaveDialog, ReceiptScreen
from tui.screens.run_screen import RunScreen
from tui.widgets.pane import Pane
from tui.widgets.task_list import StatusStrip


async def test_focus_by_keys_and_mouse(run: ScriptedRun) -> None:
    """Tab, Shift-Tab, digits, arrows, a click on a pane and one in the strip."""
    async with showing(run, (200, 50)) as (app, pilot):
        await until(pilot, lambda: isinstance(app.focused, Pane))
        assert focused_task(app) == "worker:0", "the chief: a ps has nothing to say for hours"

        async def focus_on(task: str) -> None:
            await until(pilot, lambda: focused_task(app) == task)

        for keys, task in [
            (["shift+tab"], "ps:0"),
            (["tab"], "worker:0"),
            (["shift+tab", "shift+tab"], "worker:2"),
            (["1"], "ps:0"),
            (["down"], "worker:0"),
            (["right"], "worker:1"),
            (["down"], "worker:2"),
            (["up", "left"], "worker:0"),
            (["up"], "ps:0"),
        ]:
            await pilot.press(*keys)
            await focus_on(task)
        await pilot.click(offset=(150, 40))
        await focus_on("worker:2")
        await pilot.press("z")
        await until(pilot, lambda: app.screen.query_one(StatusStrip).region.height == 1)
        await pilot.click("StatusStrip", offset=(12, 0))
        await focus_on("worker:0")


async def test_kill_all_inside_a_dialog(run: ScriptedRun) -> None:
    """F9 kills without a question even while a dialog is open; a second press goes through
    too; the receipt is shown when it is there."""
    async with showing(run, (120, 40)) as (app, pilot):
        await pilot.press("q")
        await until(pilot, lambda: isinstance(app.screen, LeaveDialog))
        await pilot.press("f9")
        await until(pilot, lambda: run.asked == ["kill_all"])
        await shows(pilot, "killing all: TERM sent, KILL in")
        await pilot.press("f9")
        await until(pilot, lambda: run.asked == ["kill_all", "kill_all force"])
        run.end(Outcome.KILLED, 130)
        await until(pilot, lambda: isinstance(app.screen, ReceiptScreen))
        await shows(pilot, "no process is left")
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, RunScreen))
        await pilot.press("q")
    assert app.return_value == 130


async def test_ctrl_c_twice_kills_and_leaves(run: ScriptedRun) -> None:
    """The second Ctrl-C kills all; the app leaves by itself once the receipt is clean."""
    async with showing(run, (120, 40)) as (app, pilot):
        await pilot.press("ctrl+c")
        await until(pilot, lambda: isinstance(app.screen, LeaveDialog))
        await pilot.press("ctrl+c")
        await until(pilot, lambda: run.asked == ["kill_all"])
        run.end(Outcome.KILLED, 130)
        await until(pilot, lambda: app.return_value is not None)
    assert app.return_value == 130


async def test_ctrl_c_copies_selected_lines(run: ScriptedRun) -> None:
    """Once; with nothing selected it asks about leaving."""
    async with showing(run, (120, 40)) as (app, pilot):
        await until(pilot, lambda: isinstance(app.focused, Pane))
        run.write("worker:0", b"one\ntwo\n")
        await shows(pilot, "two")
        await pilot.press("v", "k", "ctrl+c")
        await until(pilot, lambda: app.clipboard == "one\ntwo\n")
        assert not isinstance(app.screen, LeaveDialog)
        await pilot.press("ctrl+c")
        await until(pilot, lambda: isinstance(app.screen, LeaveDialog))


async def test_an_unclean_receipt_stays(run: ScriptedRun) -> None:
    """With a survivor or an unreachable host the app does not leave by itself, and names both."""
    run.all_tasks(state=TaskState.RUNNING)
    async with showing(run, (120, 40)) as (app, pilot):
        await pilot.press("ctrl+q", "k")
        await until(pilot, lambda: run.asked == ["kill_all"])
        hosts = (
            HostReceipt("tf1", 2, (Survivor(4121, "python -m trainer", "D"),), confirmed=True),
            HostReceipt("tf2", unreachable_until=time.time() + 60),
        )
        run.end(Outcome.KILLED, 4, receipt=Receipt(hosts))
        await shows(pilot, "tf1: pid 4121 (D) python -m trainer")
        await shows(pilot, "unreachable; its agent ends the tasks at")
        await pilot.pause(2)
        assert app.return_value is None
        await pilot.press("x")
    assert app.return_value == 4


async def test_a_receipt_shows_its_proof_and_its_keys_on_a_low_terminal(run: ScriptedRun) -> None:
    """Given a failure with many last lines, when its receipt is shown at 80×24, then the last three
    of them, what the hosts have confirmed and the keys are in sight."""
    run.all_tasks(state=TaskState.FAILED, exit_code=1, ended=1004.1)
    async with showing(run, (80, 24)) as (app, pilot):
        await pilot.press("f9")
        await until(pilot, lambda: "kill_all" in run.asked)
        tail = tuple(f"line {number} of a long story" for number in range(30))
        run.end(
            Outcome.KILLED,
            130,
            failure=Failure(TaskId("worker", 1), "tf3", "exit 1", 1000.0, (), tail),
        )
        await shows(pilot, "no process is left, 4 hosts confirmed")
        await shows(pilot, "Esc back   l launch again   e edit   y copy report   q leave")
        assert all(visible(app, f"line {number} of a long story") for number in (27, 28, 29))
        assert not visible(app, "line 26 of a long story")
        await pilot.press("escape", "question_mark")
        await shows(pilot, "Esc back")
