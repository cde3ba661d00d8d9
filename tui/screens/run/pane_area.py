"""Area of the panes, with the list of tasks beside them."""

from __future__ import annotations

from collections.abc import Callable

from textual import events
from textual.containers import Horizontal

from launcher.ids import TaskId
from tui.log.log_views import LogViews
from tui.log.rows import RowOptions
from tui.pane_layout import Arrangement, Box, PaneLayout
from tui.widgets.log_pane import LogPane
from tui.widgets.pane_grid import PaneGrid
from tui.widgets.task_list import TaskList

MERGED_LIST_FROM = 110
"""Cells of width from which on the merged log has the list of tasks beside it."""


class PaneArea(Horizontal):
    """Puts the views of logs into panes as the layout says, and gives the focus to one."""

    BLANK = True  # as `PaneGrid`

    def __init__(
        self,
        pane_layout: PaneLayout,
        views: LogViews,
        focus_pane: Callable[[LogPane], None],
        changed: Callable[[], None],
    ) -> None:
        """`focus_pane` gives the keyboard to a pane, unless something else needs it; `changed` is
        called when other tasks are in sight or another one has the focus."""
        self.pane_layout = pane_layout
        self.views = views
        self.grid = PaneGrid()
        self.task_list = TaskList()
        self.task_list.display = False
        self._focus_pane = focus_pane
        self._changed = changed
        self._placed: object = None
        self._sizes: object = None
        super().__init__(self.task_list, self.grid)

    @property
    def pane(self) -> LogPane | None:
        """The pane that has the focus."""
        if self.pane_layout.effective is Arrangement.MERGED:
            return next(iter(self.grid.panes), None)
        wanted = self.pane_layout.focused
        return next((p for p in self.grid.panes if p.view and p.view.task == wanted), None)

    # how lines are shown

    def set_options(self, options: RowOptions) -> None:
        """Sets how lines are shown, in all panes."""
        self.views.set_options(options)
        self.redraw()

    def redraw(self) -> None:
        """Draws all lines in sight again."""
        for pane in self.query(LogPane):
            pane.redraw()

    def poll(self) -> bool:
        """Shows what the logs in sight have grown by; False when none has."""
        grown = [pane.poll() for pane in self.grid.panes]
        return any(grown)

    # places

    def place(self) -> bool:
        """Puts views into panes; False when nothing about their places has changed."""
        self._sizes = (self.size, self.grid.size)
        if not self.size or not self.grid.size:
            return False
        # The whole area decides on pages: the list beside a pane must not, or it would keep
        # itself alive.
        layout = self.pane_layout
        if (layout.width, layout.height) != self.size:
            layout.width, layout.height = self.size
            if layout.focused is not None:
                layout.focus(layout.focused)  # pages of another size: it may be on another one
        merged = layout.effective is Arrangement.MERGED
        wide = self.size.width >= MERGED_LIST_FROM
        self.task_list.display = not layout.zoomed and (
            layout.effective is Arrangement.LIST or (merged and wide)
        )
        found, framed = layout.place()
        places: list[tuple[TaskId | None, Box]] = list(found)
        if merged or len(places) == 1:  # one pane has what the list leaves
            task = None if merged else places[0][0]
            places = [(task, Box(0, 0, *self.grid.size))]
        if places == self._placed:
            return False
        self._placed = places
        panes = self.grid.place([box for _, box in places], framed=framed)
        for (task, _), pane in zip(places, panes, strict=True):
            pane.show(self.views.of(task))
        self.restore_focus()
        self._changed()
        return True

    def place_resized(self) -> None:
        """Places anew when the room has changed."""
        if self._sizes != (self.size, self.grid.size):
            self.place()

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
            self._changed()

    def restore_focus(self) -> None:
        """Gives the keyboard to the pane of the focused task, else to the first one."""
        pane = self.pane
        if pane is None and self.grid.panes and self.grid.panes[0].view:
            pane = self.grid.panes[0]
            self.pane_layout.focused = self.grid.panes[0].view.task
        if pane:
            self._focus_pane(pane)

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """A click on a pane gives it the focus. Word of a focus that has moved on since is old."""
        pane = event.widget
        if pane is not self.screen.focused or not isinstance(pane, LogPane):
            return
        if pane.view and pane.view.task and pane.view.task != self.pane_layout.focused:
            self.pane_layout.focused = pane.view.task
            self._changed()
