"""View of a log: its lines, the place in them, and how they are shown.

It outlives the pane's widget: paging through a cluster of hundreds of tasks moves views between
few widgets, and each is found as it was left.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from launcher.ids import TaskId

from .attempts import AttemptStarts, separator
from .document import Document, Line
from .rows import RowOptions, render_line
from .sanitise import Span
from .viewport import Viewport


class Lines(Protocol):
    """Lines by number that may grow: a document, the lines of it that pass a filter, or all
    logs merged."""

    @property
    def count(self) -> int:
        """Lines there are."""

    def refresh(self) -> bool:
        """Adds what has come; False when nothing has."""

    def line(self, number: int) -> Line:
        """Line `number`, counted from 0. Raises `IndexError` when there is none."""

    def documents(self) -> dict[TaskId, Document]:
        """The logs behind the lines."""

    def origin(self, number: int) -> tuple[TaskId, int]:
        """The task of line `number`, and its number in that task's log."""

    def locate(self, task: TaskId, line: int) -> int | None:
        """Number here of line `line` of a task's log; None when it is not among these."""

    def last_at(self, task: TaskId, number: int) -> int:
        """The last line of a task's log that stands at or before `number` here; -1 when there
        is none."""


@dataclass
class LogView:
    """The state of one pane; `task` is None for the merged log."""

    task: TaskId | None
    lines: Lines
    options: RowOptions = field(default_factory=RowOptions)
    attempts: AttemptStarts | None = None
    port: Viewport = field(default_factory=Viewport)
    colours: dict[TaskId, int] = field(default_factory=dict)
    """Of the tasks in a merged log: numbers of a palette."""
    selection: tuple[int, int] | None = None
    """First selected line and the one that moves, both included."""
    cursor: int | None = None
    """The line of the last hit."""

    def render(self, line: Line) -> tuple[list[Span], int]:
        """The spans that are drawn of a line, and the width of those before its own text."""
        return render_line(line, self.options, self.colours, self.task)

    def separators(self, number: int) -> list[str]:
        """Separators above line `number`: the attempts that begin there."""
        if self.attempts is None:
            return []
        task, line = self.lines.origin(number)
        begun = self.attempts.begun(task, self.lines.last_at(task, number - 1), line)
        shown = task if self.task is None else None
        return [separator(attempt, shown) for attempt in begun]

    def replace_lines(self, lines: Lines) -> None:
        """Shows other lines, from their end: no place among the old ones means anything."""
        lines.refresh()
        self.lines = lines
        self.cursor = self.selection = None
        self.port.follow()

    @property
    def selected_lines(self) -> range:
        """The selected lines, as far as there are such lines."""
        if self.selection is None:
            return range(0)
        return range(max(0, min(self.selection)), min(self.lines.count, max(self.selection) + 1))
