"""The area of panes on the run screen: which log stands in which pane, and who has the focus."""

from __future__ import annotations

from textual import events, on
from textual.containers import Horizontal

from launcher.ids import TaskId
from launcher.session.control import RunControl
from tui.board import Board
from tui.layout import Arrangement, Box
from tui.log.attempts import Attempts
from tui.log.view import LogView
from tui.screens.log_actions import LogActions
from tui.widgets.chosen import TaskChosen
from tui.widgets.log_pane import LogPane
from tui.widgets.pane_grid import PaneGrid
from tui.widgets.prompt import Prompt
from tui.widgets.task_list import TaskList

MERGED_LIST_FROM = 110
"""Cells of width from which on the merged log has the list of tasks beside it."""


class Panes(LogActions):
    """The part of the run screen that moves views between panes. A view lives as long as the
    screen; a pane shows now one, now another."""

    def __init__(self, control: RunControl) -> None:
        super().__init__()
        self.control = control
        self.snapshot = control.snapshot()
        self.board = Board()
        self.board.update(self.snapshot)
        self.attempts = Attempts(control.logs)
        self.attempts.update(self.snapshot.tasks)
        self._views: dict[TaskId | None, LogView] = {}
        self._off: set[TaskId] = set()
        """Tasks switched off in the merged log."""
        self._stalled: dict[TaskId, float] = {}
        """Tasks whose next step is overdue, and by how long."""
        self._placed: object = None
        self._sizes: object = None

    def find_widgets(self) -> None:
        """Once they are mounted."""
        self._grid = self.query_one(PaneGrid)
        self._area = self.query_one(Horizontal)
        self._list = self.query_one(TaskList)
        self._list.display = False

    # what the run screen provides

    def show_around(self) -> None:
        """Draws what stands around the panes: their titles, the strip, the list."""
        raise NotImplementedError

    def show_focus(self) -> None:
        """Draws who has the focus, in the strip and in the list."""
        raise NotImplementedError

    # panes and views

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
            lines = self.lines_of(task)
            view = LogView(task, lines, self.options, attempts=self.attempts, colours=colours)
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
        self.show_around()
        self._focus_pane()

    def _focus_pane(self) -> None:
        pane = self.pane
        if pane is None and self._grid.panes and self._grid.panes[0].view:
            pane = self._grid.panes[0]
            self.board.focused = self._grid.panes[0].view.task
        if pane and not self.query_one(Prompt).display:
            # At once: Widget.focus() waits for its turn, and the next key would act elsewhere.
            self.set_focus(pane, scroll_visible=False)

    def _focus(self, task: TaskId | None) -> None:
        if task is not None:
            self.board.focus(task)
        self._refocus()

    def _refocus(self) -> None:
        self._place()
        self._focus_pane()
        self.show_focus()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """A click on a pane gives it the focus. Word of a focus that has moved on since is old."""
        pane = event.widget
        if pane is self.focused and isinstance(pane, LogPane) and pane.view and pane.view.task:
            self.board.focused = pane.view.task
            self.show_focus()

    @on(TaskChosen)
    def _task_clicked(self, event: TaskChosen) -> None:
        self._focus(event.task)
