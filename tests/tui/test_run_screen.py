"""The run screen, driven by its keys."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from textual.timer import Timer

from launcher.ids import TaskId
from launcher.run.snapshot import Failure, HostReceipt, Receipt, Survivor
from launcher.run.states import Outcome, RunPhase, TaskState
from tests.tui.conftest import screen_text, shows, until
from tests.tui.fakes import ScriptedRun
from tui.app import TfmuxApp
from tui.config import Config
from tui.screens.dialogs import LeaveDialog, ReceiptScreen
from tui.screens.run import OutcomePanel, RunScreen
from tui.widgets.pane import Pane
from tui.widgets.pane_area import PaneGrid
from tui.widgets.prompt import Prompt
from tui.widgets.task_list import StatusStrip


def focused(app: TfmuxApp) -> str:
    pane = app.focused
    assert isinstance(pane, Pane) and pane.view
    return str(pane.view.task)


class LateApp(TfmuxApp):
    """An app on a machine so busy that its clock comes a second late."""

    def set_interval(self, interval: float, *args: Any, **options: Any) -> Timer:
        return super().set_interval(interval + 1, *args, **options)


async def test_panes_show_logs_as_they_come(run: ScriptedRun) -> None:
    """Each task's lines appear in its pane, a last one without newline too, and states and
    figures stand in title, strip and header."""
    app = TfmuxApp(run)
    async with app.run_test(size=(200, 50)) as pilot:
        run.change(waiting="ps:0 on tf1:2222", waiting_since=time.time())
        await shows(pilot, "starting: waiting for ps:0 on tf1:2222")
        run.all_tasks(state=TaskState.READY)
        run.change(state=RunPhase.RUNNING, total_steps=20_000)
        run.write("ps:0", b"listening\nno newline yet")
        await shows(pilot, "no newline yet")
        run.write(
            "worker:1",
            b"After 300 training steps (912 global steps), loss on training batch is 0.4512."
            b"  (0.010 sec/batch)\n",
        )
        await shows(pilot, "worker:1 @tf3  running  step 912  loss 0.451")
        await shows(pilot, "step 912/20,000")
        assert not app.screen.query_one(StatusStrip).display, "every task is in sight"
        await pilot.press("z")
        await shows(pilot, "worker:1 R")


@pytest.mark.large
async def test_focus_by_keys_and_mouse(run: ScriptedRun) -> None:
    """Tab, Shift-Tab, digits, arrows, a click on a pane and one in the strip."""
    app = TfmuxApp(run)
    async with app.run_test(size=(200, 50)) as pilot:
        await until(pilot, lambda: isinstance(app.focused, Pane))
        assert focused(app) == "worker:0", "the chief: a ps has nothing to say for hours"
        for keys, task in [
            (["shift+tab"], "ps:0"),
            (["tab"], "worker:0"),
            (["shift+tab", "shift+tab"], "worker:2"),
            (["1"], "ps:0"),
            (["right"], "worker:0"),
            (["down"], "worker:2"),
            (["left"], "worker:1"),
            (["up"], "ps:0"),
        ]:
            await pilot.press(*keys)
            assert focused(app) == task
        await pilot.click(offset=(150, 40))
        assert focused(app) == "worker:2"
        await pilot.press("z")
        await until(pilot, lambda: app.screen.query_one(StatusStrip).region.height == 1)
        await pilot.click("StatusStrip", offset=(12, 0))
        assert focused(app) == "worker:0"


async def test_zoom_and_back(run: ScriptedRun) -> None:
    """z shows one pane alone, Escape brings the others back."""
    app = TfmuxApp(run)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: isinstance(app.focused, Pane))
        await pilot.press("2", "z")
        await until(pilot, lambda: len(app.screen.query_one(PaneGrid).panes) == 1)
        assert focused(app) == "worker:0"
        await pilot.press("escape")
        await until(pilot, lambda: len(app.screen.query_one(PaneGrid).panes) == 4)
        assert focused(app) == "worker:0"


async def test_scrolling_back_to_the_first_line(run: ScriptedRun) -> None:
    """g reaches the first line of the run; what comes meanwhile is counted and moves nothing;
    G follows again."""
    run.write("worker:0", b"".join(b"line %d\n" % i for i in range(100_000)))
    app = TfmuxApp(run)
    async with app.run_test(size=(80, 24)) as pilot:
        await shows(pilot, "line 99999")
        await pilot.press("k")
        await until(pilot, lambda: not any("line 99999" in row for row in screen_text(app)))
        await pilot.press("g")
        await shows(pilot, "line 0 ")
        run.write("worker:0", b"".join(b"later %d\n" % i for i in range(214)))
        await shows(pilot, "↓ 214 new")
        assert any("line 0 " in row for row in screen_text(app))
        await pilot.press("G")
        await shows(pilot, "later 213")


async def test_more_tasks_than_fit_are_on_pages(tmp_path: Path) -> None:
    """16 tasks at 80×24 take three pages; ] turns them and Tab walks over their edges."""
    app = TfmuxApp(ScriptedRun(tmp_path, workers=15))
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: isinstance(app.focused, Pane))
        assert len(app.screen.query_one(PaneGrid).panes) == 6
        await pilot.press("]")
        await until(pilot, lambda: focused(app) == "worker:5")
        await pilot.press("shift+tab")
        await until(pilot, lambda: focused(app) == "worker:4")
        await pilot.press("[")
        await until(pilot, lambda: focused(app) == "worker:11")
        await pilot.resize_terminal(200, 50)
        await until(pilot, lambda: len(app.screen.query_one(PaneGrid).panes) == 16)
        assert focused(app) == "worker:11"


async def test_q_and_enter_end_no_run(run: ScriptedRun) -> None:
    """The choice that Enter takes is the one that harms nothing: the screen and the run stay."""
    app = TfmuxApp(run)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("q")
        await until(pilot, lambda: isinstance(app.screen, LeaveDialog))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, RunScreen))
        assert run.asked == [] and app.is_running


@pytest.mark.large
async def test_kill_all_inside_a_dialog(run: ScriptedRun) -> None:
    """F9 kills without a question even while a dialog is open; a second press goes through
    too; the receipt is shown when it is there."""
    app = TfmuxApp(run)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("q")
        await until(pilot, lambda: isinstance(app.screen, LeaveDialog))
        await pilot.press("f9")
        assert run.asked == ["kill_all"]
        await shows(pilot, "killing all: TERM sent, KILL in")
        await pilot.press("f9")
        assert run.asked == ["kill_all", "kill_all force"]
        run.end(Outcome.KILLED, 130)
        await until(pilot, lambda: isinstance(app.screen, ReceiptScreen))
        await shows(pilot, "nothing is left on any host")
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, RunScreen))
        await pilot.press("q")
    assert app.return_value == 130


async def test_the_first_press_while_the_rule_ends_a_run_is_no_second_one(
    run: ScriptedRun,
) -> None:
    """The grace goes on; then the header offers KILL."""
    run.change(state=RunPhase.KILLING, kill_deadline=time.time() + 1000)
    app = TfmuxApp(run)
    async with app.run_test(size=(160, 40)) as pilot:
        await shows(pilot, "killing all: TERM sent, KILL in")
        assert not any("again: KILL now" in row for row in screen_text(app))
        await pilot.press("q")
        told = [note.message for note in app._notifications]
        assert told == ["leaves when the receipt is there; F9 twice: KILL now"]
        await pilot.press("f9")
        assert run.asked == ["kill_all"]
        await shows(pilot, "again: KILL now")
        await pilot.press("f9")
        assert run.asked == ["kill_all", "kill_all force"]


async def test_a_run_that_is_killed_as_soon_as_it_is_shown(run: ScriptedRun) -> None:
    """Its receipt is shown, although no look of the app's clock came in between."""
    app = LateApp(run)
    async with app.run_test(size=(120, 40)) as pilot:
        run.end(Outcome.KILLED, 130)
        await until(pilot, lambda: isinstance(app.screen, ReceiptScreen))


