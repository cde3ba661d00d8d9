"""The run screen: what people look at for hours."""

from __future__ import annotations

import gc
import time
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from launcher.control import RunControl
from launcher.ids import TaskId
from launcher.snapshot import Snapshot
from launcher.states import Outcome, RunState
from tui import layout
from tui.layout import Arrangement, Box
from tui.log.document import Document
from tui.log.view import LogView
from tui.widgets.footer import KeyFooter
from tui.widgets.header import RunHeader
from tui.widgets.log_pane import LogPane
from tui.widgets.outcome_panel import OutcomePanel
from tui.widgets.pane_grid import PaneGrid
from tui.widgets.status_strip import StatusStrip

FRAME = 1 / 30
KEYS = [
    ("F9", "kill all"),
    ("q", "leave"),
    ("Tab", "next pane"),
    ("z", "zoom"),
    ("Space", "layout"),
    ("G", "follow"),
    ("?", "help"),
    ("[ ]", "page"),
    ("1-9 '", "go to"),
]


class RunScreen(Screen[None]):
    """Header, strip, panes, footer. One clock drives all of them: it takes up the newest
    snapshot and asks each visible pane whether its log has grown."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "next(1)", "Next pane", id="pane.next"),
        Binding("shift+tab", "next(-1)", "Previous pane", id="pane.previous"),
        Binding("left", "go('left')", "Pane to the left", id="pane.left"),
        Binding("right", "go('right')", "Pane to the right", id="pane.right"),
        Binding("up", "go('up')", "Pane above", id="pane.up"),
        Binding("down", "go('down')", "Pane below", id="pane.down"),
        *(Binding(str(n), f"nth({n})", f"Pane {n}", show=False) for n in range(1, 10)),
        Binding("z,enter", "zoom", "Zoom", id="zoom"),
        Binding("escape", "back", "Back", id="back"),
        Binding("space", "arrange", "Next layout", id="layout.next"),
        Binding("left_square_bracket", "page(-1)", "Previous page", id="page.previous"),
        Binding("right_square_bracket", "page(1)", "Next page", id="page.next"),
        Binding("j", "scroll(1)", "Line down", id="scroll.down"),
        Binding("k", "scroll(-1)", "Line up", id="scroll.up"),
        Binding("pagedown", "scroll_page(1)", "Page down", id="scroll.page_down"),
        Binding("pageup", "scroll_page(-1)", "Page up", id="scroll.page_up"),
        Binding("ctrl+d", "scroll_page(0.5)", "Half a page down", id="scroll.half_down"),
        Binding("ctrl+u", "scroll_page(-0.5)", "Half a page up", id="scroll.half_up"),
        Binding("g,home", "first_line", "First line", id="scroll.home"),
        Binding("G,end", "follow", "Follow the end", id="scroll.follow"),
    ]

    def __init__(self, control: RunControl) -> None:
        super().__init__()
        self.control = control
        self.snapshot = control.snapshot()
        self._latest = self.snapshot
        self._views: dict[TaskId, LogView] = {}
        self._focused: TaskId | None = None
        self._arrangement = Arrangement.GRID
        self._zoomed = False
        self._page = 0
        self._placed: tuple[object, ...] = ()
        self._second = 0.0
        self._notes = len(self.snapshot.notes)

    def compose(self) -> ComposeResult:
        """From top to bottom."""
        yield RunHeader()
        yield StatusStrip()
        yield PaneGrid()
        yield OutcomePanel()
        yield KeyFooter(KEYS)

    def on_mount(self) -> None:
        self.query_one(OutcomePanel).display = False
        if self.snapshot.tasks:
            self._focused = self.snapshot.tasks[0].id
        self.control.subscribe(self._hand_over)
        self.set_interval(FRAME, self._frame)
        # What is mounted stays: the collector need not walk it again and again (its pauses were
        # the longest that a key waited for).
        self.call_after_refresh(gc.freeze)

    def _hand_over(self, snapshot: Snapshot) -> None:
        """Called on the launcher's thread: leaves the snapshot for the next frame."""
        self._latest = snapshot

    # the clock

    def _frame(self) -> None:
        now = time.time()
        if self._latest is not self.snapshot:
            self._take(self._latest, now)
        elif now - self._second >= 1.0:
            self._show_states(now)
        self._place()
        if self.app.screen is self or self.app.screen.is_modal:
            for pane in self._grid.panes:
                pane.poll()

    def _take(self, snapshot: Snapshot, now: float) -> None:
        before, self.snapshot = self.snapshot, snapshot
        if self._focused is None and snapshot.tasks:
            self._focused = snapshot.tasks[0].id
        self._show_states(now)
        for note in snapshot.notes[self._notes :]:
            self.notify(note, timeout=8)
        self._notes = len(snapshot.notes)
        by_itself = snapshot.outcome not in (Outcome.KILLED, Outcome.TERMINATED)
        if snapshot.state is RunState.ENDED and before.state is not RunState.ENDED and by_itself:
            self.query_one(OutcomePanel).show(snapshot)

    def _show_states(self, now: float) -> None:
        self._second = now
        self.query_one(RunHeader).show(self.snapshot)
        self.query_one(StatusStrip).show(self.snapshot, self._focused)
        states = {task.id: task for task in self.snapshot.tasks}
        for pane in self._grid.panes:
            if pane.view and pane.view.task in states:
                pane.set_task(states[pane.view.task], now)

    # panes

    @property
    def _grid(self) -> PaneGrid:
        return self.query_one(PaneGrid)

    @property
    def pane(self) -> LogPane | None:
        """The pane that has the focus."""
        return next((p for p in self._grid.panes if p.view and p.view.task == self._focused), None)

    def _view(self, task: TaskId) -> LogView:
        if task not in self._views:
            self._views[task] = LogView(task, Document(self.control.logs.open(task)))
        return self._views[task]

    def _pages(self) -> list[list[TaskId]]:
        tasks = [task.id for task in self.snapshot.tasks]
        size = self._grid.size
        count = layout.per_page(len(tasks), size.width, size.height)
        return [tasks[i : i + count] for i in range(0, len(tasks), count)]

    def _boxes(self) -> tuple[list[TaskId], list[Box]]:
        size = self._grid.size
        if self._zoomed and self._focused:
            return [self._focused], [Box(0, 0, size.width, size.height)]
        pages = self._pages()
        if not pages:
            return [], []
        self._page = min(self._page, len(pages) - 1)
        page = pages[self._page]
        boxes: list[Box] = []
        if self._arrangement is Arrangement.CHIEF:
            chief = next((t.id for t in self.snapshot.tasks if t.is_chief), page[0])
            if chief in page:
                boxes = layout.chief_large(len(page), page.index(chief), size.width, size.height)
        return page, boxes or layout.grid(len(page), size.width, size.height)

    def _place(self) -> None:
        """Puts the page's views into panes, when anything about it has changed."""
        if not self._grid.size:
            return
        tasks, boxes = self._boxes()
        wanted = (tuple(tasks), tuple(boxes))
        if wanted == self._placed:
            return
        self._placed = wanted
        states = {task.id: task for task in self.snapshot.tasks}
        for task, pane in zip(tasks, self._grid.place(boxes), strict=True):
            pane.show(self._view(task), states[task])
        self._focus_pane()

    def _focus_pane(self) -> None:
        pane = self.pane
        if pane is None and self._grid.panes and self._grid.panes[0].view:
            pane = self._grid.panes[0]
            self._focused = self._grid.panes[0].view.task
        if pane and not pane.has_focus:
            pane.focus(scroll_visible=False)

    def focus_task(self, task: TaskId) -> None:
        """Gives a task's pane the focus, turning to its page."""
        self._focused = task
        for number, page in enumerate(self._pages()):
            if task in page:
                self._page = number
        self._place()
        self._focus_pane()
        self.query_one(StatusStrip).show(self.snapshot, task)

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """A click on a pane gives it the focus."""
        if isinstance(event.widget, LogPane) and event.widget.view:
            self._focused = event.widget.view.task
            self.query_one(StatusStrip).show(self.snapshot, self._focused)

    @on(StatusStrip.Clicked)
    def _strip_clicked(self, event: StatusStrip.Clicked) -> None:
        self.focus_task(event.task)

    @on(LogPane.Chosen)
    def _pane_chosen(self) -> None:
        self.action_zoom()

    # actions

    def action_next(self, by: int) -> None:
        """The next or previous task, over pages."""
        tasks = [task.id for task in self.snapshot.tasks]
        if self._focused in tasks:
            self.focus_task(tasks[(tasks.index(self._focused) + by) % len(tasks)])

    def action_nth(self, number: int) -> None:
        """The nth pane of the page."""
        if number <= len(self._grid.panes) and (view := self._grid.panes[number - 1].view):
            self.focus_task(view.task)

    def action_go(self, direction: str) -> None:
        """The nearest pane in a direction."""
        here = self.pane
        if here is None:
            return
        dx, dy = {"left": (-1, 0), "right": (1, 0), "up": (0, -1), "down": (0, 1)}[direction]
        x, y = here.region.center
        best: tuple[float, TaskId] | None = None
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
            self.focus_task(best[1])

    def action_zoom(self) -> None:
        """The focused pane alone, and back."""
        self._zoomed = not self._zoomed
        self._place()

    def action_back(self) -> None:
        """Out of the zoom."""
        if self._zoomed:
            self.action_zoom()
        else:
            self.query_one(OutcomePanel).display = False

    def action_arrange(self) -> None:
        """The next layout."""
        order = [Arrangement.GRID, Arrangement.CHIEF]
        self._zoomed = False
        self._arrangement = order[(order.index(self._arrangement) + 1) % len(order)]
        self._place()

    def action_page(self, by: int) -> None:
        """Turns the page."""
        pages = self._pages()
        self._zoomed = False
        if pages:
            self._page = (self._page + by) % len(pages)
            self.focus_task(pages[self._page][0])

    def action_scroll(self, rows: int) -> None:
        """Scrolls the focused pane by rows."""
        if self.pane:
            self.pane.scroll_rows(rows)

    def action_scroll_page(self, pages: float) -> None:
        """Scrolls the focused pane by pages."""
        if self.pane:
            self.pane.scroll_pages(pages)

    def action_first_line(self) -> None:
        """To the first line of the run."""
        if self.pane:
            self.pane.go_home()

    def action_follow(self) -> None:
        """To the end, and follows it."""
        if self.pane:
            self.pane.go_end()
