"""Search in whatever a pane shows: one log, a filtered one, or all logs merged."""

from __future__ import annotations

from bisect import bisect_right

from launcher.ids import TaskId

from .scan import Scanner
from .search import Query, Search
from .view import Lines

GROWTH_SECONDS = 0.3
_TRIES = 10_000
"""Hits of one log that are skipped because a filter hides them, before giving up."""


class MultiSearch:
    """One search in each log behind some lines, all in one thread. `step` goes from a place to
    the next hit."""

    def __init__(self, lines: Lines, query: Query, near: int) -> None:
        self.query = query
        self._lines = lines
        self._searches = {
            task: Search(document.file, query, max(0, lines.last_at(task, near)))
            for task, document in lines.documents().items()
        }
        scans = (search.scan() for search in self._searches.values())
        self._scanner = Scanner("search", scans, GROWTH_SECONDS)
        self._placed: tuple[object, tuple[int, int]] | None = None

    @property
    def done(self) -> bool:
        """All logs have been counted through, or the search was cancelled."""
        return self._scanner.closed or all(search.done for search in self._searches.values())

    @property
    def share(self) -> float:
        """Share of the logs that has been counted through, 0 to 1."""
        size = sum(search.size for search in self._searches.values())
        return sum(search.scanned for search in self._searches.values()) / size if size else 1.0

    @property
    def count(self) -> int:
        """Number of hits found so far in all logs."""
        return sum(search.count for search in self._searches.values())

    def cancel(self) -> None:
        """Ends it; what was found remains."""
        self._scanner.close()

    def nearest(self) -> int | None:
        """The first hit to show: the last one at or before where the search began, known long
        before everything is counted."""
        hits = [
            self._lines.locate(task, search.near_hit)
            for task, search in self._searches.items()
            if search.near_hit is not None
        ]
        return max((hit for hit in hits if hit is not None), default=None)

    def place(self, number: int) -> tuple[int, int]:
        """Number of lines with hits at or before a place, and of all of them."""
        found = {task: search.lines for task, search in self._searches.items() if search.lines}
        total = sum(map(len, found.values()))
        if number < 0:
            return 0, total
        asked = (number, total, self._lines.order)
        if self._placed is None or self._placed[0] != asked:
            before = (
                bisect_right(lines, self._lines.last_at(task, number))
                for task, lines in found.items()
            )
            self._placed = asked, (sum(before), total)
        return self._placed[1]

    def step(self, number: int, *, forward: bool) -> int | None:
        """The next or previous line with a hit, around the end; None when there is none yet."""
        found = [
            hit
            for task in self._searches
            if (hit := self._step_in(task, number, forward=forward)) is not None
        ]
        if forward:
            ahead = [hit for hit in found if hit > number]
            return min(ahead or found, default=None)
        ahead = [hit for hit in found if hit < number]
        return max(ahead or found, default=None)

    def _step_in(self, task: TaskId, number: int, *, forward: bool) -> int | None:
        search = self._searches[task]
        line = self._lines.last_at(task, number)
        if not forward and self._lines.locate(task, line) != number:
            line += 1  # the line stands before `number`, so it may be a hit itself
        for _ in range(_TRIES):
            hit = search.after(line) if forward else search.before(line)
            if hit is None:
                return None
            place = self._lines.locate(task, hit)
            if place is not None:
                return place
            line = hit
        return None
