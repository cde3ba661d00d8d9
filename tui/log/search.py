"""Search of a whole log, chunk by chunk: the first hit soon, all of them counted."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import re2

from launcher.printable import CSI
from launcher.store.logs import LogFile

from .prefilter import prefilter
from .scan import ESCAPES, Chunk, backwards, chunks

MAX_KEPT = 2_000_000
"""Lines remembered for next and previous; beyond that hits are only counted."""
NEAR_BYTES = 1 << 30
"""Bytes searched backwards before counting begins at the beginning; about a second's worth."""
MAX_PER_LINE = 1000
"""Hits that are counted in one line: each may cost a look at the rest of the line."""
_LONGEST_ESCAPE = 64
_WITHIN = frozenset(b"\x1b[" + bytes(range(0x20, 0x40)))
"""Bytes that may stand before a byte of a change of colour."""
_SPECIAL = frozenset(".^$*+?{}[]\\|()")


class Query:
    """A query: a regular expression (RE2's syntax, which is Python's without what
    can take for ever), or the text itself when it is none. Without capitals it finds both cases.

    RE2 because a person types expressions while logs run: none of its expressions can hold up
    the other threads, and it goes through gigabytes in a second.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        options = re2.Options()
        options.log_errors = False
        options.case_sensitive = any(char.isupper() for char in text)
        self._coloured: Any = None
        """A plain text's own expression for coloured lines, ten times as fast as taking their
        colours out."""
        self._prefilter: Any = None
        try:
            self._pattern = re2.compile(f"(?m){text}", options)
            coarse = prefilter(text)
        except re2.error:
            self._pattern = re2.compile(re2.escape(text), options)
            coarse = None
        if not _SPECIAL.intersection(text):
            self._coloured = re2.compile(f"(?:{CSI})*".join(text), options)
        elif coarse is not None:
            with suppress(re2.error):  # too large with all the colours in it
                self._prefilter = re2.compile(coarse, options)

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Begin and end of each hit in a text that is drawn."""
        for match in self._pattern.finditer(text):
            if match.group():
                yield match.span()

    def lines(self, chunk: Chunk) -> tuple[list[int], int]:
        """The numbers of the lines that hit, and how many hits there are."""
        data = chunk.data
        find = self._pattern.finditer
        if chunk.coloured and self._coloured is not None:
            find = partial(_between_escapes, self._coloured)
        elif chunk.coloured and self._prefilter is not None and not self._prefilter.search(data):
            return [], 0
        elif chunk.coloured:
            data = chunk.text
        hits: list[int] = []
        count = at = here = 0
        line = chunk.first
        found = find(data, 0)
        while (match := next(found, None)) is not None:
            start, end = match.span()
            if start == end:
                continue
            count += 1
            line += data.count(b"\n", at, start)
            at = start
            if not hits or hits[-1] != line:
                hits.append(line)
                here = 0
            here += 1
            if here == MAX_PER_LINE:
                newline = data.find(b"\n", start)
                found = find(data, newline + 1 if newline >= 0 else len(data))
        return hits, count


def _between_escapes(pattern: Any, data: bytes, at: int) -> Iterator[Any]:
    """The hits in coloured lines from `at`, but for those that begin within a change of colour."""
    while at < len(data):
        for match in pattern.finditer(data, at):
            start = match.start()
            if start and data[start - 1] in _WITHIN:
                begin = data.rfind(b"\x1b", max(0, start - _LONGEST_ESCAPE), start)
                escape = ESCAPES.match(data, begin) if begin >= 0 else None
                if escape is not None and escape.end() > start:
                    at = escape.end()  # what follows it may hit, too
                    break
            yield match
        else:
            return


class Search:
    """Search of one log: looks back from `near` first, so that there is something to show, but
    not through gigabytes; then it counts from the beginning, and keeps up with the log's growth.

    A `Scanner` takes `scan` on; what it has found is read by the screen's clock.
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

    @property
    def size(self) -> int:
        """Bytes that the log has now; `scanned` of them have been searched."""
        return self._file.size

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

    def scan(self) -> Iterator[bool]:
        """Searches chunk by chunk; yields False at the log's end."""
        yield from self._search_near()
        for chunk in chunks(self._file):
            if chunk is None:
                self.done = True
                yield False
                continue
            hits, count = self.query.lines(chunk)
            self.count += count
            self.scanned = chunk.end
            if hits and self.near_hit is None:
                self.near_hit = hits[0]
            if len(self.lines) < MAX_KEPT:
                self.lines.extend(hits)
            yield True

    def _search_near(self) -> Iterator[bool]:
        begin = None
        for chunk in backwards(self._file, self._near + 1):
            begin = begin or chunk.end
            if begin - chunk.end > NEAR_BYTES:
                return
            hits, _ = self.query.lines(chunk)
            hits = [hit for hit in hits if hit <= self._near]
            if hits:
                self.near_hit = hits[-1]
                return
            yield True
