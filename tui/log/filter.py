"""Filter: the lines of a log that match a query, or those that do not."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator

from launcher.ids import TaskId

from .document import Document, Line
from .scan import chunks
from .search import Query

GROWTH_SECONDS = 0.1


class Filtered:
    """Lines that hit a query, or with a leading `!` those that do not.

    A `Scanner` takes `scan` through the log and keeps up with it; what has passed so far is shown
    at once. `Lines` for a pane.
    """

    order = 0
    """Lines never get other numbers."""

    def __init__(self, document: Document, text: str) -> None:
        self.text = text
        self.document = document
        self._exclude = text.startswith("!")
        self._query = Query(text[1:] if self._exclude else text)
        self._passed: array[int] = array("Q")
        self._count = 0
        self._scanned = self._taken = 0
        """Lines of the log that the thread has looked at, and as of the last `refresh`."""

    @property
    def count(self) -> int:
        """Lines that have passed, as of the last `refresh`."""
        return self._count

    def refresh(self) -> bool:
        """Adds what has passed since."""
        self._taken = self._scanned  # before the count: a mark may not run ahead of its lines
        before, self._count = self._count, len(self._passed)
        self.document.refresh()  # after the count: each line that has passed is to be had there
        return self._count != before

    def line(self, number: int) -> Line:
        """The line that passed as number `number`, with its own number in the log."""
        return self.document.line(self._passed[number])

    def documents(self) -> dict[TaskId, Document]:
        """The document that is filtered."""
        return self.document.documents()

    def origin(self, number: int) -> tuple[TaskId, int]:
        """The number in the log of the line that passed as `number`."""
        return self.document.task, self._passed[number]

    def locate(self, task: TaskId, line: int) -> int | None:
        """Number of a line among those that passed; None when it did not."""
        at = bisect_left(self._passed, line, 0, self._count)
        return at if at < self._count and self._passed[at] == line else None

    def last_at(self, task: TaskId, number: int) -> int:
        """The line that passed as `number`."""
        return self._passed[min(number, self._count - 1)] if self._count and number >= 0 else -1

    def stamps(self, first: int) -> list[tuple[int, float]]:
        """The document's marks as far as they were looked at, counted in lines that passed."""
        return [
            (bisect_left(self._passed, line), time)
            for line, time in self.document.stamps(first)
            if line <= self._taken
        ]

    def scan(self) -> Iterator[bool]:
        """Filters chunk by chunk; yields False at the log's end."""
        for chunk in chunks(self.document.file):
            if chunk is not None:
                hits, _ = self._query.lines(chunk)
                if self._exclude:
                    out = set(hits)
                    hits = [n for n in range(chunk.first, chunk.after) if n not in out]
                self._passed.extend(hits)
                self._scanned = chunk.after
            yield chunk is not None
