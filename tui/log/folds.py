"""Folds: consecutive remarks that are drawn as one row. Lines keep their numbers, and the file
its bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from launcher.ids import TaskId

from .document import Line
from .remarks import count_text, remark_source

if TYPE_CHECKING:
    from .view import Lines

BLOCK = 256
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
        self._known: dict[int, tuple[Fold | None, int, tuple[TaskId, int]]] = {}
        """For a line: its fold, the line behind it (or the line itself), and which line that was.
        Lines are only ever added, so while that one keeps its number nothing before it moves."""

    def at(self, number: int) -> Fold | None:
        """The fold that covers a line."""
        known = self._known.get(number)
        if known is not None:
            fold, behind, origin = known
            if behind < self._lines.count and self._lines.origin(behind) == origin:
                return fold
        fold = self._find(number)
        behind = number if fold is None else fold.end
        if behind < self._lines.count - 1:  # the last line may still grow
            if len(self._known) >= _KEPT:
                self._known.clear()
            known = fold, behind, self._lines.origin(behind)
            for line in (number,) if fold is None else (fold.first, number, fold.end - 1):
                self._known[line] = known
        return fold

    def clear(self) -> None:
        """Forgets what was found: `begins` may answer otherwise now."""
        self._known.clear()

    def _find(self, number: int) -> Fold | None:
        found = self._remark(number)
        if found is None:
            return None
        block = number - number % BLOCK
        first, end = number, number + 1
        remarks = {number: found}
        while first > block and not self._begins(first) and (found := self._remark(first - 1)):
            first -= 1
            remarks[first] = found
        stop = min(block + BLOCK, self._lines.count)
        while end < stop and (found := self._remark(end)) and not self._begins(end):
            remarks[end] = found
            end += 1
        tasks = {line.task for line, _ in remarks.values()}
        text = f"+ {count_text(len(remarks), (source for _, source in remarks.values()))}"
        return Fold(first, end, text, remarks[first][0], tasks.pop() if len(tasks) == 1 else None)

    def _remark(self, number: int) -> tuple[Line, str] | None:
        """A remark and its source; None for another line."""
        try:
            line = self._lines.line(number)
        except (IndexError, OSError):
            return None
        source = None if line.open or line.cut else remark_source(line.data)
        return None if source is None else (line, source)
