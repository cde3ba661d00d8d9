"""What the run screen is made of, and what stands around its panes: header, strip, titles, list
and footer."""

from __future__ import annotations

import time

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.screen import Screen

from launcher.ids import TaskId
from launcher.run.states import RunPhase
from launcher.session.control import RunControl
from tui.board import Board
from tui.layout import Arrangement
from tui.log.searching import Searching
from tui.log.view import LogView
from tui.log.views import Views
from tui.stall import stalled_for
from tui.standing import fact
from tui.troubles import Troubles
from tui.widgets.footer import KeyFooter
from tui.widgets.header import RunHeader
from tui.widgets.outcome_panel import OutcomePanel
from tui.widgets.pane_grid import PaneGrid
from tui.widgets.prompt import Prompt
from tui.widgets.status_strip import StatusStrip
from tui.widgets.task_list import TaskList
from tui.widgets.titles import TitlePart, sparkline, task_title


class Surroundings(Screen[None]):
    """The part of the run screen that draws a run as it stands; what stands in the panes, and
    which keys change it, is said by the parts above."""

    def __init__(self, control: RunControl) -> None:
        super().__init__()
        self.control = control
        self.snapshot = control.snapshot()
        self.board = Board()
        self.board.update(self.snapshot)
        self.views = Views(control.logs, self.snapshot)
        self.searching = Searching()
        self.stalled: dict[TaskId, float] = {}
        """Tasks whose next step is overdue, and by how long."""
        self._troubles = Troubles(control)
        self._trouble = ""
        self._sparks: dict[TaskId, str] = {}
        self._titles: dict[TaskId | None, tuple[TitlePart, ...]] = {}
        self.grid = PaneGrid()
        self.task_list = TaskList()
        self.task_list.display = False
        self.area = Horizontal(self.task_list, self.grid)

    def compose(self) -> ComposeResult:
        """From top to bottom."""
        yield RunHeader()
        yield StatusStrip()
        yield self.area
        yield OutcomePanel()
        yield Prompt()
        yield KeyFooter()

    def show_states(self, now: float) -> None:
        """How run and tasks stand: in the header, and around the panes."""
        self.query_one(RunHeader).show(self.snapshot, len(self.stalled), self._trouble)
        self._make_titles(now)
        self.show_focus()
        self._show_keys()

    def show_around(self) -> None:
        """What changes with the places of the panes: titles, strip, list and footer."""
        self._make_titles(time.time())
        self.show_titles()
        self.show_focus()
        self._show_keys()

    def show_focus(self) -> None:
        """The focused task in strip and list."""
        self.query_one(StatusStrip).show(self.snapshot, self.board.focused)
        if self.task_list.display:
            off = self.views.off if self.board.shown is Arrangement.MERGED else None
            self.task_list.show(self.snapshot, self.board.focused, time.time(), off)

    def show_titles(self) -> None:
        """The titles as they were made last, with what filter and search have found since."""
        for pane in self.grid.panes:
            if pane.view and pane.view.task in self._titles:
                pane.set_title(self._titles[pane.view.task], self._note(pane.view))

    def look_at_series(self, now: float) -> None:
        """Once a second: who has stalled, what tasks complain about, and the sparklines of the
        panes in sight."""
        self.stalled = {}
        for task in self.snapshot.tasks:
            if task.state.live and task.step is not None:
                late = stalled_for(self.control.series(task.id).points, now)
                if late is not None:
                    self.stalled[task.id] = late
        for pane in self.grid.panes:
            if pane.view and pane.view.task:
                points = self.control.series(pane.view.task).points
                losses = [p.values["loss"] for p in points if "loss" in p.values]
                self._sparks[pane.view.task] = sparkline(losses)
        self._trouble = self._newest_trouble(now)

    def _newest_trouble(self, now: float) -> str:
        trouble = self._troubles.newest(self.snapshot, now)
        if trouble is None or self.snapshot.first_failure is not None:
            return ""
        whose, hint = trouble
        known = fact(hint, whose, self.views.options.tasks)
        return f"⚠ {whose}: {hint.kind}" + (f": {known}" if known else "")

    def _make_titles(self, now: float) -> None:
        """Titles of the panes in sight; the sparklines in them are those of the last second."""
        states = {task.id: task for task in self.snapshot.tasks}
        self._titles.clear()
        for pane in self.grid.panes:
            name = pane.view.task if pane.view else None
            if name is None:
                count = len(self.views.merged)
                text = f"all logs, {count} of {len(states)} tasks, by time of receipt"
                self._titles[None] = (TitlePart(0, text, "name"),)
            elif name in states:
                self._titles[name] = task_title(
                    states[name],
                    now,
                    self._sparks.get(name, ""),
                    self.stalled.get(name),
                    name in self.board.pinned,
                )

    def _note(self, view: LogView) -> str:
        """What stands at the right of a pane's title: its filter and its hits."""
        notes = (self.views.note(view), self.searching.note(view.lines))
        return "  ".join(note for note in notes if note)

    def _show_keys(self) -> None:
        """The footer's keys, the most important first."""
        ended = self.snapshot.state is RunPhase.ENDED
        keys = [("F9", "receipt" if ended else "kill all"), ("q", "leave"), ("?", "help")]
        if self.query_one(OutcomePanel).display:
            keys += [("Esc", "hide summary")]
        if self.board.shown is Arrangement.MERGED:
            keys += [("o", "task on/off")]
        keys += [("Tab", "next"), ("z", "zoom"), ("Space", "layout"), ("/", "search")]
        if (
            self.board.shown in (Arrangement.GRID, Arrangement.CHIEF)
            and len(self.board.pages()) > 1
        ):
            keys += [("[ ]", f"page {self.board.page + 1}/{len(self.board.pages())}")]
        keys += [("&", "filter"), ("e", "errors"), ("G", "follow"), ("m", "merged")]
        keys += [("M", "metrics"), ("H", "hosts"), ("y", "copy"), ("'", "go to")]
        self.query_one(KeyFooter).show(keys)
