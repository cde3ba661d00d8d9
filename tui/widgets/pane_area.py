"""Area of the panes, with the list of tasks beside them, and the keys that go from pane to pane."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace
from enum import StrEnum
from typing import Any, ClassVar, TypeVar

from textual import events, work
from textual.binding import Binding, BindingType
from textual.containers import Grid, Horizontal
from textual.geometry import Size
from textual.message import Message
from textual.widgets import Input

from launcher.history.control import RunControl
from launcher.ids import TaskId
from launcher.run.snapshot import Snapshot
from tui.log.document import Document
from tui.log.finder import Finder
from tui.log.log_views import LogView, LogViews
from tui.log.merged import Merged
from tui.log.query import ERRORS, Query
from tui.log.rows import RowOptions, Stamps
from tui.log.viewport import Viewport
from tui.memory import Memory, Remembered
from tui.pane_layout import Arrangement, PageRows, PaneLayout, even_rows

from .pane import Pane
from .prompt import Prompt
from .task_list import TaskList

MERGED_LIST_FROM = 110
"""Cells of width from which on the merged log has the list of tasks beside it."""
_NEXT = Binding.Group("Next, previous pane")
_BESIDE = Binding.Group("Pane in that direction")
_NUMBERS = Binding.Group("Pane 1–9 of the page", compact=True)
_TURN = Binding.Group("Previous, next page")
_LAYOUT = Binding.Group("Next layout, merged")
_LINES = Binding.Group("Time wrap prefix routine")
_FILTER = Binding.Group("Filter (!text without)")
_HIT = Binding.Group("Next, previous hit")
_ERROR = Binding.Group("Next, previous error")


class PaneGrid(Grid):
    """Holds as many panes as one page shows; more tasks cost no more widgets, and views move in and
    out of them."""

    BLANK = True  # covered by the panes, with each of whose lines Textual paints this widget too

    def __init__(self, memory: Memory, lent: Container[str] = ()) -> None:
        super().__init__()
        self._memory = memory
        self._lent = lent
        self.panes: list[Pane] = []
        """Panes on the screen, in reading order."""
        self._pool: list[Pane] = []

    def place(self, count: int, rows: PageRows | None = None) -> list[Pane]:
        """Gives `count` panes in rows, by default of the same height; those that are not needed are
        hidden."""
        while len(self._pool) < count:
            pane = Pane(self._memory, self._lent)
            self._pool.append(pane)
            self.mount(pane)
        for i, pane in enumerate(self._pool):
            pane.display = i < count
        self.panes = self._pool[:count]
        width, height = self.size
        if count:
            rows = rows or even_rows(count, width)
            self.set_class(rows.framed(width, height), "-framed")
            self.styles.grid_size_columns = rows.columns
            self.styles.grid_rows = " ".join(f"{high}" if high else "1fr" for high in rows.heights)
            at = 0
            for pane, span in zip(self.panes, rows.spans, strict=True):
                pane.styles.column_span = span
                pane.set_class(at % rows.columns > 0, "-beside")
                at += span
        return self.panes


class PaneArea(Horizontal, can_focus=True):
    """Puts the views of logs into panes as the layout says, and gives the focus to one. There is
    one search at a time, and a filter for each view."""

    BLANK = True  # as `PaneGrid`
    BINDING_GROUP_TITLE = "Panes"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "tab",
            "next(1)",
            "Next pane",
            id="pane.next",
            tooltip="The next task, over all pages",
            group=_NEXT,
        ),
        Binding("shift+tab", "next(-1)", "Previous pane", id="pane.previous", group=_NEXT),
        Binding("left", "go('left')", "Pane to the left", id="pane.left", group=_BESIDE),
        Binding("right", "go('right')", "Pane to the right", id="pane.right", group=_BESIDE),
        Binding("up", "go('up')", "Pane above, or scroll", id="pane.up", group=_BESIDE),
        Binding("down", "go('down')", "Pane below, or scroll", id="pane.down", group=_BESIDE),
        *(
            Binding(str(n), f"nth({n})", f"Pane {n}", id=f"pane.{n}", group=_NUMBERS)
            for n in range(1, 10)
        ),
        Binding(
            "apostrophe",
            "name",
            "Go to a task by name",
            id="pane.name",
            tooltip="Type worker:1, w1 or a host",
        ),
        Binding(
            "z,enter",
            "zoom",
            "Zoom the pane",
            id="zoom",
            tooltip="The focused pane alone, and back",
        ),
        Binding(
            "space",
            "arrange",
            "Next layout",
            id="layout.next",
            tooltip="Panes by role, or all alike; a list of tasks beside one pane; one log of all",
            group=_LAYOUT,
        ),
        Binding(
            "m",
            "merged",
            "Merged log",
            id="layout.merged",
            tooltip="The lines of all tasks, in order of arrival",
            group=_LAYOUT,
        ),
        Binding(
            "p",
            "pin",
            "Pin to the first page",
            id="pin",
            tooltip="Keeps the task on the first page of a large run",
        ),
        Binding(
            "left_square_bracket", "turn(-1)", "Previous page", id="page.previous", group=_TURN
        ),
        Binding("right_square_bracket", "turn(1)", "Next page", id="page.next", group=_TURN),
        Binding(
            "slash",
            "search",
            "Search the whole log",
            id="search",
            tooltip="Looks through the whole log, while it grows",
        ),
        Binding("n", "hit(1)", "Next hit", id="search.next", group=_HIT),
        Binding("N", "hit(-1)", "Previous hit", id="search.previous", group=_HIT),
        Binding(
            "ampersand",
            "filter",
            "Filter lines (!text excludes)",
            id="filter",
            tooltip="Shows only the lines that match; an empty filter shows all",
            group=_FILTER,
        ),
        Binding(
            "e",
            "error(1)",
            "Next error in any pane",
            id="error.next",
            tooltip="In order of arrival, in the log of any task",
            group=_ERROR,
        ),
        Binding("E", "error(-1)", "Previous error in any pane", id="error.previous", group=_ERROR),
        Binding(
            "exclamation_mark",
            "trouble",
            "Trouble: the failed task",
            id="failure",
            tooltip="The end of the log of the task that is to blame, has stalled, or failed first",
        ),
        Binding(
            "t",
            "stamps",
            "Timestamps",
            id="log.stamps",
            tooltip="None, time of day, or since the start",
            group=_LINES,
        ),
        Binding(
            "w",
            "wrap",
            "Wrap long lines",
            id="log.wrap",
            tooltip="Or cuts them at the edge of the pane",
            group=_LINES,
        ),
        Binding(
            "a",
            "prefix",
            "Hide TensorFlow's log prefix",
            id="log.prefix",
            tooltip="Its date and source file, on the screen only",
            group=_LINES,
        ),
        Binding(
            "f",
            "remarks",
            "Show routine messages",
            id="log.remarks",
            tooltip="Or hide them: lines that TensorFlow and others always print",
            group=_LINES,
        ),
    ]

    class Changed(Message):
        """Other tasks are in sight, or another one has the focus."""

    def __init__(self, control: RunControl, snapshot: Snapshot, memory: Memory) -> None:
        """`memory` has what was chosen on earlier screens, and gets what is chosen here."""
        self._memory = memory
        self.pane_layout = PaneLayout(_chosen(Arrangement, memory.choices.layout))
        self.pane_layout.update(snapshot)
        self.views = LogViews(control.logs, snapshot)
        self.views.set_options(_options(self.views.options, memory.choices, snapshot.started))
        self.lent: set[str] = set()
        """Actions whose keys mean something else, as long as the screen says so."""
        self.grid = PaneGrid(memory, self.lent)
        self.task_list = TaskList()
        self.task_list.display = False
        self._control = control
        self._search: Finder | None = None
        self._errors: Finder | None = None
        """In the logs of all tasks, by time of receipt."""
        self._placed: object = None
        self._sizes: object = None
        super().__init__(self.task_list, self.grid)

    @property
    def pane(self) -> Pane | None:
        """The pane that has the focus."""
        if self.pane_layout.effective is Arrangement.MERGED:
            return next(iter(self.grid.panes), None)
        wanted = self.pane_layout.focused
        return next((p for p in self.grid.panes if p.view and p.view.task == wanted), None)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return action not in self.lent

    def on_mount(self) -> None:
        # The first keys may come before there is a pane, which then takes the focus for good.
        self.screen.set_focus(self)

    def on_unmount(self) -> None:
        """Ends the threads that read logs."""
        self.views.close()
        for finder in (self._search, self._errors):
            if finder is not None:
                finder.close()

    # what is new

    def poll(self) -> bool:
        """Shows what the logs in sight have grown by, and what searches have found; False when no
        log has grown."""
        grown = [pane.poll() for pane in self.grid.panes]
        self._show_hit()
        self._show_error()
        return any(grown)

    def redraw(self) -> None:
        """Draws all lines in sight again."""
        for pane in self.query(Pane):
            pane.redraw()

    @property
    def searches(self) -> bool:
        """A search or filter runs: there may be news although no log grows."""
        return bool(self._search or self._errors or self.views.filters)

    @property
    def notes_change(self) -> bool:
        """What a title says may have changed without a new line."""
        return self._search is not None or any(pane.has_old_labels for pane in self.grid.panes)

    def note(self, view: LogView) -> str:
        """A view's filter and hits, for its title."""
        notes = [self.views.note(view)]
        if self._search is not None and self._search.lines is view.lines:
            notes.append(self._search.note)
        return "  ".join(filter(None, notes))

    # places

    def place(self) -> bool:
        """Puts views into panes; False when nothing about their places has changed."""
        self._sizes = self._outer_sizes
        if not self.size or not self.grid.size:
            return False
        # The whole area decides on pages: the list beside a pane must not, or it would keep
        # itself alive.
        layout = self.pane_layout
        if (layout.width, layout.height) != self.size:
            layout.resize(*self.size)
        merged = layout.effective is Arrangement.MERGED
        wide = self.size.width >= MERGED_LIST_FROM
        self.task_list.display = not layout.zoomed and (
            layout.effective is Arrangement.LIST or (merged and wide)
        )
        tasks: list[TaskId | None] = [*layout.in_sight()]
        if merged:
            tasks = [None]
        by_role = layout.effective is Arrangement.ROLES and not layout.zoomed
        rows = layout.rows_by_role if by_role else None
        placed = (tasks, rows, self.grid.size)
        if placed == self._placed:
            return False
        self._placed = placed
        for task, pane in zip(tasks, self.grid.place(len(tasks), rows), strict=True):
            pane.show(self.views.of(task))
        self.restore_focus()
        self.post_message(self.Changed())
        return True

    def place_resized(self) -> None:
        """Places anew when the room has changed."""
        if self._sizes != self._outer_sizes:
            self.place()

    @property
    def _outer_sizes(self) -> tuple[Size, Size]:
        return self.outer_size, self.grid.outer_size  # Textual reckons the inner ones each time

    # the focus

    def focus_task(self, task: TaskId | None) -> None:
        """Gives a task the focus, wherever its pane is."""
        if task is not None:
            self.pane_layout.focus(task)
        self.refocus()

    def refocus(self) -> None:
        """Shows what the layout says now."""
        if not self.place():
            self.restore_focus()
            self.post_message(self.Changed())

    def restore_focus(self) -> None:
        """Gives the keyboard to the pane of the focused task, else to the first one, unless
        something is being typed."""
        pane = self.pane
        if pane is None and self.grid.panes and self.grid.panes[0].view:
            pane = self.grid.panes[0]
            self.pane_layout.focused = self.grid.panes[0].view.task
        if pane and not isinstance(self.screen.focused, Input):
            # At once: Widget.focus() waits for its turn, and the next key would act elsewhere.
            self.screen.set_focus(pane, scroll_visible=False)
            self.can_focus = False

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """A click on a pane gives it the focus, unless the focus has moved on since."""
        pane = event.widget
        if pane is not self.screen.focused or not isinstance(pane, Pane):
            return
        if pane.view and pane.view.task and pane.view.task != self.pane_layout.focused:
            self.pane_layout.focused = pane.view.task
            self.post_message(self.Changed())

    def on_pane_title_double_clicked(self) -> None:
        self.action_zoom()

    def action_next(self, by: int) -> None:
        """The next or previous task, over pages."""
        self.pane_layout.step(by)
        self.refocus()

    def action_nth(self, number: int) -> None:
        """The nth pane of the page."""
        tasks = self.pane_layout.in_sight()
        if number <= len(tasks):
            self.focus_task(tasks[number - 1])

    @work(group="commands")
    async def action_name(self) -> None:
        """Asks for a task's name and focuses it."""
        text = await self.screen.query_one(Prompt).ask("task (w1, worker:1, a host)", "")
        if not text:
            return
        task = self.pane_layout.named(text)
        if task is None:
            self.notify(f"no task is called {text!r}", severity="warning", timeout=3)
        self.focus_task(task)

    def action_go(self, direction: str) -> None:
        """The nearest pane in a direction. Where one pane is shown, up and down scroll it, and left
        and right go to the task before or after."""
        layout, here = self.pane_layout, self.pane
        if not layout.shows_panes:
            if direction in ("left", "right"):
                self.action_next(1 if direction == "right" else -1)
            elif here is not None:
                here.action_rows(1 if direction == "down" else -1)
            return
        if here is None:
            return
        at = here.region
        best: tuple[int, TaskId | None] | None = None
        for pane in self.grid.panes:
            other = pane.region
            ahead = {
                "left": at.x - other.right,
                "right": other.x - at.right,
                "up": at.y - other.bottom,
                "down": other.y - at.bottom,
            }[direction]
            if pane is here or pane.view is None or ahead < 0:
                continue
            if direction in ("left", "right"):
                aside = max(0, other.y - at.bottom + 1, at.y - other.bottom + 1)
            else:
                aside = max(0, other.x - at.right + 1, at.x - other.right + 1)
            distance = ahead + 3 * aside
            if best is None or distance < best[0]:
                best = (distance, pane.view.task)
        if best:
            self.focus_task(best[1])

    # the layout

    def action_zoom(self) -> None:
        """The focused pane alone, and back."""
        self.pane_layout.zoomed = not self.pane_layout.zoomed
        self.refocus()

    def leave_zoom(self) -> bool:
        """Shows all panes again; False when no pane is zoomed."""
        if not self.pane_layout.zoomed:
            return False
        self.action_zoom()
        return True

    def action_arrange(self) -> None:
        """Switches to the next arrangement of the panes, and from the last to the first."""
        order = self.pane_layout.arrangements
        self._arrange(order[(order.index(self.pane_layout.effective) + 1) % len(order)])

    def action_merged(self) -> None:
        """The merged log, and back to the panes."""
        merged = self.pane_layout.effective is Arrangement.MERGED
        self._arrange(self.pane_layout.arrangements[0] if merged else Arrangement.MERGED)

    def toggle_task(self) -> bool:
        """Switches the focused task on or off in the merged log; False in other layouts."""
        if self.pane_layout.effective is not Arrangement.MERGED:
            return False
        if self.pane_layout.focused:
            self.stop_search()
            self.views.switch(self.pane_layout.focused)
            if self.pane:
                self.pane.redraw()
            self.refocus()
        return True

    def action_turn(self, by: int) -> None:
        """Turns pages, around the end."""
        self.pane_layout.turn(by)
        self.refocus()

    def action_pin(self) -> None:
        """Pins the focused task to the first page of a large run, or unpins it."""
        self.pane_layout.toggle_pin()
        self.refocus()

    def _arrange(self, arrangement: Arrangement) -> None:
        self.pane_layout.zoomed = False
        self.pane_layout.arrangement = arrangement
        self._memory.keep(layout=str(arrangement))
        self.refocus()
        self.notify(f"layout: {arrangement}", timeout=1.5)

    # how lines are shown, in all panes

    def set_options(self, options: RowOptions) -> None:
        """Sets how lines are shown, in all panes."""
        self.views.set_options(options)
        self.redraw()

    def action_stamps(self) -> None:
        """Times before lines: none, time of day, since the start."""
        order = list(Stamps)
        stamps = order[(order.index(self.views.options.stamps) + 1) % len(order)]
        self._change_options(f"timestamps: {stamps}", stamps=stamps)

    def action_wrap(self) -> None:
        """Wraps long lines, or cuts them at the pane's edge."""
        wrap = not self.views.options.wrap
        self._change_options(f"wrap: {'on' if wrap else 'off'}", wrap=wrap)

    def action_prefix(self) -> None:
        """Hides TensorFlow's prefix of date and source file, or shows it."""
        hide = not self.views.options.hide_prefix
        text = f"TensorFlow's log prefix: {'hidden' if hide else 'shown'}"
        self._change_options(text, hide_prefix=hide)

    def action_remarks(self) -> None:
        """Shows remarks of TensorFlow and its like, or hides them."""
        remarks = not self.views.options.remarks
        text = f"routine messages: {'shown' if remarks else 'hidden'}"
        self._change_options(text, remarks=remarks)

    def _change_options(self, message: str, **changes: Any) -> None:
        """Changes how lines are shown, here and on the next screen."""
        started = self._control.snapshot().started
        self.set_options(replace(self.views.options, started=started, **changes))
        self._memory.keep(**changes)
        self.notify(message, timeout=2)

    # search

    @work(group="commands")
    async def action_search(self) -> None:
        """Asks what to search for in the focused pane."""
        await self._ask_query()

    @work(group="commands")
    async def action_hit(self, by: int) -> None:
        """The next or previous hit; in another pane the same search begins anew. Asks when there
        has been no search."""
        pane, query = self.pane, self.views.options.query
        if query is None:
            await self._ask_query()
        elif self._search is None or (
            pane and pane.view and pane.view.lines is not self._search.lines
        ):
            self._start_search(query)
        else:
            self._search.step(by)

    async def _ask_query(self) -> None:
        if text := await self.screen.query_one(Prompt).ask("/"):
            self._start_search(Query(text))

    def _start_search(self, query: Query) -> None:
        self.stop_search()
        pane = self.pane
        if pane is None or pane.view is None:
            return
        self.set_options(replace(self.views.options, query=query))
        visible = pane.in_sight()
        self._search = Finder(pane.view.lines, query, visible[-1] if visible else 0)

    def stop_search(self) -> bool:
        """Ends a search and its marks; False when there was none."""
        if self._search is None:
            return False
        self._search.close()
        self._search = None
        self.views.forget_cursors()
        self.set_options(replace(self.views.options, query=None))
        return True

    def _show_hit(self) -> None:
        """Shows the hit that was asked for, once a thread has found it."""
        if self._search is None:
            return
        pane = self.pane
        if pane and pane.view and pane.view.lines is self._search.lines:
            hit = self._search.follow()
            if hit is not None:
                pane.mark(hit)

    # filter

    @work(group="commands")
    async def action_filter(self) -> None:
        """Asks which lines of the focused pane to show."""
        pane = self.pane
        if pane is None or pane.view is None:
            return
        before = self.views.filter_of(pane.view.task)
        text = await self.screen.query_one(Prompt).ask("& lines with (!without)", before)
        pane = self.pane
        if text is not None and pane and pane.view:
            self.filter_lines(pane.view, text)
            pane.redraw()

    def filter_lines(self, view: LogView, text: str) -> None:
        """Shows only the lines that hit; no text shows all."""
        self.stop_search()
        self.views.set_filter(view, text)

    # errors, in the log of any task

    def action_error(self, by: int) -> None:
        """The next or previous line of any task that looks like an error, by time of receipt;
        `poll` shows it."""
        if self._errors is None:
            tasks = [task.id for task in self._control.snapshot().tasks]
            logs = {task: Document(task, self._control.logs.open(task)) for task in tasks}
            self._errors = Finder(Merged({**logs}), ERRORS)
        self._errors.step(by)

    def action_trouble(self) -> None:
        """The end of the log of the task to look at first: it is to blame, or has stalled."""
        task = self._control.snapshot().trouble
        if task is None:
            self.notify("no task has failed, and none has stalled", timeout=2)
            return
        self.show_line(task)

    def _show_error(self) -> None:
        """Shows the error that was asked for, once all logs have been searched."""
        errors = self._errors
        if errors is None or not errors.waiting:
            return
        errors.lines.refresh()
        if errors.in_vain:
            self.notify("no line of any task looks like an error", timeout=3)
        found = errors.follow()
        if found is not None:
            place, total = errors.place()
            self.show_line(*errors.lines.origin(found))
            self.notify(f"error {place} of {total}", timeout=2)

    def show_line(self, task: TaskId, line: int | None = None) -> None:
        """Brings a line of a task's log into sight, whatever its pane showed before; without a
        line, follows the end of the log."""
        if self.pane_layout.effective is Arrangement.MERGED:
            self.pane_layout.arrangement = self.pane_layout.arrangements[0]
        self.focus_task(task)
        pane = self.pane
        if pane is None or pane.view is None:
            return
        wanted = self._last_line(task) if line is None else line
        pane.view.lines.refresh()
        place = pane.view.lines.locate(task, wanted)
        if place is None:  # a filter hides it
            self.filter_lines(pane.view, "")
            place = pane.view.lines.locate(task, wanted)
        if line is None:
            pane.leave_hit()
            pane.move(Viewport.follow)
        elif place is not None:
            pane.mark(place)
        pane.redraw()

    def _last_line(self, task: TaskId) -> int:
        document = Document(task, self._control.logs.open(task))
        document.refresh()
        return max(0, document.count - 1)


_Choice = TypeVar("_Choice", bound=StrEnum)


def _chosen(kind: type[_Choice], word: str) -> _Choice | None:
    """The choice of that name, which an older or newer version may not have."""
    return kind(word) if word in list(kind) else None


def _options(options: RowOptions, choices: Remembered, started: float) -> RowOptions:
    """Options with what was chosen earlier."""
    return replace(
        options,
        stamps=_chosen(Stamps, choices.stamps) or options.stamps,
        wrap=choices.wrap,
        hide_prefix=choices.hide_prefix,
        remarks=choices.remarks,
        started=started,
    )
