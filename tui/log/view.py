"""View of a log: its lines, the place in them, and how they are shown.

It outlives the pane's widget: paging through a cluster of hundreds of tasks moves views between
few widgets, and each is found as it was left.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from launcher.ids import TaskId

from .attempts import AttemptStarts, separator
from .document import Document, Line
from .folds import Fold, Folds
from .rows import RowOptions, render_fold, render_line
from .sanitise import Span
from .viewport import Viewport


class Lines(Protocol):
    """Lines by number that may grow: a document, the lines of it that pass a filter, or all
    logs merged."""

    @property
    def count(self) -> int:
        """Number of lines, as of the last `refresh`."""

    @property
    def order(self) -> int:
        """Another number when lines have got other numbers, or one in their middle has grown."""

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
    path: Path = Path()
    """The file with the whole log, or the folder of all."""
    name: str = ""
    """Run and task, for the name of a file with some of the lines."""
    filtered: bool = False
    """A filter has chosen the lines: each of them is shown."""

    def __post_init__(self) -> None:
        self._folds = self._make_folds()

    def fold_at(self, number: int) -> Fold | None:
        """The fold that covers line `number`; None where that line is shown. The last hit is shown
        with the lines around it."""
        if not self.options.fold or self.filtered:
            return None
        fold = self._folds.at(number)
        if fold and self.cursor is not None and fold.first <= self.cursor < fold.end:
            return None
        return fold

    def set_options(self, options: RowOptions) -> None:
        """Sets the options of the rows; where attempts begin may be known anew."""
        self.options = options
        self._folds.clear()

    def render_fold(self, fold: Fold) -> list[Span]:
        """The spans that are drawn of folded lines."""
        return render_fold(fold, self.options, self.colours)

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

    def replace_lines(self, lines: Lines, *, filtered: bool) -> None:
        """Shows other lines, from their end: no place among the old ones means anything."""
        lines.refresh()
        self.lines = lines
        self.filtered = filtered
        self._folds = self._make_folds()
        self.cursor = self.selection = None
        self.port.follow()

    @property
    def selected_lines(self) -> range:
        """The selected lines, as far as there are such lines. A fold is selected whole."""
        if self.selection is None:
            return range(0)
        first, last = max(0, min(self.selection)), max(self.selection)
        if fold := self.fold_at(first):
            first = fold.first
        end = fold.end if (fold := self.fold_at(last)) else last + 1
        return range(first, min(self.lines.count, end))

    def _make_folds(self) -> Folds:
        return Folds(self.lines, lambda number: bool(self.separators(number)))
