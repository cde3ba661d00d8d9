"""The run screen, driven by its keys."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
from textual._styles_cache import StylesCache
from textual.strip import Strip

from launcher.ids import TaskId
from launcher.run.snapshot import Failure, HostReceipt, Receipt, Survivor
from launcher.run.states import Outcome, RunPhase, TaskState
from tests.support.fakes import ScriptedRun
from tests.support.screens import focused_task, run_screen, screen_text, showing, shows, until
from tui.app import TfmuxApp
from tui.config import Config
from tui.memory import Memory
from tui.screens.dialogs import LeaveDialog, ReceiptScreen
from tui.screens.run_screen import OutcomePanel, RunScreen
from tui.widgets.pane import Pane
from tui.widgets.pane_area import PaneGrid
from tui.widgets.prompt import Prompt
from tui.widgets.task_list import StatusStrip


async def test_panes_show_logs_as_they_come(run: ScriptedRun) -> None:
    """Each task's lines appear in its pane, a last one without newline too, and states and
    figures stand in title, strip and header."""
    async with showing(run, (200, 50)) as (app, pilot):
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


async def test_the_name_of_the_run_stands_first_at_80_columns(run: ScriptedRun) -> None:
    """The name is cut beside what is waited for; figures that stand elsewhere too go before the
    name does."""
    async with showing(run, (80, 24)) as (app, pilot):
        run.change(waiting="ps:0 on tf1:2222", waiting_since=time.time())
        await until(pilot, lambda: "waiting for ps:0 on tf1:2222 — " in screen_text(app)[0])
        assert screen_text(app)[0].startswith(" mnist-")
        run.all_tasks(state=TaskState.RUNNING, step=912_000, loss=0.4512, rate=331.0)
        run.change(state=RunPhase.RUNNING, total_steps=2_000_000)
        await until(pilot, lambda: "step 912,000/2,000,000" in screen_text(app)[0])
        assert screen_text(app)[0].startswith(" mnist-async  running")


async def test_zoom_and_back(run: ScriptedRun) -> None:
    """z shows one pane alone, Escape brings the others back."""
    async with showing(run, (120, 40)) as (app, pilot):
        await until(pilot, lambda: isinstance(app.focused, Pane))
        await pilot.press("2", "z")
        await until(pilot, lambda: len(app.screen.query_one(PaneGrid).panes) == 1)
        assert focused_task(app) == "worker:0"
        await pilot.press("escape")
        await until(pilot, lambda: len(app.screen.query_one(PaneGrid).panes) == 4)
        assert focused_task(app) == "worker:0"


async def test_the_strip_of_tasks_fits_a_terminal_that_gets_narrower(run: ScriptedRun) -> None:
    """Where their names have no room, it shows their letters by job."""
    run.all_tasks(state=TaskState.READY)
    async with showing(run, (120, 40)) as (_, pilot):
        await pilot.press("z")
        await shows(pilot, "worker:2 r")
        await pilot.resize_terminal(30, 40)
        await shows(pilot, "worker rrr")


async def test_scrolling_back_to_the_first_line(run: ScriptedRun) -> None:
    """g reaches the first line of the run; what comes meanwhile is counted and moves nothing;
    G follows again."""
    run.write("worker:0", b"".join(b"line %d\n" % i for i in range(100_000)))
    async with showing(run, (80, 24)) as (app, pilot):
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
        await until(pilot, lambda: focused_task(app) == "worker:5")
        await pilot.press("shift+tab")
        await until(pilot, lambda: focused_task(app) == "worker:4")
        await pilot.press("[")
        await until(pilot, lambda: focused_task(app) == "worker:11")
        await pilot.resize_terminal(200, 50)
        await until(pilot, lambda: len(app.screen.query_one(PaneGrid).panes) == 16)
        assert focused_task(app) == "worker:11"


async def test_q_and_enter_end_no_run(run: ScriptedRun) -> None:
    """The choice that Enter takes is the one that harms nothing: the screen and the run stay."""
    async with showing(run, (80, 24)) as (app, pilot):
        await pilot.press("q")
        await until(pilot, lambda: isinstance(app.screen, LeaveDialog))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, RunScreen))
        assert run.asked == [] and app.is_running


async def test_the_first_press_while_the_rule_ends_a_run_is_no_second_one(run: ScriptedRun) -> None:
    """The grace goes on; then the header offers KILL."""
    run.change(state=RunPhase.KILLING, kill_deadline=time.time() + 1000)
    async with showing(run, (160, 40)) as (app, pilot):
        await shows(pilot, "killing all: TERM sent, KILL in")
        assert not any("again: KILL now" in row for row in screen_text(app))
        await pilot.press("q")
        told = [note.message for note in app._notifications]
        assert told == ["leaving after the receipt; F9 twice: KILL now"]
        await pilot.press("f9")
        assert run.asked == ["kill_all"]
        await shows(pilot, "again: KILL now")
        await pilot.press("f9")
        assert run.asked == ["kill_all", "kill_all force"]


async def test_a_run_that_is_killed_as_soon_as_it_is_shown(run: ScriptedRun) -> None:
    """Its receipt is shown."""
    async with showing(run, (120, 40)) as (app, pilot):
        run.end(Outcome.KILLED, 130)
        await until(pilot, lambda: isinstance(app.screen, ReceiptScreen))


async def test_clocks_go_on_when_the_machines_clock_is_set_back(
    run: ScriptedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would stand still for as long as it was set back."""
    now = time.time
    run.change(state=RunPhase.RUNNING, started=now() - 7200)
    async with showing(run, (120, 40)) as (_, pilot):
        await until(pilot, lambda: "running 2:00:00" not in screen_text(pilot.app)[0])
        await shows(pilot, "running 2:0")
        monkeypatch.setattr(time, "time", lambda: now() - 3600)
        await shows(pilot, "running 1:0")


