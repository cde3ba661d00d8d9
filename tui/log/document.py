"""Document: the lines of one log file by number, without a copy of it.

A log may hold millions of lines. Its line numbers come from the sparse marks of the log store
and a count of the little that follows a mark; a few blocks around what is shown are kept, so
the first line of the run is as near as the last.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

from launcher.frozen import frozen
from launcher.ids import TaskId
from launcher.lines import PLAIN, TextStyle, style_after
from launcher.store.logs import LogFile
from launcher.store.rewritten import Rows, Stretch

MAX_LINE = 64 * 1024
"""Bytes of one line that are drawn; the rest is only named."""
_WINDOW = 3 * 64 * 1024
"""Marks are at most twice their usual distance apart, so a window from a mark always holds the
beginning of the line that was asked for."""
_BLOCKS = 4
_NEAR_END = 200
_STYLED_BYTES = 16 * 1024
"""Bytes before a line in which a colour is looked for that lasts."""


@frozen
class Line:
    """One line, without its newline. `start` is its place in the file; `cut` counts the bytes
    that are not in `data`, because the line is longer than 64 KiB."""

    number: int
    start: int
    data: bytes
    cut: int = 0
    open: bool = False
    """The newline has not come yet: the line may still grow."""
    time: float | None = None
    """When it was received, to a quarter of a second; seconds since the epoch."""
    task: TaskId | None = None
    """The task that wrote it, where logs are merged."""
    style: TextStyle = PLAIN
    """The style that lines before it have left set."""


class Lines(Protocol):
    """Lines by number that may grow: a document, the lines of it that pass a filter, or all
    logs merged."""

    @property
    def count(self) -> int:
        """Number of lines, as of the last `refresh`."""

    @property
    def order(self) -> int:
        """A generation counter: it changes when lines have got other numbers, or when a line in
        their middle has grown."""

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
class _Block:
    offset: int
    first: int
    """The number of the line that holds the block's first byte."""
    data: bytes
    to_end: bool
    style: TextStyle
    """The style at its beginning."""
    _starts: list[int] | None = None

    def __post_init__(self) -> None:
        self.size = len(self.data)
        self.lines = self.data.split(b"\n")
        self.first_escape = self.data.find(b"\x1b")

    def start(self, at: int) -> int:
        """Offset in the file of line `at` of the block. Near the block's end, where a pane
        that follows looks, it is reckoned from there."""
        if len(self.lines) - at < _NEAR_END:
            return (
                self.offset + self.size - sum(map(len, self.lines[at:])) - len(self.lines[at:]) + 1
            )
        if self._starts is None:
            lengths = (len(line) + 1 for line in self.lines)
            self._starts = list(accumulate(lengths, initial=self.offset))
        return self._starts[at]


