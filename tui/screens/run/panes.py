"""Which log stands in which pane, and who has the focus."""

from __future__ import annotations

from dataclasses import replace

from textual import events, on

from launcher.ids import TaskId
from launcher.session.control import RunControl
from tui.layout import Arrangement, Box
from tui.log.rows import Options
from tui.log.view import LogView
from tui.screens.run.surroundings import Surroundings
from tui.widgets.chosen import TaskChosen
from tui.widgets.log_pane import LogPane
from tui.widgets.prompt import Prompt

MERGED_LIST_FROM = 110
"""Cells of width from which on the merged log has the list of tasks beside it."""


class Panes(Surroundings):
    """The part of the run screen that moves views between panes."""

    def __init__(self, control: RunControl) -> None:
        super().__init__(control)
        self._placed: object = None
        self._sizes: object = None

    @property
    def pane(self) -> LogPane | None:
        """The pane that has the focus."""
        if self.board.shown is Arrangement.MERGED:
            return next(iter(self.grid.panes), None)
        wanted = self.board.focused
        return next((p for p in self.grid.panes if p.view and p.view.task == wanted), None)

    # how lines are shown

    def set_options(self, options: Options) -> None:
        """How lines are shown, in all panes."""
        self.views.set_options(options)
        self.redraw_panes()

    def redraw_panes(self) -> None:
        """Draws all lines in sight again."""
        for pane in self.query(LogPane):
            pane.redraw()

    def filter_lines(self, view: LogView, text: str) -> None:
        """Shows only the lines that hit; no text shows all."""
        self.stop_search()
        self.views.set_filter(view, text)

    def stop_search(self) -> bool:
        """Ends a search and its marks; False when there was none."""
        if not self.searching.stop():
            return False
        self.views.forget_cursors()
        self.set_options(replace(self.views.options, query=None))
        return True

    # places

    def place(self) -> None:
        """Puts views into panes, when anything about their places has changed."""
        self._sizes = (self.area.size, self.grid.size)
        if not self.area.size or not self.grid.size:
            return
        # The whole area decides on pages: the list beside a pane must not, or it would keep
        # itself alive.
        self.board.width, self.board.height = self.area.size
        shown = self.board.shown
        merged = shown is Arrangement.MERGED
        wide = self.size.width >= MERGED_LIST_FROM
        self.task_list.display = not self.board.zoomed and (
            shown is Arrangement.LIST or (merged and wide)
        )
        places: list[tuple[TaskId | None, Box]] = list(self.board.place())
        if merged or len(places) == 1:  # one pane has what the list leaves
            task = None if merged else places[0][0]
            places = [(task, Box(0, 0, *self.grid.size))]
        if places == self._placed:
            return
        self._placed = places
        panes = self.grid.place([box for _, box in places])
        for (task, _), pane in zip(places, panes, strict=True):
            pane.show(self.views.of(task))
        self.show_around()
        self._focus_pane()

    def place_resized(self) -> None:
        """Places anew when the room has changed."""
        if self._sizes != (self.area.size, self.grid.size):
            self.place()

    def show_line(self, task: TaskId, line: int) -> None:
        """Brings a line of a task's log into sight, whatever the pane showed before."""
        if self.board.shown is Arrangement.MERGED:
            self.board.arrangement = Arrangement.GRID
        self.focus_task(task)
        pane = self.pane
        if pane is None or pane.view is None:
            return
        pane.view.lines.refresh()
        place = pane.view.lines.locate(task, line)
        if place is None:  # a filter hides it
            self.filter_lines(pane.view, "")
            place = pane.view.lines.locate(task, line)
        if place is not None:
            pane.view.cursor = place
            pane.go_to(place)
        pane.redraw()

    # the focus

    def focus_task(self, task: TaskId | None) -> None:
        """Gives a task the focus, wherever its pane is."""
        if task is not None:
            self.board.focus(task)
        self.refocus()

    def refocus(self) -> None:
        """Shows what the board says now."""
        self.place()
        self._focus_pane()
        self.show_focus()

    def _focus_pane(self) -> None:
        pane = self.pane
        if pane is None and self.grid.panes and self.grid.panes[0].view:
            pane = self.grid.panes[0]
            self.board.focused = self.grid.panes[0].view.task
        if pane and not self.query_one(Prompt).display:
            # At once: Widget.focus() waits for its turn, and the next key would act elsewhere.
            self.set_focus(pane, scroll_visible=False)

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """A click on a pane gives it the focus. Word of a focus that has moved on since is old."""
        pane = event.widget
        if pane is self.focused and isinstance(pane, LogPane) and pane.view and pane.view.task:
            self.board.focused = pane.view.task
            self.show_focus()

    @on(Prompt.Answered)
    def _prompt_closed(self) -> None:
        self._focus_pane()

    @on(TaskChosen)
    def _task_clicked(self, event: TaskChosen) -> None:
        self.focus_task(event.task)
