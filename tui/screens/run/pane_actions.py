"""What the keys do to the panes: focus, layout, pages."""

from __future__ import annotations

from textual import on

from launcher.ids import TaskId
from tui.layout import Arrangement
from tui.screens.run.panes import Panes
from tui.widgets.log_pane import LogPane
from tui.widgets.outcome_panel import OutcomePanel
from tui.widgets.prompt import Prompt


class PaneActions(Panes):
    """The part of the run screen that answers keys about places."""

    @on(LogPane.Chosen)
    def _pane_chosen(self) -> None:
        self.action_zoom()

    @on(Prompt.Answered)
    def _name_answered(self, event: Prompt.Answered) -> None:
        if event.purpose == "name" and event.text:
            task = self.board.named(event.text)
            if task is None:
                self.notify(f"no task is called {event.text!r}", severity="warning", timeout=3)
            self.focus_task(task)

    # focus and layout

    def action_next(self, by: int) -> None:
        """The next or previous task, over pages."""
        self.board.step(by)
        self.refocus()

    def action_nth(self, number: int) -> None:
        """The nth pane of the page."""
        places = self.board.place()
        if number <= len(places):
            self.focus_task(places[number - 1][0])

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
        for pane in self.grid.panes:
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
        self.board.zoomed = not self.board.zoomed
        self.refocus()

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
            self.show_around()
        elif pane and pane.view and pane.view.cursor is not None:
            pane.view.cursor = None
            pane.redraw()

    def _arrange(self, arrangement: Arrangement) -> None:
        self.board.zoomed = False
        self.board.arrangement = arrangement
        self.refocus()
        self.notify(f"layout: {arrangement}", timeout=1.5)

    def action_arrange(self) -> None:
        """The next layout."""
        order = list(Arrangement)
        self._arrange(order[(order.index(self.board.shown) + 1) % len(order)])

    def action_merged(self) -> None:
        """The merged log, and back to the panes."""
        merged = self.board.shown is Arrangement.MERGED
        self._arrange(Arrangement.GRID if merged else Arrangement.MERGED)

    def switch_task(self) -> None:
        """Switches the focused task on or off in the merged log."""
        if self.board.focused:
            self.stop_search()
            self.views.switch(self.board.focused)
            if self.pane:
                self.pane.redraw()
            self.show_focus()

    def action_pin(self) -> None:
        """Pins the focused task to the attention page, or unpins it."""
        task = self.board.focused
        if task is None:
            return
        if task in self.board.pinned:
            self.board.pinned.remove(task)
        else:
            self.board.pinned.append(task)
        self.board.update(self.snapshot, self.stalled)

    def action_page(self, by: int) -> None:
        """Turns the page."""
        self.board.turn(by)
        self.refocus()
