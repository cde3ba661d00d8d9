"""Folds: consecutive remarks, with single empty lines between them, that are drawn as one row.
Lines keep their numbers, and the file its bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from launcher.ids import TaskId

from .document import Line
from .remarks import count_text, remark_source

if TYPE_CHECKING:
    from .view import Lines

BLOCK = 128
"""Lines. A fold lies within one block of so many, counted from the log's first line: to find a
fold around a line a block is looked through, however long the remarks go on."""
_KEPT = 4096


@dataclass(frozen=True)
class Fold:
    """Lines `first` up to, not including, `end`."""

    first: int
    end: int
    text: str
    """The text that is drawn of it."""
    line: Line
    """The first of them."""
    task: TaskId | None
    """The task that wrote all of them, where logs are merged."""


class Folds:
    """Folds of some lines, looked for around the lines that are asked for and nowhere else."""

    def __init__(self, lines: Lines, begins: Callable[[int], bool]) -> None:
        """`begins` says that something is drawn above a line, which no fold may cover."""
        self._lines = lines
        self._begins = begins
        self._known: dict[int, Fold | None] = {}
        """For a line, its fold: those that nothing can grow into any more."""
        self._order = lines.order

    def at(self, number: int) -> Fold | None:
        """The fold that covers a line."""
        if self._order != self._lines.order or len(self._known) > _KEPT:
            self._order = self._lines.order
            self._known.clear()
        if number in self._known:
            return self._known[number]
        fold = self._find(number)
        looked_at = (number if fold is None else fold.end) + 1  # behind an empty line
        if looked_at < self._lines.count - 1:  # the last one may still grow
            for line in (number,) if fold is None else (fold.first, number, fold.end - 1):
                self._known[line] = fold
        return fold

    def clear(self) -> None:
        """Forgets what was found: `begins` may answer otherwise now."""
        self._known.clear()

    def _find(self, number: int) -> Fold | None:
        found = self._foldable(number)
        if found is None:
            return None
        block = number - number % BLOCK
        first, end = number, number + 1
        parts = {number: found}
        while first > block and not self._begins(first) and (found := self._foldable(first - 1)):
            first -= 1
            parts[first] = found
        stop = min(block + BLOCK, self._lines.count)
        while end < stop and (found := self._foldable(end)) and not self._begins(end):
            parts[end] = found
            end += 1
        sources = [source for _, source in parts.values() if source]
        tasks = {line.task for line, _ in parts.values()}
        if not sources:
            return None
        task = tasks.pop() if len(tasks) == 1 else None
        return Fold(first, end, f"+ {count_text(len(sources), sources)}", parts[first][0], task)

    def _foldable(self, number: int) -> tuple[Line, str] | None:
        """A remark and its source, or an empty line between two remarks and no source; None for
        another line."""
        line, source = self._line_and_source(number)
        if line is None:
            return None
        if source is None and not line.data.rstrip(b"\r") and not line.open:
            between = self._line_and_source(number - 1)[1] and self._line_and_source(number + 1)[1]
            source = "" if between else None
        return None if source is None else (line, source)

    def _line_and_source(self, number: int) -> tuple[Line | None, str | None]:
        """A line, and its source if it is a remark; nothing where there is no such line."""
        try:
            line = self._lines.line(number)
        except (IndexError, OSError):
            return None, None
        return line, None if line.open or line.cut else remark_source(line.data)
