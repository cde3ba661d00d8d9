"""Search of a whole log, off the screen's loop: the first hit soon, all of them counted."""

from __future__ import annotations

import re
import threading
from array import array
from bisect import bisect_left, bisect_right
from functools import cached_property

from launcher.logs import LogFile

from .scan import backwards, forwards

MAX_KEPT = 2_000_000
"""Lines remembered for next and previous; beyond that hits are only counted."""
GROWTH_SECONDS = 0.3
NEAR_BYTES = 64 * 1024 * 1024
"""How far back is looked before counting begins at the beginning; a fraction of a second."""
_SPECIAL = frozenset(".^$*+?{}[]\\|()")


class Query:
    """What is looked for: a regular expression, or the text itself when it is none. Without
    capitals it finds both cases."""

    def __init__(self, text: str) -> None:
        self.text = text
        flags = 0 if any(char.isupper() for char in text) else re.IGNORECASE
        try:
            re.compile(text.encode())
            source = text
        except re.error:
            source = re.escape(text)
        self._source, self._flags = source, flags | re.MULTILINE
        plain = not _SPECIAL.intersection(text)
        self._ignores_case = bool(flags)
        self._literal = (text.lower() if flags else text).encode() if plain else b""

    @cached_property
    def in_bytes(self) -> re.Pattern[bytes]:
        """For the file."""
        return re.compile(self._source.encode(), self._flags)

    @cached_property
    def in_text(self) -> re.Pattern[str]:
        """For what is drawn."""
        return re.compile(self._source, self._flags)

    def lines(self, data: bytes, first: int) -> tuple[list[int], int]:
        """The numbers of the lines that hit, and how many hits there are."""
        hits: list[int] = []
        if self._literal:  # a plain word is looked for ten times as fast as an expression
            if self._literal not in (data.lower() if self._ignores_case else data):
                return hits, 0
        count = at = 0
        line = first
        for match in self.in_bytes.finditer(data):
            if match.start() == match.end():
                continue
            count += 1
            line += data.count(b"\n", at, match.start())
            at = match.start()
            if not hits or hits[-1] != line:
                hits.append(line)
        return hits, count


class Search:
    """Looks through one log and keeps up with its growth until it is cancelled.

    The thread looks back from `near` first, so that there is something to show, but not through
    gigabytes; then it counts from the beginning. `near_hit` and `lines` are read by the screen's
    clock.
    """

    def __init__(self, file: LogFile, query: Query, near: int) -> None:
        self.query = query
        self.lines: array[int] = array("Q")
        self.count = 0
        self.done = False
        """Everything up to the log's end has been counted."""
        self.near_hit: int | None = None
        """The first hit to show: the last one at or before `near`, or when there is none within
        `NEAR_BYTES` before it, the first one that the count comes to."""
        self.scanned = 0
        """Bytes that have been counted."""
        self._file = file
        self._near = near
        self._stop = threading.Event()
        threading.Thread(target=self._run, name="search", daemon=True).start()

    def cancel(self) -> None:
        """Ends the search; what was found remains."""
        self._stop.set()

    @property
    def size(self) -> int:
        """Bytes there are."""
        return self._file.size

    @property
    def cancelled(self) -> bool:
        """The search was ended by hand."""
        return self._stop.is_set()

    def after(self, line: int) -> int | None:
        """The next line that hits, around the end to the first one."""
        if not self.lines:
            return None
        at = bisect_right(self.lines, line)
        return self.lines[at if at < len(self.lines) else 0]

    def before(self, line: int) -> int | None:
        """The previous line that hits, around the beginning to the last one."""
        if not self.lines:
            return None
        return self.lines[bisect_left(self.lines, line) - 1]

    def place(self, line: int) -> int:
        """Which hit line that is, counted from 1; 0 when it is none."""
        at = bisect_left(self.lines, line)
        return at + 1 if at < len(self.lines) and self.lines[at] == line else 0

    def _run(self) -> None:
        self._look_near()
        offset = line = 0
        while not self._stop.is_set():
            for piece in forwards(self._file, offset, line, self._stop):
                if piece.data.endswith(b"\n"):
                    offset, line = piece.end, piece.first + piece.data.count(b"\n")
                    hits, count = self.query.lines(piece.text, piece.first)
                    self.count += count
                    self.scanned = offset
                    if hits and self.near_hit is None:
                        self.near_hit = hits[0]
                    if len(self.lines) < MAX_KEPT:
                        self.lines.extend(hits)
            self.done = True
            while self._file.size <= offset and not self._stop.wait(GROWTH_SECONDS):
                pass
            self._stop.wait(GROWTH_SECONDS)

    def _look_near(self) -> None:
        begin = None
        for piece in backwards(self._file, self._near + 1, self._stop):
            begin = begin or piece.end
            if begin - piece.end > NEAR_BYTES:
                return
            hits, _ = self.query.lines(piece.text, piece.first)
            hits = [hit for hit in hits if hit <= self._near]
            if hits:
                self.near_hit = hits[-1]
                return