@pytest.mark.large
async def test_ctrl_c_twice_kills_and_leaves(run: ScriptedRun) -> None:
    """The second Ctrl-C kills all; the app leaves by itself once the receipt is clean."""
    app = TfmuxApp(run)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("ctrl+c")
        await until(pilot, lambda: isinstance(app.screen, LeaveDialog))
        await pilot.press("ctrl+c")
        await until(pilot, lambda: run.asked == ["kill_all"])
        run.end(Outcome.KILLED, 130)
        await until(pilot, lambda: app.return_value is not None)
    assert app.return_value == 130


@pytest.mark.large
async def test_ctrl_c_copies_selected_lines(run: ScriptedRun) -> None:
    """Once; with nothing selected it asks about leaving."""
    app = TfmuxApp(run)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: isinstance(app.focused, Pane))
        run.write("worker:0", b"one\ntwo\n")
        await shows(pilot, "two")
        await pilot.press("v", "k", "ctrl+c")
        await until(pilot, lambda: app.clipboard == "one\ntwo\n")
        assert not isinstance(app.screen, LeaveDialog)
        await pilot.press("ctrl+c")
        await until(pilot, lambda: isinstance(app.screen, LeaveDialog))


async def test_ctrl_c_copies_what_the_mouse_has_selected(run: ScriptedRun) -> None:
    """In a receipt, for a message to the administrator of a host."""
    app = TfmuxApp(run)
    async with app.run_test(size=(120, 40)) as pilot:
        hosts = (HostReceipt("tf1", 1, (Survivor(4121, "python", "D"),), confirmed=True),)
        run.end(Outcome.KILLED, 130, receipt=Receipt(hosts))
        await pilot.press("f9")
        await until(pilot, lambda: isinstance(app.screen, ReceiptScreen))
        await shows(pilot, "4121")
        app.screen.text_select_all()
        await pilot.press("ctrl+c")
        await until(pilot, lambda: "4121" in app.clipboard)
        assert isinstance(app.screen, ReceiptScreen)
        await pilot.press("ctrl+c")
        await until(pilot, lambda: app.return_value == 130)


