"""Search session: the search in one view that a person has begun."""

from __future__ import annotations

from launcher.quantities import thousands

from .multi_search import MultiSearch
from .search import Query
from .view import Lines


class SearchSession:
    """Goes from hit to hit while threads still count. A requested step waits for its hit: `follow`
    is called every frame and returns it once."""

    def __init__(self) -> None:
        self._search: MultiSearch | None = None
        self._lines: Lines | None = None
        self._wanted = 0
        """A step that waits for its hit: 1 forwards, -1 backwards, 0 none."""
        self._hit = -1

    def start(self, lines: Lines, query: Query, near: int) -> None:
        """Searches some lines; the first step goes to the last hit at or before line `near`."""
        self._search = MultiSearch(lines, query, near)
        self._lines = lines
        self._wanted, self._hit = -1, -1

    def stop(self) -> bool:
        """Ends the search; False when there is none."""
        if self._search is None:
            return False
        self._search.cancel()
        self._search = self._lines = None
        self._wanted, self._hit = 0, -1
        return True

    def is_in(self, lines: Lines) -> bool:
        """Whether these are the lines that are searched."""
        return lines is self._lines

    def step(self, by: int) -> None:
        """Requests the next hit, or the previous one."""
        self._wanted = by

    def follow(self, lines: Lines) -> int | None:
        """The line of the requested hit; None while there is none in these lines."""
        search = self._search
        if not self._wanted or search is None or not self.is_in(lines):
            return None
        hit = search.nearest() if self._hit < 0 else None
        if hit is None and (self._hit >= 0 or search.done):
            at = self._hit if self._hit >= 0 else lines.count
            hit = search.step(at, forward=self._wanted > 0)
        if hit is not None:
            self._wanted, self._hit = 0, hit
        elif search.done:
            self._wanted = 0
        return hit

    def note(self, lines: Lines) -> str:
        """The query in these lines, the number of the hit, and the number of all hits."""
        if self._search is None or not self.is_in(lines):
            return ""
        place, total = self._search.place(self._hit)
        dots = "" if self._search.done else f"… {self._search.share * 100:.0f} %"
        return f"/{self._search.query.text} {place} of {thousands(total)}{dots}"
