"""Viewport: the place of a pane in a log, following the end or paused at a line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple


class Item(NamedTuple):
    """A line, or consecutive lines drawn as one: from `first` up to, not including, `end`.
    `rows` is the number of screen rows that it takes: 1, or more when long lines are wrapped."""

    first: int
    end: int
    rows: int = 1


ItemAt = Callable[[int], Item]
"""The item that covers a line."""


@dataclass
class Viewport:
    """The rows of a document that a pane of `height` rows shows.

    `count` is the number of lines, told by `update`. While `following`, the last line stands in
    the last row; else line `top` (its row `sub`, when wrapped) stands in the first one. Of an
    item of several lines the first one is named.
    """

    height: int = 1
    count: int = 0
    following: bool = True
    top: int = 0
    sub: int = 0
    seen: int = 0
    item_at: ItemAt = field(default=lambda line: Item(line, line + 1), repr=False)

    @property
    def new(self) -> int:
        """Lines that came since following was left."""
        return 0 if self.following else max(0, self.count - self.seen)

    def update(self, count: int, height: int, item_at: ItemAt | None = None) -> None:
        """The document or the pane has another size; `item_at` is the pane's way to wrap and
        fold."""
        self.count = count
        self.height = max(1, height)
        self.item_at = item_at or self.item_at
        if self.top >= count:
            self.top, self.sub = max(0, count - 1), 0
        if count and not self.following and (first := self.item_at(self.top).first) < self.top:
            self.top, self.sub = first, 0

    def rows(self) -> list[tuple[int, int]]:
        """For each row from the top: its line, and the row of that line. May be shorter than the
        pane."""
        if self.following:
            rows = self._last_rows()
            self.top, self.sub = rows[0] if rows else (0, 0)
            return rows
        result: list[tuple[int, int]] = []
        for row in self._from(self.top, self.sub):
            result.append(row)
            if len(result) == self.height:
                break
        return result

    def scroll(self, rows: int) -> None:
        """Moves by rows (negative: towards the beginning). Leaving the end pauses; reaching
        it again follows."""
        if self.following:
            if rows >= 0:
                return
            self.pause()
        if rows < 0:
            self._back(-rows)
            return
        for i, (line, sub) in enumerate(self._from(self.top, self.sub)):
            self.top, self.sub = line, sub
            if i == rows:
                break
        if (self.top, self.sub) >= self._last_page():
            self.follow()

    def page(self, pages: float) -> None:
        """Moves by whole or half pages, one row less than a page so that the eye keeps hold."""
        rows = max(1, int((self.height - 1) * abs(pages)))
        self.scroll(rows if pages > 0 else -rows)

    def home(self) -> None:
        """To the first line of the run."""
        if self._last_page() == (0, 0):
            return  # everything is in sight: nothing to leave
        if self.following:
            self.pause()
        self.top = self.sub = 0

    def follow(self) -> None:
        """To the end, and stays there."""
        self.following = True

    def show(self, line: int) -> None:
        """Puts a line into sight, a third down the pane; pauses, unless it is in sight."""
        first = self.item_at(min(line, max(0, self.count - 1))).first
        if any(row[0] == first for row in self.rows()):
            if self.following:
                self.pause()
            return
        if self.following:
            self.pause()
        self.top, self.sub = first, 0
        self._back(self.height // 3)
        self.top, self.sub = min((self.top, self.sub), self._last_page())

    def reveal(self, line: int) -> None:
        """Scrolls just as far as it takes to see a line."""
        rows = self.rows()
        first = self.item_at(line).first
        if rows and first < rows[0][0]:
            self.top, self.sub = first, 0
        while (rows := self.rows()) and first > rows[-1][0] and not self.following:
            item = self.item_at(self.top + max(1, first - rows[-1][0]))
            self.top, self.sub = (item.first if item.first > self.top else item.end), 0

    def items_from(self, line: int, by: int) -> int:
        """A line of the item that stands `by` items behind that of `line`, or before it."""
        if abs(by) >= self.count:
            return self.count - 1 if by > 0 else 0
        for _ in range(abs(by)):
            item = self.item_at(line)
            line = item.end if by > 0 else item.first - 1
            if not 0 <= line < self.count:
                break
        return min(max(0, line), self.count - 1)

    def pause(self) -> None:
        """Stops following the end of the log: the rows shown stay, and new lines are counted."""
        if self.following:
            self.top, self.sub = self._last_page()
        self.following = False
        self.seen = self.count

    def _from(self, line: int, sub: int) -> Iterator[tuple[int, int]]:
        while line < self.count:
            item = self.item_at(line)
            for row in range(sub, item.rows):
                yield item.first, row
            line, sub = item.end, 0

    def _back(self, rows: int) -> None:
        while rows > self.sub and self.top > 0:
            rows -= self.sub + 1
            item = self.item_at(self.top - 1)
            self.top, self.sub = item.first, item.rows - 1
        self.sub = max(0, self.sub - rows)

    def _last_page(self) -> tuple[int, int]:
        """The top of the view that has the last row in its last row."""
        rows = self._last_rows()
        return rows[0] if rows else (0, 0)

    def _last_rows(self) -> list[tuple[int, int]]:
        """The rows of that view."""
        line, upwards = self.count, list[tuple[int, int]]()
        while line > 0 and len(upwards) < self.height:
            item = self.item_at(line - 1)
            line = item.first
            upwards += [(line, sub) for sub in reversed(range(item.rows))]
        return upwards[: self.height][::-1]
