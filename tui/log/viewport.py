"""Viewport: the place of a pane in a log, following the end or paused at a line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice

MOST_HIDDEN = 1000
"""Hidden lines that are passed over at a time: a log may have millions in a row."""
RowsOf = Callable[[int], int]
"""The rows that a line takes: 0 when it is hidden, more than 1 when it is long and wrapped."""


@dataclass
class Viewport:
    """The rows of a document that a pane of `height` rows shows.

    `count` is the number of lines, told by `update`. While `following`, the last line stands in
    the last row; else line `top` (its row `sub`, when wrapped) stands in the first one, or when it
    is hidden the next line that is not; where too few lines follow, some before it as well.
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
        """The document or the pane has another size; `rows_of` is the pane's way to wrap and
        hide lines."""
        self.count = count
        self.height = max(1, height)
        self.rows_of = rows_of or self.rows_of
        if self.top >= count:
            self.top, self.sub = max(0, count - 1), 0

    def rows(self) -> list[tuple[int, int]]:
        """For each row from the top: its line, and the row of that line. May be shorter than the
        pane."""
        if self.following:
            rows = self._last_rows()
            self.top, self.sub = rows[0] if rows else self._last_page()
            return rows
        rows = list(islice(self._from(self.top, self.sub), self.height))
        if len(rows) < self.height and self._is_past_last_page:  # the pane has grown
            return self._last_rows()
        return rows

    def scroll(self, rows: int) -> None:
        """Moves by rows (negative: towards the beginning). Leaving the end pauses; reaching
        it again follows."""
        if self.following:
            if rows >= 0:
                return
            self.pause()
        if self._is_past_last_page:
            self.top, self.sub = self._last_page()
        if rows < 0:
            self.top, self.sub = self._above(self.top, self.sub, -rows)
            return
        below = list(islice(self._from(self.top, self.sub), rows + 1))
        if len(below) > rows:
            self.top, self.sub = below[-1]
        else:  # at the end, or before many hidden lines
            self.top, self.sub = min(self.count, self.top + MOST_HIDDEN), 0
        if (self.top, self.sub) >= self._last_page():
            self.follow()

    def page(self, pages: float) -> None:
        """Moves by whole or half pages, one row less than a page so that the eye keeps hold."""
        rows = max(1, int((self.height - 1) * abs(pages)))
        self.scroll(rows if pages > 0 else -rows)

    def home(self) -> None:
        """To the first line of the run."""
        last = self._last_page()
        if self._above(*last, 1) == last:
            return  # everything is in sight: nothing to leave
        if self.following:
            self.pause()
        self.top = self.sub = 0

    def follow(self) -> None:
        """To the end, and stays there."""
        self.following = True

    def show(self, line: int) -> None:
        """Puts a line into sight, a third down the pane; pauses, unless it is in sight."""
        line = min(line, max(0, self.count - 1))
        in_sight = any(row[0] == line for row in self.rows())
        if self.following:
            self.pause()
        if not in_sight:
            place = self._above(line, 0, self.height // 3)
            self.top, self.sub = min(place, self._last_page())

    def reveal(self, line: int) -> None:
        """Scrolls just as far as it takes to see a line."""
        rows = self.rows()
        if rows and line < rows[0][0]:
            self.top, self.sub = line, 0
        elif rows and line > rows[-1][0] and not self.following:
            last_row = max(0, self.rows_of(line) - 1)
            self.top, self.sub = self._above(line, last_row, self.height - 1)

    def shown_from(self, line: int, by: int) -> int:
        """The line that stands `by` lines behind another one, or before it; hidden ones do not
        count."""
        if abs(by) >= self.count:
            return self.count - 1 if by > 0 else 0
        step, looked = 1 if by > 0 else -1, 0
        while by and 0 <= line + step < self.count and looked < MOST_HIDDEN:
            line += step
            if self.rows_of(line):
                by -= step
            else:
                looked += 1
        return line

    def pause(self) -> None:
        """Stops following the end of the log: the rows shown stay, and new lines are counted."""
        if self.following:
            self.top, self.sub = self._last_page()
        self.following = False
        self.seen = self.count

    def _from(self, line: int, sub: int) -> Iterator[tuple[int, int]]:
        hidden = 0
        while line < self.count and hidden < MOST_HIDDEN:
            rows = self.rows_of(line)
            hidden += not rows
            for row in range(sub, rows):
                yield line, row
            line, sub = line + 1, 0

    def _above(self, line: int, sub: int, rows: int) -> tuple[int, int]:
        """The place so many rows above another one, as far as there are any."""
        at, hidden = (line, sub), 0
        while rows > at[1] and line > 0 and hidden < MOST_HIDDEN:
            line -= 1
            if count := self.rows_of(line):
                rows -= at[1] + 1
                at = line, count - 1
            else:
                hidden += 1
        if hidden == MOST_HIDDEN:
            return line, 0
        return at[0], max(0, at[1] - rows)

    @property
    def _is_past_last_page(self) -> bool:
        """The first row was chosen in a smaller pane: from there on the lines do not fill it."""
        return (self.top, self.sub) > self._last_page()

    def _last_page(self) -> tuple[int, int]:
        """The top of the view that has the last row in its last row."""
        rows = self._last_rows()
        return rows[0] if rows else (max(0, self.count - MOST_HIDDEN), 0)

    def _last_rows(self) -> list[tuple[int, int]]:
        """The rows of that view."""
        line, hidden, upwards = self.count, 0, list[tuple[int, int]]()
        while line > 0 and len(upwards) < self.height and hidden < MOST_HIDDEN:
            line -= 1
            rows = self.rows_of(line)
            hidden += not rows
            upwards += [(line, sub) for sub in reversed(range(rows))]
        return upwards[: self.height][::-1]