async def test_ctrl_c_copies_what_the_mouse_has_selected(run: ScriptedRun) -> None:
    """In a receipt, for a message to the administrator of a host."""
    async with showing(run, (120, 40)) as (app, pilot):
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


@pytest.mark.parametrize("key", ["d", "escape", "enter"])
async def test_detach_and_stay(run: ScriptedRun, key: str) -> None:
    """Detaching leaves with 0 and kills nothing; staying changes nothing, and is what Enter takes
    when nothing was chosen."""
    async with showing(run, (80, 24)) as (app, pilot):
        await pilot.press("q")
        await until(pilot, lambda: isinstance(app.screen, LeaveDialog))
        await pilot.press(key)
        await pilot.pause()
        if key != "d":
            await until(pilot, lambda: isinstance(app.screen, RunScreen))
    assert run.asked == (["detach"] if key == "d" else [])
    assert app.return_value == (0 if key == "d" else None)


async def test_a_failure_is_in_sight_on_a_low_terminal(run: ScriptedRun) -> None:
    """The summary of a run that failed by itself takes a third of the terminal at most, however
    long it is, and the pane of the task that failed has the focus and shows its last lines."""
    run.change(state=RunPhase.RUNNING)
    run.all_tasks(state=TaskState.RUNNING)
    run.write("worker:1", b"ValueError: what went wrong\n")
    async with showing(run, (80, 24)) as (app, pilot):
        await until(pilot, lambda: isinstance(app.focused, Pane))
        assert focused_task(app) == "worker:0"
        others = (TaskId("worker", 0), TaskId("worker", 2))
        failure = Failure(TaskId("worker", 1), "tf3", "exit 1", 1000.0, others, ("one", "two"))
        run.task("worker:1", state=TaskState.FAILED, exit_code=1, ended=1000.0)
        run.end(Outcome.FAILED, 1, failure=failure)
        await shows(pilot, "no process is left")
        summary = app.screen.query_one(OutcomePanel)
        await until(pilot, lambda: 0 < summary.outer_size.height <= 8)
        await until(pilot, lambda: focused_task(app) == "worker:1")
        await shows(pilot, "ValueError: what went wrong")
        assert len(app.screen.query_one(PaneGrid).panes) == 4
        await pilot.press("f9")
        await until(pilot, lambda: isinstance(app.screen, ReceiptScreen))
        await shows(pilot, "no process is left, 4 hosts confirmed")
        await pilot.press("escape", "escape")
        await until(pilot, lambda: not summary.display)
        assert focused_task(app) == "worker:1"


