"""The run screen: panes, the page of a task, tables, and any size of terminal."""

from __future__ import annotations

import json
import random
import re
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from rich.text import Text
from textual._styles_cache import StylesCache
from textual.app import App, ComposeResult
from textual.strip import Strip

from launcher.ids import TaskId
from launcher.paths import state_home
from launcher.run.snapshot import Failure, HostReceipt, Receipt, Survivor
from launcher.run.states import Outcome, RunPhase, TaskState
from launcher.store.runs import RunFolder
from tests.support.budgets import budget
from tests.support.every_screen import EVERY, happens, opened
from tests.support.fakes import ScriptedRun
from tests.support.homes import home
from tests.support.patience import PATIENCE
from tests.support.patience import until as patiently
from tests.support.screens import focused_task, run_screen, screen_text, showing, shows, until
from tui import demos, extras
from tui.app import TfmuxApp
from tui.catalog import Catalog
from tui.config import Config
from tui.extras import Extra
from tui.memory import Memory
from tui.screens.dialogs import LeaveDialog, ReceiptScreen
from tui.screens.home import HomeScreen
from tui.screens.run_screen import OutcomePanel, RunScreen
from tui.small_terminal import LEAST
from tui.tables import TableRow
from tui.widgets.pane import Pane
from tui.widgets.pane_area import PaneGrid
from tui.widgets.prompt import Prompt
from tui.widgets.table import Table
from tui.widgets.task_list import StatusStrip

# The run screen, driven by its keys.


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


# A task's page: its address in the title, opened with a key.

URL = "http://127.0.0.1:6006/"