class Document:
    """Lines of a log file. `refresh` adds what was written since; until then nothing changes."""

    def __init__(self, task: TaskId, file: LogFile) -> None:
        self.task = task
        self.file = file
        self.order = 0
        """Changes when lines before the last one were rewritten; numbers stay."""
        self._size = 0
        self._count = 0
        self._blocks: OrderedDict[int, _Block] = OrderedDict()
        self._rows: list[Rows] = []
        """Lines of stretches that were looked up last."""
        self._hot: _Block | None = None
        self._last: Line | None = None
        """The line that was asked for last: a pane asks whether it is hidden, and then for it."""

    @property
    def size(self) -> int:
        """Bytes as of the last `refresh`."""
        return self._size

    @property
    def count(self) -> int:
        """Lines; a last one without its newline counts."""
        return self._count

    def refresh(self) -> bool:
        """Adds what the file has grown by; False when it has not grown."""
        if self.file.size == self._size:
            return False
        size, count, order = self.file.shown()
        if size == self._size:
            return False
        self._size, self._count = size, count
        if order != self.order:
            self.order, self._last = order, None
        for key in [key for key, block in self._blocks.items() if block.to_end]:
            del self._blocks[key]
        self._rows.clear()
        self._hot = None
        return True

    def line(self, number: int) -> Line:
        """Line `number`, counted from 0.

        Raises:
            IndexError: the document has no such line.
        """
        last = self._last  # another thread may save lines meanwhile
        if last is not None and last.number == number:
            return last
        if not 0 <= number < self.count:
            raise IndexError(f"no line {number} in {self.file.path.name}")
        if (stretch := self.file.stretch_of(number)) is not None:
            return self._rewritten_line(stretch, number)
        block = self._block_of(number)
        at = number - block.first
        start = block.start(min(at, len(block.lines) - 1))
        is_open = number == self.count - 1 and block.to_end and at == len(block.lines) - 1
        whole = at < len(block.lines) - 1 or (at < len(block.lines) and block.to_end)
        if not whole or len(block.lines[at]) > MAX_LINE:
            return self._long_line(number, start, self._style(block, start))
        data = block.lines[at]
        when = self.file.time_at(start + len(data))
        line = Line(number, start, data, 0, is_open, when, style=self._style(block, start))
        self._last = None if is_open else line
        return line

    def _rewritten_line(self, stretch: Stretch, number: int) -> Line:
        """A line among those that rewrite one another; it stays open until it has settled."""
        for rows in self._rows:
            if rows.has(number):
                break
        else:
            rows = self.file.rows(stretch, number)
            self._rows = [rows, *self._rows[: _BLOCKS - 1]]
            if not rows.has(number):
                return Line(number, stretch.begin, b"", open=True)
        row = rows.rows[number - rows.first]
        data = row.encoded().encode(errors="replace")
        when = self.file.time_at(row.end)
        return Line(number, row.start, data, row.cut, number >= rows.final, when)

    def _style(self, block: _Block, start: int) -> TextStyle:
        """The style that is set where a line begins: a colour lasts until it is ended, as far as
        its beginning is at hand."""
        here = start - block.offset
        if not 0 <= block.first_escape < here:
            return block.style
        begin = max(0, here - _STYLED_BYTES)
        return style_after(block.data[begin:here], PLAIN if begin else block.style)

    def stamps(self, first: int) -> list[tuple[int, float]]:
        """Times of receipt from the mark numbered `first`: lines before the mark, and when.
        Marks beyond the last `refresh` come later."""
        marks = self.file.marks(first)
        return [mark for mark in marks if mark[0] <= self._count]

    def documents(self) -> dict[TaskId, Document]:
        """This document, as the only one."""
        return {self.task: self}

    def origin(self, number: int) -> tuple[TaskId, int]:
        """The task and the line number that a line has in its log: here its own."""
        return self.task, number

    def locate(self, task: TaskId, line: int) -> int | None:
        """The line itself, when there is such a line."""
        return line if line < self.count else None

    def last_at(self, task: TaskId, number: int) -> int:
        """The last line up to that one, whether or not the log is so long."""
        return min(number, self.count - 1)

    def number_at(self, offset: int) -> int:
        """The number of the line that holds the byte at `offset`."""
        return self.file.line_at(offset)

    def _block_of(self, number: int) -> _Block:
        hot = self._hot
        if hot and hot.first + (hot.offset > 0) <= number < hot.first + len(hot.lines) - 1:
            return hot
        offset, first, end = self.file.mark_before_line(number)
        end = min(end, self._size)
        block = self._blocks.get(offset)
        if block is None or block.offset + block.size > end:
            before = min(offset, _STYLED_BYTES)
            data = self.file.read(offset - before, before + min(_WINDOW, end - offset))
            style = style_after(data[:before], PLAIN)
            data = data[before:]
            to_end = offset + len(data) >= self._size
            block = _Block(offset, first, data, to_end, style)
            self._blocks[offset] = block
            if len(self._blocks) > _BLOCKS:
                self._blocks.popitem(last=False)
        else:
            self._blocks.move_to_end(offset)
        self._hot = block
        return block

    def _long_line(self, number: int, start: int, style: TextStyle) -> Line:
        end, is_open = self._end(number, start)
        cut, when = max(0, end - start - MAX_LINE), self.file.time_at(end)
        data = self.file.read(start, min(MAX_LINE, end - start))
        if cut:
            tail = self.file.read(end - MAX_LINE, MAX_LINE)
            if b"\r" in tail.rstrip(b"\r"):
                data, cut = tail, 0  # a progress bar of an hour is one long line: its end counts
        return Line(number, start, data, cut, is_open, when, style=style)

    def _end(self, number: int, start: int) -> tuple[int, bool]:
        """Offset of the newline of line `number`, or the log's end and True where it has none yet.
        The mark before the next line is at most a window away from it, so a line of a gigabyte is
        not read through."""
        at = max(start, self.file.mark_before_line(number + 1)[0])
        while at < self._size:
            data = self.file.read(at, min(_WINDOW, self._size - at))
            found = data.find(b"\n")
            if found >= 0 or not data:
                return at + max(found, 0), False
            at += len(data)
        return self._size, True
