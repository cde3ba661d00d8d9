"""Commands that go to errors and failures, in the log of any task."""

from __future__ import annotations

from launcher.ids import TaskId
from launcher.session.control import RunControl
from tui.log.document import Document
from tui.log.errors import ErrorWalk
from tui.pane_layout import Arrangement
from tui.screens.run.interaction import Interaction
from tui.screens.run.pane_area import PaneArea
from tui.screens.run.search_commands import SearchCommands


class ErrorCommands:
    """Walks from error to error by time of receipt."""

    def __init__(
        self,
        control: RunControl,
        area: PaneArea,
        search: SearchCommands,
        interaction: Interaction,
    ) -> None:
        self._control = control
        self._area = area
        self._search = search
        self._interaction = interaction
        self._walk: ErrorWalk | None = None

    def step(self, by: int) -> None:
        """The next or previous line of any task that looks like an error; `follow` shows it."""
        if self._walk is None:
            tasks = [task.id for task in self._control.snapshot().tasks]
            self._walk = ErrorWalk(self._control.logs, tasks)
        self._walk.step(by)

    def follow(self) -> None:
        """Shows the error that was asked for, once all logs have been searched."""
        if self._walk is None:
            return
        error = self._walk.follow()
        if error is not None:
            self._show_line(error.task, error.line)
            self._interaction.notify(f"error {error.place} of {error.total}", timeout=2)
        elif self._walk.in_vain:
            self._walk.forget()
            self._interaction.notify("no line of any task looks like an error", timeout=3)

    def first_failure(self) -> None:
        """The end of the log of the first task that failed."""
        failure = self._control.snapshot().first_failure
        if failure is None:
            self._interaction.notify("no task has failed", timeout=2)
            return
        document = Document(failure.task, self._control.logs.open(failure.task))
        document.refresh()
        self._show_line(failure.task, max(0, document.count - 1))

    def close(self) -> None:
        """Ends the threads that search for errors."""
        if self._walk is not None:
            self._walk.close()

    def _show_line(self, task: TaskId, line: int) -> None:
        """Brings a line of a task's log into sight, whatever its pane showed before."""
        if self._area.pane_layout.effective is Arrangement.MERGED:
            self._area.pane_layout.arrangement = Arrangement.GRID
        self._area.focus_task(task)
        pane = self._area.pane
        if pane is None or pane.view is None:
            return
        pane.view.lines.refresh()
        place = pane.view.lines.locate(task, line)
        if place is None:  # a filter hides it
            self._search.filter_lines(pane.view, "")
            place = pane.view.lines.locate(task, line)
        if place is not None:
            pane.view.cursor = place
            pane.go_to(place)
        pane.redraw()