async def test_o_opens_the_page_in_a_browser(
    run: ScriptedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is a graphic screen; from any pane where there is only one page; a task
    without a page says so where there are several, and opens nothing."""
    monkeypatch.setenv("DISPLAY", ":0")
    opened: list[str] = []
    app = TfmuxApp(run)
    monkeypatch.setattr(app, "open_url", opened.append)
    async with app.run_test(size=(200, 50)) as pilot:
        run.all_tasks(state=TaskState.READY)
        run.task("worker:0", url=URL)
        await shows(pilot, URL)
        await until(pilot, lambda: isinstance(app.focused, Pane))
        await pilot.press("1", "o")
        await until(pilot, lambda: opened == [URL])
        run.task("worker:1", url=f"{URL}other")
        await shows(pilot, f"{URL}other")
        await pilot.press("o")
        await until(pilot, lambda: "nothing to open: ps:0" in str([*app._notifications]))
        await pilot.press("tab", "o")
        await until(pilot, lambda: opened == [URL, URL])


async def test_without_a_browser_the_address_is_copied(
    run: ScriptedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over SSH a browser would be a text browser, across this screen: the clipboard gets it."""
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    async with showing(run, (200, 50)) as (app, pilot):
        run.task("ps:0", state=TaskState.READY, url=URL)
        await shows(pilot, URL)
        await until(pilot, lambda: isinstance(app.focused, Pane))
        await pilot.press("o")
        await until(pilot, lambda: app.clipboard == URL)


# The table of the screens: its widths and heights are those of its rows, in each frame.

TITLES = ("state", "note")


class Shown(App[int]):
    """A table, and nothing else."""

    def __init__(self, table: Table) -> None:
        super().__init__()
        self.table = table

    def compose(self) -> ComposeResult:
        yield self.table


def row(key: str, state: str, note: str) -> TableRow:
    return TableRow(key, [Text(state), Text(note)])


def lines(table: Table) -> list[str]:
    """Its rows as a frame that is drawn now would show them, the titles first."""
    return [table.render_line(y).text.rstrip() for y in range(table.size.height)]


async def test_the_next_frame_has_the_widths_of_the_new_rows() -> None:
    """Whether rows come, go or change; Textual measures only when nothing else is to be done."""
    async with Shown(Table("t")).run_test(size=(40, 8)) as pilot:
        table = pilot.app.query_one(Table)
        await until(pilot, lambda: table.size.height > 0)
        table.show(TITLES, [row("a", "✗ failed", "worker:1 @tf3 exit 1")])
        assert lines(table)[1] == " ✗ failed  worker:1 @tf3 exit 1"
        table.show(TITLES, [row("a", "? unreachable", "no answer from tf3")])
        assert lines(table)[:2] == [" state          note", " ? unreachable  no answer from tf3"]
        table.show(TITLES, [row("a", "ended", "–"), row("b", "✗ failed", "worker:1 @tf3 exit 1")])
        assert lines(table)[2] == " ✗ failed  worker:1 @tf3 exit 1"
        table.show(TITLES, [row("a", "ended", "all of it")])
        assert lines(table)[1] == " ended  all of it"


async def test_the_first_frame_has_the_width_of_the_screen() -> None:
    """Given rows that are shown before the table has been laid out, then the column that takes the
    rest of the width has it at once."""
    widths: list[int] = []

    class Early(Shown):
        def on_mount(self) -> None:
            self.table.show(TITLES, [row("a", "ended", "a note")])
            widths.append(self.table.ordered_columns[1].width)

    async with Early(Table("t", fills=1)).run_test(size=(80, 8)) as pilot:
        await until(pilot, lambda: pilot.app.query_one(Table).size.height > 0)
        assert widths[0] > 60


async def test_a_click_on_a_title_orders_the_rows() -> None:
    """First the smallest on top, then the largest, then as they were; the title says which."""
    words = ["b", "c", "a"]

    def shown() -> None:
        ordered = table.ordered(words, [str])
        table.show(TITLES, [row(word, word, "–") for word in ordered])

    class Ordering(Shown):
        def on_table_ordered(self) -> None:
            shown()

    table = Table("t")
    async with Ordering(table).run_test(size=(40, 8)) as pilot:
        await until(pilot, lambda: table.size.height > 0)
        shown()
        seen = []
        for _ in range(3):
            before = lines(table)
            await pilot.click(Table, offset=(3, 0))
            await until(pilot, lambda: lines(table) != before)  # noqa: B023
            seen.append([line.split("note")[0].strip(" –") for line in lines(table)[:4]])
        assert seen == [
            ["state ▴", "a", "b", "c"],
            ["state ▾", "c", "b", "a"],
            ["state", "b", "c", "a"],
        ]


async def test_a_text_that_has_no_room_ends_in_an_ellipsis() -> None:
    """Its row stays one line, also when the text grows; more room shows more of it."""
    async with Shown(Table("t", fills=1)).run_test(size=(40, 8)) as pilot:
        table = pilot.app.query_one(Table)
        await until(pilot, lambda: table.size.height > 0)
        table.show(TITLES, [row("a", "up", "well"), row("b", "up", "last")])
        await until(pilot, lambda: lines(table)[2].endswith("last"))
        grown = "the gateway closes a connection that is new"
        table.show(TITLES, [row("a", "up", grown), row("b", "up", "last")])
        await until(pilot, lambda: lines(table)[1] == f" up     {grown[:30]}…")
        assert lines(table)[2].endswith("last")
        await pilot.resize_terminal(60, 8)
        await until(pilot, lambda: lines(table)[1] == f" up     {grown}")


async def test_a_table_of_a_thousand_rows_makes_those_in_sight() -> None:
    """Others are made when one scrolls to them, and are as wide as they need to be."""
    made = set()

    def lazy(number: int) -> TableRow:
        def cells() -> list[Text]:
            made.add(number)
            return [Text("x" * (4 if number < 500 else 9)), Text(f"row {number}")]

        return TableRow(str(number), cells)

    async with Shown(Table("t")).run_test(size=(40, 8)) as pilot:
        table = pilot.app.query_one(Table)
        await until(pilot, lambda: table.size.height > 0)
        table.show(TITLES, [lazy(number) for number in range(1000)])
        assert lines(table)[1] == " xxxx   row 0"
        table.focus()
        await pilot.press("G")
        await until(pilot, lambda: lines(table)[-1] == " xxxxxxxxx  row 999")
        assert len(made) < 100


# Every screen at any size of the terminal, also while it works: none fails.

WIDEST, HIGHEST = 400, 120


def sizes(name: str, count: int) -> list[tuple[int, int]]:
    """Sizes by lot, the same for a name in each run: most of them small, where rooms end."""
    lot = random.Random(name)
    near = [(lot.randint(1, 2 * LEAST.width), lot.randint(1, 3 * LEAST.height)) for _ in range(3)]
    more = [
        (lot.randint(1, lot.choice((10, 40, WIDEST))), lot.randint(1, lot.choice((6, 20, HIGHEST))))
        for _ in range(count - 3)
    ]
    return [*near, *more]


@pytest.mark.parametrize("name", EVERY)
async def test_no_size_of_the_terminal_ends_the_app(name: str, tmp_path: Path) -> None:
    """Given a screen that is opened in a small terminal, when that gets other sizes while the run
    and messages go on, then the app goes on, too, and what is drawn has the terminal's size."""
    first, *others = sizes(name, budget(6, 60))
    async with opened(name, tmp_path, first) as (pilot, run):
        app = pilot.app
        assert isinstance(app, TfmuxApp)
        for number, size in enumerate(others):
            happens(run, number)
            if number % 4 == 0:
                app.notify("a message that needs more than one row of a small terminal")
            await pilot.resize_terminal(*size)
            assert app._exception is None, (name, size)
            assert app.is_too_small is (size[0] < LEAST.width or size[1] < LEAST.height)
            if app.is_too_small:
                assert len(app.line) <= size[0]
            else:
                assert tuple(app.size) == size == tuple(app.screen.size)


@pytest.mark.parametrize("size", [(1, 1), (5, 3), (15, 5), (16, 4), LEAST], ids=str)
async def test_a_terminal_without_room_shows_one_line(
    size: tuple[int, int], tmp_path: Path
) -> None:
    """Given a run in a terminal in which no screen has room, then there is one line with the state
    of the run; F9 kills all the same, and the screen is back in a larger terminal."""
    async with opened("grid", tmp_path, size) as (pilot, run):
        app = pilot.app
        assert isinstance(app, TfmuxApp)
        await pilot.pause()
        assert app.is_too_small is (size != LEAST)
        assert app.line == "running; F9 kills all; enlarge the terminal"[: size[0]]
        await pilot.press("f9")
        assert run.asked == ["kill_all"]
        await pilot.resize_terminal(80, 24)
        assert not app.is_too_small
        assert any("killing all" in row for row in screen_text(app))


# Choices on a screen hold on the next one.


def stored(name: str) -> object:
    """A choice in the file; None while it is not there."""
    try:
        return json.loads((state_home() / "screens.json").read_text()).get(name)
    except FileNotFoundError:
        return None


def is_stored(name: str, value: object) -> bool:
    """Whether a choice is in the file."""
    return stored(name) == value


async def test_theme_layout_and_lines_are_kept(run: ScriptedRun) -> None:
    """Given a screen on which a person has chosen theme, layout, wrap and time stamps, when the
    next one opens, then it looks the same."""
    run.write("ps:0", b"a-line\n")
    app = TfmuxApp(run, config=Config())
    async with app.run_test(size=(120, 40)) as pilot:
        await shows(pilot, "a-line")
        app.theme = "nord"
        await pilot.press(*["space"] * 3, "t", "w")
        await shows(pilot, "all logs")
        for name, value in (("theme", "nord"), ("layout", "merged log"), ("wrap", False)):
            await patiently(partial(is_stored, name, value), name)
        await patiently(lambda: stored("stamps") == "time of day", "time stamps")
    app = TfmuxApp(run, config=Config())
    async with app.run_test(size=(120, 40)) as pilot:
        await shows(pilot, "all logs")
        assert app.theme == "nord"
        await until(pilot, lambda: any(":" in row.split("a-line")[0] for row in log_lines(app)))


def log_lines(app: TfmuxApp) -> list[str]:
    """Rows with the line of the log."""
    return [row for row in screen_text(app) if "a-line" in row]


async def test_a_theme_of_the_settings_comes_first(run: ScriptedRun) -> None:
    """Given a remembered theme and another one in config.toml, then that of config.toml is
    shown."""
    state_home().mkdir(parents=True)
    (state_home() / "screens.json").write_text('{"theme": "nord"}')
    app = TfmuxApp(run, config=Config(theme="textual-light"))
    async with app.run_test():
        assert app.theme == "textual-light"


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"theme": 3, "layout": "spiral", "wrap": "yes"}', "\udcff" * 9]
)
async def test_a_broken_memory_is_no_reason_to_stop(run: ScriptedRun, text: str) -> None:
    """Given a file that was cut, or that another version has written, then the screen opens as it
    does without."""
    run.write("ps:0", b"a-line\n")
    state_home().mkdir(parents=True)
    (state_home() / "screens.json").write_bytes(text.encode(errors="surrogateescape"))
    app = TfmuxApp(run, config=Config())
    async with app.run_test(size=(120, 40)) as pilot:
        await shows(pilot, "a-line")
        assert app.theme == "textual-dark"


