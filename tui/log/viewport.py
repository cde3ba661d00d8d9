"""Viewport: the place of a pane in a log, following the end or paused at a line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

RowsOf = Callable[[int], int]
"""Number of screen rows that a line takes: 1, or more when long lines are wrapped."""


@dataclass
class Viewport:
    """The rows of a document that a pane of `height` rows shows.

    `count` is the number of lines, told by `update`. While `following`, the last line stands in
    the last row; else line `top` (its row `sub`, when wrapped) stands in the first one.
    """

    height: int = 1
    count: int = 0
    following: bool = True
    top: int = 0
    sub: int = 0
    seen: int = 0
    rows_of: RowsOf = field(default=lambda line: 1, repr=False)

    @property
    def new(self) -> int:
        """Lines that came since following was left."""
        return 0 if self.following else max(0, self.count - self.seen)

    def update(self, count: int, height: int, rows_of: RowsOf | None = None) -> None:
        """The document or the pane has another size; `rows_of` is the pane's way to wrap."""
        self.count = count
        self.height = max(1, height)
        self.rows_of = rows_of or self.rows_of
        if self.top >= count:
            self.top, self.sub = max(0, count - 1), 0

    def rows(self) -> list[tuple[int, int]]:
        """For each row from the top: its line, and the row of that line. May be shorter than the
        pane."""
        if self.following:
            self.top, self.sub = self._last_page()
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
        if any(row[0] == line for row in self.rows()):
            if self.following:
                self.pause()
            return
        if self.following:
            self.pause()
        self.top, self.sub = min(line, max(0, self.count - 1)), 0
        self._back(self.height // 3)
        self.top, self.sub = min((self.top, self.sub), self._last_page())

    def reveal(self, line: int) -> None:
        """Scrolls just as far as it takes to see a line."""
        rows = self.rows()
        if rows and line < rows[0][0]:
            self.top, self.sub = line, 0
        while (rows := self.rows()) and line > rows[-1][0] and not self.following:
            self.top, self.sub = (self.top + max(1, line - rows[-1][0]), 0)

    def pause(self) -> None:
        """Stays where it is."""
        if self.following:
            self.top, self.sub = self._last_page()
        self.following = False
        self.seen = self.count

    def _from(self, line: int, sub: int) -> Iterator[tuple[int, int]]:
        while line < self.count:
            for row in range(sub, self.rows_of(line)):
                yield line, row
            line, sub = line + 1, 0

    def _back(self, rows: int) -> None:
        while rows > self.sub and self.top > 0:
            rows -= self.sub + 1
            self.top -= 1
            self.sub = self.rows_of(self.top) - 1
        self.sub = max(0, self.sub - rows)

    def _last_page(self) -> tuple[int, int]:
        """The top of the view that has the last row in its last row."""
        line, rows = self.count, self.height
        while line > 0:
            line -= 1
            takes = self.rows_of(line)
            if takes >= rows:
                return line, takes - rows
            rows -= takes
        return 0, 0
