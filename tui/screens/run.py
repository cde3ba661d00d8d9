"""The run screen: what people look at for hours."""

from __future__ import annotations

import asyncio
import gc
import time
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal

from launcher.control import RunControl
from launcher.ids import TaskId
from launcher.snapshot import Snapshot
from launcher.states import Outcome, RunState
from tui.board import Board
from tui.layout import Arrangement, Box
from tui.log.view import LogView
from tui.screens.log_actions import LogActions
from tui.screens.task_actions import TaskActions
from tui.stall import stalled_for
from tui.widgets.footer import KeyFooter
from tui.widgets.header import RunHeader
from tui.widgets.log_pane import LogPane
from tui.widgets.outcome_panel import OutcomePanel
from tui.widgets.pane_grid import PaneGrid
from tui.widgets.prompt import Prompt
from tui.widgets.status_strip import StatusStrip
from tui.widgets.task_list import TaskList
from tui.widgets.titles import TitlePart, sparkline, task_title

FRAME = 1 / 30
QUIET_FRAME = 1 / 10
QUIET_AFTER = 30
"""Frames without news after which the clock slows down."""
MAX_REST = 0.25
MERGED_LIST_FROM = 110
"""Cells of width from which on the merged log has the list of tasks beside it."""


class RunScreen(LogActions, TaskActions):
    """Header, strip, panes, footer. One clock drives all of them: it takes up the newest
    snapshot and asks each visible pane whether its log has grown."""

    AUTO_FOCUS = ""  # the prompt's input would take the first keys
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "next(1)", "Next pane", id="pane.next"),
        Binding("shift+tab", "next(-1)", "Previous pane", id="pane.previous"),
        Binding("left", "go('left')", "Pane to the left", id="pane.left"),
        Binding("right", "go('right')", "Pane to the right", id="pane.right"),
        Binding("up", "go('up')", "Pane above", id="pane.up"),
        Binding("down", "go('down')", "Pane below", id="pane.down"),
        *(Binding(str(n), f"nth({n})", f"Pane {n}", id=f"pane.{n}") for n in range(1, 10)),
        Binding("apostrophe", "name", "Go to a task by name", id="pane.name"),
        Binding("z,enter", "zoom", "Zoom the pane", id="zoom"),
        Binding("escape", "back", "Back", id="back"),
        Binding("space", "arrange", "Next layout", id="layout.next"),
        Binding("m", "merged", "Merged log", id="layout.merged"),
        Binding("o", "open", "Open its page; merged log: this task on or off", id="task.open"),
        Binding("p", "pin", "Pin to the attention page", id="pin"),
        Binding("left_square_bracket", "page(-1)", "Previous page", id="page.previous"),
        Binding("right_square_bracket", "page(1)", "Next page", id="page.next"),
        Binding("j", "scroll(1)", "Line down", id="scroll.down"),
        Binding("k", "scroll(-1)", "Line up", id="scroll.up"),
        Binding("pagedown", "scroll_page(1)", "Page down", id="scroll.page_down"),
        Binding("pageup", "scroll_page(-1)", "Page up", id="scroll.page_up"),
        Binding("ctrl+d", "scroll_page(0.5)", "Half a page down", id="scroll.half_down"),
        Binding("ctrl+u", "scroll_page(-0.5)", "Half a page up", id="scroll.half_up"),
        Binding("g,home", "first_line", "First line of the run", id="scroll.home"),
        Binding("G,end", "follow", "Follow the end", id="scroll.follow"),
        Binding("slash", "search", "Search the whole log", id="search"),
        Binding("n", "hit(1)", "Next hit", id="search.next"),
        Binding("N", "hit(-1)", "Previous hit", id="search.previous"),
        Binding("ampersand", "filter", "Filter lines (!text excludes)", id="filter"),
        Binding("e", "error(1)", "Next error in any pane", id="error.next"),
        Binding("E", "error(-1)", "Previous error in any pane", id="error.previous"),
        Binding("exclamation_mark", "first_failure", "First failure", id="failure"),
        Binding("t", "stamps", "Timestamps", id="log.stamps"),
        Binding("w", "wrap", "Wrap long lines", id="log.wrap"),
        Binding("a", "prefix", "Hide TensorFlow's log prefix", id="log.prefix"),
        Binding("v", "select", "Select lines", id="log.select"),
        Binding("y", "copy", "Copy", id="log.copy"),
        Binding("ctrl+s", "save", "Save lines to a file", id="log.save"),
        Binding("r", "restart(False)", "Restart the task", id="task.restart"),
        Binding("R", "restart(True)", "Restart the task at once (KILL)", id="task.restart_hard"),
        Binding("x", "signal('TERM')", "End the task (TERM)", id="task.term"),
        Binding("X", "signal('KILL')", "Kill the task (KILL)", id="task.kill"),
    ]

    def __init__(self, control: RunControl) -> None:
        super().__init__()
        self.control = control
        self.snapshot = control.snapshot()
        self.board = Board()
        self.board.update(self.snapshot)
        self._latest = self.snapshot
        self._views: dict[TaskId | None, LogView] = {}
        self._off: set[TaskId] = set()
        """Tasks switched off in the merged log."""
        self._stalled: dict[TaskId, float] = {}
        self._sparks: dict[TaskId, str] = {}
        self._titles: dict[TaskId | None, tuple[TitlePart, ...]] = {}
        self._placed: object = None
        self._sizes: object = None
        self._second = 0.0
        self._rest_until = 0.0
        self._notes = len(self.snapshot.notes)

    def compose(self) -> ComposeResult:
        """From top to bottom."""
        yield RunHeader()
        yield StatusStrip()
        with Horizontal():
            yield TaskList()
            yield PaneGrid()
        yield OutcomePanel()
        yield Prompt()
        yield KeyFooter()

    def on_mount(self) -> None:
        self._grid = self.query_one(PaneGrid)
        self._area = self.query_one(Horizontal)
        self._list = self.query_one(TaskList)
        self._list.display = False
        self.query_one(OutcomePanel).display = False
        self.control.subscribe(self._hand_over)
        self.run_worker(self._clock(), group="clock")
        # What is mounted stays: the collector need not walk it again and again (its pauses were
        # the longest that a key waited for).
        self.call_after_refresh(gc.freeze)
        if self.snapshot.state is RunState.ENDED:
            self.query_one(OutcomePanel).show(self.snapshot)

    def _hand_over(self, snapshot: Snapshot) -> None:
        """Called on the launcher's thread: leaves the snapshot for the next frame."""
        self._latest = snapshot

    # the clock

    async def _clock(self) -> None:
        """Thirty frames a second while anything happens, ten in quiet hours."""
        quiet = 0
        while True:
            quiet = 0 if self._frame() else quiet + 1
            await asyncio.sleep(FRAME if quiet < QUIET_AFTER else QUIET_FRAME)

    def _frame(self) -> bool:
        """Shows what is new; False when nothing was."""
        now = time.time()
        changed = self._latest is not self.snapshot
        if changed:
            self._take(self._latest)
            self._show_states(now)
        elif now - self._second >= 1.0:
            self._second = now
            self._look_at_series(now)
            self._show_states(now)
        if self._sizes != (self._area.size, self._grid.size):
            self._place()
        if time.monotonic() < self._rest_until:
            return changed
        if self.app.screen is self or self.app.screen.is_modal:
            grown = [pane.poll() for pane in self._grid.panes]
            self.follow_searches()
            self._show_titles()
            if any(grown):
                changed = True
                self.call_after_refresh(self._painted, time.monotonic())
        return changed

    def _painted(self, began: float) -> None:
        """A frame that took long, on a busy machine or a large screen, is followed by as long
        a rest: keys come first, however fast logs grow."""
        now = time.monotonic()
        self._rest_until = now + min(MAX_REST, now - began)

    def _take(self, snapshot: Snapshot) -> None:
        before, self.snapshot = self.snapshot, snapshot
        self.board.update(snapshot, self._stalled)
        self._place()
        for note in snapshot.notes[self._notes :]:
            self.notify(note, timeout=8)
        self._notes = len(snapshot.notes)
        by_itself = snapshot.outcome not in (Outcome.KILLED, Outcome.TERMINATED)
        if snapshot.state is RunState.ENDED and before.state is not RunState.ENDED and by_itself:
            self.query_one(OutcomePanel).show(snapshot)

    def _look_at_series(self, now: float) -> None:
        """Once a second: who has stalled, and the sparklines of the panes in sight."""
        self._stalled = {}
        for task in self.snapshot.tasks:
            if task.state.live and task.step is not None:
                late = stalled_for(self.control.series(task.id).points, now)
                if late is not None:
                    self._stalled[task.id] = late
        for pane in self._grid.panes:
            if pane.view and pane.view.task:
                points = self.control.series(pane.view.task).points
                losses = [p.values["loss"] for p in points if "loss" in p.values]
                self._sparks[pane.view.task] = sparkline(losses)

    def _show_states(self, now: float) -> None:
        self.query_one(RunHeader).show(self.snapshot, len(self._stalled))
        self._make_titles(now)
        self._show_focus(now)
        self.query_one(KeyFooter).show(self._keys())

    def _show_focus(self, now: float) -> None:
        self.query_one(StatusStrip).show(self.snapshot, self.board.focused)
        if self._list.display:
            off = self._off if self.board.shown is Arrangement.MERGED else None
            self._list.show(self.snapshot, self.board.focused, now, off)

    def _make_titles(self, now: float) -> None:
        """Titles of the panes in sight; the sparklines in them are those of the last second."""
        states = {task.id: task for task in self.snapshot.tasks}
        self._titles.clear()
        for pane in self._grid.panes:
            name = pane.view.task if pane.view else None
            if name is None:
                count = len(self.merged_tasks())
                text = f"all logs, {count} of {len(states)} tasks, by time of receipt"
                self._titles[None] = (TitlePart(0, text, "name"),)
            elif name in states:
                self._titles[name] = task_title(
                    states[name],
                    now,
                    self._sparks.get(name, ""),
                    self._stalled.get(name),
                    name in self.board.pinned,
                )

    def _show_titles(self) -> None:
        for pane in self._grid.panes:
            if pane.view and pane.view.task in self._titles:
                pane.set_title(self._titles[pane.view.task], self.note_of(pane.view))

    def _keys(self) -> list[tuple[str, str]]:
        """The footer's keys, the most important first."""
        ended = self.snapshot.state is RunState.ENDED
        keys = [("F9", "receipt" if ended else "kill all"), ("q", "leave"), ("?", "help")]
        if self.board.shown is Arrangement.MERGED:
            keys += [("o", "task on/off")]
        keys += [("Tab", "next"), ("z", "zoom"), ("Space", "layout"), ("/", "search")]
        if len(self.board.pages()) > 1:
            keys += [("[ ]", f"page {self.board.page + 1}/{len(self.board.pages())}")]
        keys += [("&", "filter"), ("e", "errors"), ("G", "follow"), ("m", "merged")]
        keys += [("M", "metrics"), ("H", "hosts"), ("y", "copy"), ("'", "go to")]
        return keys

    # panes

    @property
    def pane(self) -> LogPane | None:
        """The pane that has the focus."""
        if self.board.shown is Arrangement.MERGED:
            return next(iter(self._grid.panes), None)
        wanted = self.board.focused
        return next((p for p in self._grid.panes if p.view and p.view.task == wanted), None)

    def focused_task(self) -> TaskId | None:
        """The task that has the focus."""
        return self.board.focused

    def all_views(self) -> list[LogView]:
        """Every view that a pane has shown."""
        return list(self._views.values())

    def merged_tasks(self) -> list[TaskId]:
        """The tasks that are switched on in the merged log."""
        return [task.id for task in self.snapshot.tasks if task.id not in self._off]

    def show_line(self, task: TaskId, line: int) -> None:
        """Brings a line of a task's log into sight, whatever the pane showed before."""
        if self.board.shown is Arrangement.MERGED:
            self.board.arrangement = Arrangement.GRID
        self._focus(task)
        pane = self.pane
        if pane is None or pane.view is None:
            return
        if pane.view.lines.locate(task, line) is None:
            self.set_filter(pane.view, "")
        pane.view.lines.refresh()
        pane.view.cursor = line
        pane.go_to(line)
        pane.redraw()

    def _view(self, task: TaskId | None) -> LogView:
        if task not in self._views:
            colours = {view.id: i for i, view in enumerate(self.snapshot.tasks)}
            view = LogView(task, self.lines_of(task), self.options, colours=colours)
            self._views[task] = view
        return self._views[task]

    def _place(self) -> None:
        """Puts views into panes, when anything about their places has changed."""
        self._sizes = (self._area.size, self._grid.size)
        if not self._area.size or not self._grid.size:
            return
        # The whole area decides on pages: the list beside a pane must not, or it would keep
        # itself alive.
        self.board.width, self.board.height = self._area.size
        shown = self.board.shown
        merged = shown is Arrangement.MERGED
        wide = self.size.width >= MERGED_LIST_FROM
        self._list.display = not self.board.zoomed and (
            shown is Arrangement.LIST or (merged and wide)
        )
        places: list[tuple[TaskId | None, Box]] = list(self.board.place())
        if merged or len(places) == 1:  # one pane has what the list leaves
            task = None if merged else places[0][0]
            places = [(task, Box(0, 0, *self._grid.size))]
        if places == self._placed:
            return
        self._placed = places
        panes = self._grid.place([box for _, box in places])
        for (task, _), pane in zip(places, panes, strict=True):
            pane.show(self._view(task))
        now = time.time()
        self._make_titles(now)
        self._show_titles()
        self._show_focus(now)
        self._focus_pane()

    def _focus_pane(self) -> None:
        pane = self.pane
        if pane is None and self._grid.panes and self._grid.panes[0].view:
            pane = self._grid.panes[0]
            self.board.focused = self._grid.panes[0].view.task
        if pane and not pane.has_focus and not self.query_one(Prompt).display:
            pane.focus(scroll_visible=False)

    def _focus(self, task: TaskId | None) -> None:
        if task is not None:
            self.board.focus(task)
        self._refocus()

    def _refocus(self) -> None:
        self._place()
        self._focus_pane()
        self._show_focus(time.time())

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """A click on a pane gives it the focus."""
        if isinstance(event.widget, LogPane) and event.widget.view and event.widget.view.task:
            self.board.focused = event.widget.view.task
            self._show_focus(time.time())

    @on(StatusStrip.Clicked)
    @on(TaskList.Clicked)
    def _task_clicked(self, event: StatusStrip.Clicked | TaskList.Clicked) -> None:
        self._focus(event.task)

    @on(LogPane.Chosen)
    def _pane_chosen(self) -> None:
        self.action_zoom()

    @on(LogPane.Marked)
    def _lines_marked(self) -> None:
        self.notify("y copies, Ctrl-S saves, Esc leaves", timeout=3)

    @on(Prompt.Answered)
    def _name_answered(self, event: Prompt.Answered) -> None:
        if event.purpose == "name" and event.text:
            task = self.board.named(event.text)
            if task is None:
                self.notify(f"no task is called {event.text!r}", severity="warning", timeout=3)
            self._focus(task)

    # actions: focus and layout

    def action_next(self, by: int) -> None:
        """The next or previous task, over pages."""
        self.board.step(by)
        self._refocus()

    def action_nth(self, number: int) -> None:
        """The nth pane of the page."""
        if number <= len(self._grid.panes) and (view := self._grid.panes[number - 1].view):
            self._focus(view.task)

    def action_name(self) -> None:
        """Asks for a task's name."""
        self.query_one(Prompt).ask("name", "task (w1, worker:1, a host)", "")

    def action_go(self, direction: str) -> None:
        """The nearest pane in a direction; in a list, the task above or below."""
        if self.board.shown in (Arrangement.LIST, Arrangement.MERGED) or self.board.zoomed:
            self.action_next(1 if direction in ("down", "right") else -1)
            return
        here = self.pane
        if here is None:
            return
        dx, dy = {"left": (-1, 0), "right": (1, 0), "up": (0, -1), "down": (0, 1)}[direction]
        x, y = here.region.center
        best: tuple[float, TaskId | None] | None = None
        for pane in self._grid.panes:
            px, py = pane.region.center
            ahead = (px - x) * dx + (py - y) * dy
            aside = abs((px - x) * dy) + abs((py - y) * dx)
            if pane is here or pane.view is None or ahead <= 0:
                continue
            distance = ahead + 3 * aside
            if best is None or distance < best[0]:
                best = (distance, pane.view.task)
        if best:
            self._focus(best[1])

    def action_zoom(self) -> None:
        """The focused pane alone, and back."""
        self.board.zoomed = not self.board.zoomed
        self._refocus()

    def action_back(self) -> None:
        """Out of whatever was entered last: a choice of lines, a search, the zoom."""
        pane = self.pane
        if pane and pane.view and pane.view.selection:
            pane.view.selection = None
            pane.redraw()
        elif self.stop_search():
            pass
        elif self.board.zoomed:
            self.action_zoom()
        elif self.query_one(OutcomePanel).display:
            self.query_one(OutcomePanel).display = False
        elif pane and pane.view and pane.view.cursor is not None:
            pane.view.cursor = None
            pane.redraw()

    def _arrange(self, arrangement: Arrangement) -> None:
        self.board.zoomed = False
        self.board.arrangement = arrangement
        self._refocus()
        self.notify(f"layout: {arrangement}", timeout=1.5)

    def action_arrange(self) -> None:
        """The next layout."""
        order = list(Arrangement)
        self._arrange(order[(order.index(self.board.shown) + 1) % len(order)])

    def action_merged(self) -> None:
        """The merged log, and back to the panes."""
        merged = self.board.shown is Arrangement.MERGED
        self._arrange(Arrangement.GRID if merged else Arrangement.MERGED)

    def action_open(self) -> None:
        """Switches the focused task on or off in the merged log; elsewhere opens its page."""
        if self.board.shown is not Arrangement.MERGED:
            self.open_page()
        elif self.board.focused:
            self._off ^= {self.board.focused}
            view = self._view(None)
            self.set_filter(view, self._filters.get(None, ""))
            if self.pane:
                self.pane.redraw()
            self._show_focus(time.time())

    def action_pin(self) -> None:
        """Pins the focused task to the attention page, or unpins it."""
        task = self.board.focused
        if task is None:
            return
        if task in self.board.pinned:
            self.board.pinned.remove(task)
        else:
            self.board.pinned.append(task)
        self.board.update(self.snapshot, self._stalled)

    def action_page(self, by: int) -> None:
        """Turns the page."""
        self.board.turn(by)
        self._refocus()

    # actions: scrolling

    def action_scroll(self, rows: int) -> None:
        """Scrolls the focused pane by rows, or moves the end of a choice."""
        pane = self.pane
        if pane and pane.view and pane.view.selection:
            self.move_selection(pane, rows)
        elif pane:
            pane.scroll_rows(rows)

    def action_scroll_page(self, pages: float) -> None:
        """Scrolls the focused pane by pages."""
        pane = self.pane
        if pane and pane.view and pane.view.selection:
            self.move_selection(pane, int(pane.size.height * pages))
        elif pane:
            pane.scroll_pages(pages)

    def action_first_line(self) -> None:
        """To the first line of the run."""
        pane = self.pane
        if pane and pane.view and pane.view.selection:
            self.move_selection(pane, -pane.view.lines.count)
        elif pane:
            pane.go_home()

    def action_follow(self) -> None:
        """To the end, and follows it."""
        pane = self.pane
        if pane and pane.view and pane.view.selection:
            self.move_selection(pane, pane.view.lines.count)
        elif pane:
            pane.go_end()