async def test_a_theme_of_the_settings_is_no_choice(run: ScriptedRun) -> None:
    """Given a theme in config.toml, when a screen opens and closes, then nothing is remembered: a
    person has chosen nothing."""
    app = TfmuxApp(run, config=Config(theme="nord"))
    async with app.run_test() as pilot:
        await until(pilot, lambda: app.theme == "nord")
        await pilot.press("w")  # a choice, behind which the theme's would have been kept
        await patiently(partial(is_stored, "wrap", False), "wrap")
    assert stored("theme") == ""


# Demos on the home screen.


def test_two_lookups_at_once_find_each_demo_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lookup that was cancelled goes on in its thread beside the next one."""
    real, both = demos.about, threading.Barrier(2, timeout=PATIENCE)

    def slowly(file: Path) -> str:
        if not both.broken and both.n_waiting < 2 and file.stem == demos.names()[0]:
            both.wait()
        return real(file)

    monkeypatch.setattr(demos, "about", slowly)
    found = Catalog()
    threads = [threading.Thread(target=found.demos) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert [entry.name for entry in found.demos()] == list(demos.names())


async def test_a_demo_without_the_trainer_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The sentence of the command line; nothing is launched."""
    monkeypatch.setitem(extras.MODULES, Extra.TRAINER, ("tfmux_no_such_module",))
    async with home() as pilot:
        await pilot.press("end", "l")
        await shows(pilot, "pip install 'tfmux[trainer]'")
        assert isinstance(pilot.app.screen, HomeScreen) and not RunFolder.all()