@pytest.mark.large
async def test_an_unclean_receipt_stays(run: ScriptedRun) -> None:
    """With a survivor or an unreachable host the app does not leave by itself, and names both."""
    run.all_tasks(state=TaskState.RUNNING)
    app = TfmuxApp(run)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("ctrl+q", "k")
        await until(pilot, lambda: run.asked == ["kill_all"])
        hosts = (
            HostReceipt("tf1", 2, (Survivor(4121, "python -m trainer", "D"),), confirmed=True),
            HostReceipt("tf2", unreachable_until=time.time() + 60),
        )
        run.end(Outcome.KILLED, 4, receipt=Receipt(hosts))
        await shows(pilot, "tf1: pid 4121 (D) python -m trainer")
        await shows(pilot, "unreachable; its agent acts by itself at")
        await pilot.pause(2)
        assert app.return_value is None
        await pilot.press("x")
    assert app.return_value == 4


@pytest.mark.parametrize("key", ["d", "escape", "enter"])
async def test_detach_and_stay(run: ScriptedRun, key: str) -> None:
    """Detaching leaves with 0 and kills nothing; staying changes nothing, and is what Enter takes
    when nothing was chosen."""
    app = TfmuxApp(run)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("q")
        await until(pilot, lambda: isinstance(app.screen, LeaveDialog))
        await pilot.press(key)
        await pilot.pause()
        if key != "d":
            await until(pilot, lambda: isinstance(app.screen, RunScreen))
    assert run.asked == (["detach"] if key == "d" else [])
    assert app.return_value == (0 if key == "d" else None)


@pytest.mark.large
async def test_a_receipt_shows_its_proof_and_its_keys_on_a_low_terminal(run: ScriptedRun) -> None:
    """The last lines of a failure come after what every host has confirmed, and scroll."""
    run.all_tasks(state=TaskState.FAILED, exit_code=1, ended=1004.1)
    app = TfmuxApp(run)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("f9")
        await until(pilot, lambda: "kill_all" in run.asked)
        tail = tuple(f"line {number} of a long story" for number in range(30))
        run.end(
            Outcome.KILLED,
            130,
            failure=Failure(TaskId("worker", 1), "tf3", "exit 1", 1000.0, (), tail),
        )
        await shows(pilot, "nothing is left on any host")
        await shows(pilot, "none left, confirmed in 0.20 s")
        await shows(pilot, "Esc back to the logs   q leave")
        await pilot.press("end")
        await shows(pilot, "line 29 of a long story")
        await pilot.press("escape", "question_mark")
        await shows(pilot, "Esc back")