@pytest.mark.parametrize(("size", "lines"), [((80, 24), 4), ((120, 40), 7), ((200, 50), 10)])
async def test_the_ps_has_a_short_row_above_the_workers(
    run: ScriptedRun, size: tuple[int, int], lines: int
) -> None:
    """Given a ps and three workers, when the run opens, then the ps has a quarter of the height and
    the whole width, above the workers; when the run fails, no pane moves to another row."""
    run.all_tasks(state=TaskState.RUNNING, attempt=1)
    run.change(state=RunPhase.RUNNING)
    async with showing(run, size) as (app, pilot):
        grid = app.screen.query_one(PaneGrid)
        await until(pilot, lambda: len(grid.panes) == 4 and grid.panes[0].size.height > 0)
        await until(pilot, lambda: grid.panes[0].outer_size.width == size[0])
        assert grid.panes[0].size.height == lines
        rows = [pane.region.y for pane in grid.panes]
        assert rows[0] < rows[1] and all(pane.size.height > lines for pane in grid.panes[1:])
        columns = [pane.region.x for pane in grid.panes]
        failure = Failure(TaskId("worker", 1), "tf3", "exit 1", 1000.0, (), ("one", "two"))
        run.end(Outcome.FAILED, 1, failure=failure)
        await shows(pilot, "no process is left")
        assert [pane.region.x for pane in grid.panes] == columns
        assert [str(pane.view.task) for pane in grid.panes if pane.view] == [
            *("ps:0", "worker:0", "worker:1", "worker:2")
        ]


async def test_the_first_failure_is_the_headline(run: ScriptedRun) -> None:
    """A run that failed by itself says who was first, with its last lines, and q leaves."""
    run.all_tasks(state=TaskState.FAILED, exit_code=1, ended=1004.1)
    async with showing(run, (120, 40)) as (app, pilot):
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
        await shows(pilot, "no process is left")
        await pilot.press("q")
    assert app.return_value == 1


async def test_closing_between_two_frames_is_silent(
    run: ScriptedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the app shuts down widgets go one by one, and the clock draws on none of them. Here
    it draws everything on each turn of the loop, and so would in each such moment."""
    frame, closing = RunScreen._frame, []

    def draw_all(screen: RunScreen) -> bool:
        closing.append(not screen.app.is_running)
        screen.show_run(time.time())
        return frame(screen)

    monkeypatch.setattr("tui.screens.run_screen.FRAME", 0)
    monkeypatch.setattr(RunScreen, "_frame", draw_all)
    async with showing(run, (200, 50)) as (app, pilot):
        await until(pilot, lambda: isinstance(app.focused, Pane))
    assert closing and not any(closing)


async def test_the_prompt_is_one_row_above_the_footer(run: ScriptedRun) -> None:
    """The prompt takes one row from the panes, and gives the keyboard back to the focused one."""
    async with showing(run, (80, 24)) as (app, pilot):
        await until(pilot, lambda: isinstance(app.focused, Pane))
        await pilot.press("2", "slash", *"step")
        await shows(pilot, " / step")
        assert screen_text(app)[-2].startswith(" / step")
        assert app.screen.query_one(Prompt).region.height == 1
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.focused, Pane))
        assert focused_task(app) == "worker:0"


async def test_a_run_that_ends_before_its_screen_is_open(
    run: ScriptedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its screen was made while it began."""
    app, screen = TfmuxApp(run, config=Config()), RunScreen(run, Memory())
    monkeypatch.setattr(app, "get_default_screen", lambda: screen)
    run.end(Outcome.SUCCESS, 0)
    async with app.run_test(size=(100, 30)) as pilot:
        await shows(pilot, "✓ success")


@pytest.mark.parametrize("size", [(80, 24), (200, 50)])
async def test_titles_fit_their_panes_from_the_first_frame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]
) -> None:
    """Given 24 tasks, when their panes appear and get other sizes, then no frame shows a title
    that was cut for another size, such as `w…` in a pane of forty columns."""
    titles: set[str] = set()
    render = StylesCache.render_line

    def spy(cache: StylesCache, styles: Any, y: int, *rest: Any) -> Strip:
        strip = render(cache, styles, y, *rest)
        if y == 0:
            titles.add(strip.text)
        return strip

    monkeypatch.setattr(StylesCache, "render_line", spy)
    run = ScriptedRun(tmp_path, workers=23, hosts=8)
    run.all_tasks(state=TaskState.RUNNING, attempt=1)
    async with showing(run, size) as (app, pilot):
        await shows(pilot, "worker:0 @tf2  running")
        await pilot.press("z")
        await until(pilot, lambda: run_screen(app).area.pane_layout.zoomed)
        await pilot.press("z")
        await shows(pilot, "worker:1 @tf3  running")
        assert any("worker:1 @tf3" in title for title in titles)
        assert not [title for title in titles if re.search(r"[ ▸](w|ps)[a-z:]{0,5}…", title)]
        await pilot.press("m")
        await shows(pilot, "all logs, 24 of 24 tasks")
        await pilot.press("m")
        await shows(pilot, "worker:1 @tf3  running")
        small = [title for title in titles if len(title) <= 60]
        assert small and not any("all logs" in title for title in small)
    run.logs.close()
