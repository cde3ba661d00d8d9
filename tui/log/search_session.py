"""The search that a person has begun: one at a time, in the lines of one view."""

from __future__ import annotations

from tui.words import thousands

from .multi_search import MultiSearch
from .search import Query
from .view import Lines


class SearchSession:
    """Goes from hit to hit while threads still count. A step that was asked for waits for its
    hit: `follow` is asked every frame, and gives it once."""

    def __init__(self) -> None:
        self._finder: MultiSearch | None = None
        self._lines: Lines | None = None
        self._wanted = 0
        """A step that waits for its hit: 1 forwards, -1 backwards, 0 none."""
        self._hit = -1

    def start(self, lines: Lines, query: Query, near: int) -> None:
        """Searches some lines; the first step goes to the last hit at or before line `near`."""
        self._finder = MultiSearch(lines, query, near)
        self._lines = lines
        self._wanted, self._hit = -1, -1

    def stop(self) -> bool:
        """Ends the search; False when there is none."""
        if self._finder is None:
            return False
        self._finder.cancel()
        self._finder = self._lines = None
        self._wanted, self._hit = 0, -1
        return True

    def is_in(self, lines: Lines) -> bool:
        """These are the lines that are searched."""
        return lines is self._lines

    def step(self, by: int) -> None:
        """Asks for the next hit, or the one before."""
        self._wanted = by

    def follow(self, lines: Lines) -> int | None:
        """The line of the hit that was asked for in these lines; None while there is none."""
        finder = self._finder
        if not self._wanted or finder is None or not self.is_in(lines):
            return None
        hit = finder.nearest() if self._hit < 0 else None
        if hit is None and (self._hit >= 0 or finder.done):
            at = self._hit if self._hit >= 0 else lines.count
            hit = finder.step(at, forward=self._wanted > 0)
        if hit is not None:
            self._wanted, self._hit = 0, hit
        elif finder.done:
            self._wanted = 0
        return hit

    def note(self, lines: Lines) -> str:
        """What is searched in these lines, which hit this is, and of how many."""
        if self._finder is None or not self.is_in(lines):
            return ""
        place, total = self._finder.place(self._hit)
        dots = "" if self._finder.done else f"… {self._finder.share * 100:.0f} %"
        return f"/{self._finder.query.text} {place} of {thousands(total)}{dots}"