async def test_a_failure_is_in_sight_on_a_low_terminal(run: ScriptedRun) -> None:
    """The summary of a run that failed by itself takes a third of the terminal at most, however
    long it is, and the pane of the task that failed has the focus and shows its last lines."""
    run.change(state=RunPhase.RUNNING)
    run.all_tasks(state=TaskState.RUNNING)
    run.write("worker:1", b"ValueError: what went wrong\n")
    app = TfmuxApp(run)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: isinstance(app.focused, Pane))
        assert focused(app) == "worker:0"
        others = (TaskId("worker", 0), TaskId("worker", 2))
        failure = Failure(TaskId("worker", 1), "tf3", "exit 1", 1000.0, others, ("one", "two"))
        run.task("worker:1", state=TaskState.FAILED, exit_code=1, ended=1000.0)
        run.end(Outcome.FAILED, 1, failure=failure)
        await shows(pilot, "nothing is left on any host")
        summary = app.screen.query_one(OutcomePanel)
        await until(pilot, lambda: 0 < summary.outer_size.height <= 8)
        await until(pilot, lambda: focused(app) == "worker:1")
        await shows(pilot, "ValueError: what went wrong")
        assert len(app.screen.query_one(PaneGrid).panes) == 4
        await pilot.press("f9")
        await shows(pilot, "tf4: 3 processes signalled")
        await pilot.press("escape", "escape")
        await until(pilot, lambda: not summary.display)
        assert focused(app) == "worker:1"


async def test_the_first_failure_is_the_headline(run: ScriptedRun) -> None:
    """A run that failed by itself says who was first, with its last lines, and q leaves."""
    run.all_tasks(state=TaskState.FAILED, exit_code=1, ended=1004.1)
    app = TfmuxApp(run)
    async with app.run_test(size=(120, 40)) as pilot:
        failure = Failure(
            TaskId("worker", 1),
            "tf3",
            "exit 1",
            1000.0,
            (TaskId("worker", 0),),
            ("Traceback (most recent call last):", "ValueError: the loss is NaN"),
        )
        run.end(Outcome.FAILED, 1, failure=failure)
        await shows(pilot, "first failure: worker:1 on tf3: exit 1, 4.1 s before worker:0")
        await shows(pilot, "ValueError: the loss is NaN")
        await shows(pilot, "nothing is left on any host")
        await pilot.press("q")
    assert app.return_value == 1


async def test_closing_between_two_frames_is_silent(
    run: ScriptedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the app shuts down widgets go one by one, and the clock draws on none of them. Here
    it draws everything on each turn of the loop, and so in each such moment."""
    frame = RunScreen._frame

    def draw_all(screen: RunScreen) -> bool:
        screen.show_run(time.time())
        return frame(screen)

    monkeypatch.setattr("tui.screens.run.FRAME", 0)
    monkeypatch.setattr(RunScreen, "_frame", draw_all)
    app = TfmuxApp(run)
    async with app.run_test(size=(200, 50)) as pilot:
        await until(pilot, lambda: isinstance(app.focused, Pane))
    # an error of the clock would have been raised at the end of `run_test`


async def test_the_prompt_is_one_row_above_the_footer(run: ScriptedRun) -> None:
    """It takes one row from the panes, and gives the keyboard back to the focused one."""
    app = TfmuxApp(run)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: isinstance(app.focused, Pane))
        await pilot.press("2", "slash", *"step")
        await shows(pilot, " / step")
        assert screen_text(app)[-2].startswith(" / step")
        assert app.screen.query_one(Prompt).region.height == 1
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.focused, Pane))
        assert focused(app) == "worker:0"


async def test_a_run_that_ends_before_its_screen_is_open(
    run: ScriptedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its screen was made while it began."""
    app, screen = TfmuxApp(run, config=Config()), RunScreen(run)
    monkeypatch.setattr(app, "get_default_screen", lambda: screen)
    run.end(Outcome.SUCCESS, 0)
    async with app.run_test(size=(100, 30)) as pilot:
        await shows(pilot, "✓ success")
