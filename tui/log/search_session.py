"""Search session: the search in one view that a person has begun."""

from __future__ import annotations

from collections import deque

from launcher.quantities import thousands

from .multi_search import MultiSearch
from .search import Query
from .view import Lines


class SearchSession:
    """Goes from hit to hit while threads still count. Requested steps wait for their hits: `follow`
    is called every frame and returns the hit that they have led to, once."""

    def __init__(self) -> None:
        self._search: MultiSearch | None = None
        self._lines: Lines | None = None
        self._steps = deque[int]()
        """Steps that wait for their hits: 1 forwards, -1 backwards."""
        self._hit = -1

    def start(self, lines: Lines, query: Query, near: int) -> None:
        """Searches some lines; the first step goes to the last hit at or before line `near`."""
        self._search = MultiSearch(lines, query, near)
        self._lines = lines
        self._steps, self._hit = deque([-1]), -1

    def stop(self) -> bool:
        """Ends the search; False when there is none."""
        if self._search is None:
            return False
        self._search.cancel()
        self._search = self._lines = None
        self._steps.clear()
        self._hit = -1
        return True

    def is_in(self, lines: Lines) -> bool:
        """Whether these are the lines that are searched."""
        return lines is self._lines

    def step(self, by: int) -> None:
        """Requests the next hit, or the previous one."""
        self._steps.append(by)

    def follow(self, lines: Lines) -> int | None:
        """The line of the hit that was requested last; None while there is none in these lines."""
        search = self._search
        if not self._steps or search is None or not self.is_in(lines):
            return None
        done = search.done  # before its hits are asked for: more may be found meanwhile
        found = None
        while self._steps and (hit := self._next(search, lines, self._steps[0])) is not None:
            self._steps.popleft()
            self._hit = found = hit
        if done:
            self._steps.clear()
        return found

    def _next(self, search: MultiSearch, lines: Lines, by: int) -> int | None:
        """The hit that a step leads to, from the last one if there is one."""
        hit = search.nearest() if self._hit < 0 else None
        if hit is None and (self._hit >= 0 or search.done):
            at = self._hit if self._hit >= 0 else lines.count
            hit = search.step(at, forward=by > 0)
        return hit

    def note(self, lines: Lines) -> str:
        """The query in these lines, the number of the hit, and the number of all hits."""
        if self._search is None or not self.is_in(lines):
            return ""
        place, total = self._search.place(self._hit)
        dots = "" if self._search.done else f"… {self._search.share * 100:.0f} %"
        return f"/{self._search.query.text} {place} of {thousands(total)}{dots}"
