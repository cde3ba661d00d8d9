"""Finder: lines of logs that match a query, found by a thread while the logs grow.

A search, the walk from error to error and a filter differ in their query and in what is done with
the lines: `Finder` steps from one to the next, `Filtered` shows nothing else.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from launcher.ids import TaskId
from launcher.lines import BLOCK_LINES, Row
from launcher.quantities import thousands
from launcher.store.logs import LogFile
from launcher.store.rewritten import Stretch

from .document import Document, Line, Lines
from .query import Chunk, Query

CHUNK_BYTES = 256 * 1024
"""Small enough that the interpreter's lock is given back before a key would be felt to wait."""
GIANT = 4 * 1024 * 1024
"""Bytes of the last part of a line that are looked at; the rest of a longer line is not."""
MAX_KEPT = 2_000_000
"""Lines remembered for next and previous; beyond that hits are only counted."""
NEAR_BYTES = 1 << 30
"""Bytes searched backwards before counting begins at the beginning; about a second's worth."""
SEARCH_PAUSE, FILTER_PAUSE = 0.3, 0.1
"""Seconds after which logs that have been read to their ends are looked at again."""
_TURNS = 100
"""After so many, scans at their ends are asked again, although one log is still being read."""
_TRIES = 10_000
"""Hits of one log that are skipped because a filter hides them, before giving up."""


class Hits:
    """Numbers of the lines of one log that match a query. A `Scanner` takes `scan` on; what it has
    found so far is read by the screen's clock."""

    def __init__(self, file: LogFile, query: Query, *, near: int | None = None) -> None:
        """`near`: looks back from that line first, so that there is something to show."""
        self.query = query
        self.lines: array[int] = array("Q")
        self.count = 0
        """Hits: a line may have several."""
        self.done = False
        """Everything up to the log's end has been counted."""
        self.near_hit: int | None = None
        """The last line that hits at or before `near`, or when there is none within `NEAR_BYTES`
        before it, the first one that the count comes to."""
        self.scanned = 0
        """Bytes that have been counted."""
        self.file = file
        self._near = near

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
        near_by = self._near is not None and self.file.next_stretch(0)[0] is None
        if self._near is not None and near_by:
            yield from self._search_near(self._near)
        settled = counted = 0
        for chunk in chunks(self.file):
            if chunk is None:
                if not self.done and self._near is not None and not near_by and self.lines:
                    at = bisect_right(self.lines, self._near) - 1
                    self.near_hit = self.lines[max(0, at)]
                self.done = True
                yield False
                continue
            hits, count = self.query.lines(chunk)
            if len(self.lines) > settled:
                self.lines = self.lines[:settled]  # a new one: the screen reads it meanwhile
            self.count = counted + count
            self.scanned = chunk.end
            if hits and self.near_hit is None and (near_by or self._near is None):
                self.near_hit = hits[0]
            if len(self.lines) < MAX_KEPT:
                self.lines.extend(hits)
            if chunk.settled:
                settled, counted = len(self.lines), self.count
            yield True

    def _search_near(self, near: int) -> Iterator[bool]:
        begin = None
        for chunk in backwards(self.file, near + 1):
            begin = begin or chunk.end
            if begin - chunk.end > NEAR_BYTES:
                return
            hits, _ = self.query.lines(chunk)
            hits = [hit for hit in hits if hit <= near]
            if hits:
                self.near_hit = hits[-1]
                return
            yield True


class Finder:
    """A query in all logs behind some lines, all in one thread, and the place among its hits.

    Steps that are requested wait for their hits: `follow` is called every frame and returns the
    line that they have led to, once.
    """

    def __init__(self, lines: Lines, query: Query, near: int | None = None) -> None:
        """With `near`, the first hit is the last one at or before that line, and is known long
        before everything is counted; without it, steps wait until everything is."""
        self.lines = lines
        self.query = query
        self._near = near
        self._hits = {
            task: Hits(
                document.file,
                query,
                near=None if near is None else max(0, lines.last_at(task, near)),
            )
            for task, document in lines.documents().items()
        }
        self._steps = deque[int]([] if near is None else [-1])
        """Steps that wait for their hits: 1 forwards, -1 backwards."""
        self._at: int | None = None
        """The line that the last step led to."""
        self._placed: tuple[object, tuple[int, int]] | None = None
        scans = (hits.scan() for hits in self._hits.values())
        self._scanner = Scanner("finder", scans, SEARCH_PAUSE)

    def close(self) -> None:
        """Ends the thread; what was found remains."""
        self._scanner.close()

    @property
    def done(self) -> bool:
        """All logs have been counted through, or the finder was closed."""
        return self._scanner.closed or all(hits.done for hits in self._hits.values())

    @property
    def share(self) -> float:
        """Share of the logs that has been counted through, 0 to 1."""
        size = sum(hits.file.size for hits in self._hits.values())
        return sum(hits.scanned for hits in self._hits.values()) / size if size else 1.0

    @property
    def count(self) -> int:
        """Number of hits found so far in all logs."""
        return sum(hits.count for hits in self._hits.values())

    @property
    def waiting(self) -> bool:
        """A step was requested, and what it leads to is not known yet."""
        return bool(self._steps)

    @property
    def in_vain(self) -> bool:
        """A step was requested, and there is no line to go to."""
        return self.waiting and self.done and not self.count

    @property
    def note(self) -> str:
        """The query, the place among the lines that hit, and their number."""
        place, total = self.place()
        dots = "" if self.done else f"… {self.share * 100:.0f} %"
        return f"/{self.query.text} {place} of {thousands(total)}{dots}"

    def step(self, by: int) -> None:
        """Requests the next line that hits, or the previous one."""
        self._steps.append(by)

    def follow(self) -> int | None:
        """The line that was requested last; None while it is searched for, and when none was."""
        done = self.done  # before hits are asked for: more may be found meanwhile
        found = None
        while self._steps and (hit := self._next(self._steps[0], done)) is not None:
            self._steps.popleft()
            self._at = found = hit
        if done:
            self._steps.clear()
        return found

    def _next(self, by: int, done: bool) -> int | None:
        """The line that a step leads to; None while it is not known."""
        if self._at is None and self._near is not None:
            if (nearest := self.nearest()) is not None:
                return nearest
        if not done and (self._near is None or self._at is None):
            return None
        at = self._at if self._at is not None else self.lines.count if by < 0 else -1
        return self.neighbour(at, forward=by > 0)

    def nearest(self) -> int | None:
        """The last line that hits at or before where the search began."""
        found = [
            self.lines.locate(task, hits.near_hit)
            for task, hits in self._hits.items()
            if hits.near_hit is not None
        ]
        return max((line for line in found if line is not None), default=None)

    def place(self) -> tuple[int, int]:
        """Number of lines that hit up to the one that the last step led to, and of all of them."""
        found = {task: hits.lines for task, hits in self._hits.items() if hits.lines}
        total = sum(map(len, found.values()))
        if self._at is None:
            return 0, total
        asked = (self._at, total, self.lines.order)
        if self._placed is None or self._placed[0] != asked:
            before = (
                bisect_right(lines, self.lines.last_at(task, self._at))
                for task, lines in found.items()
            )
            self._placed = asked, (sum(before), total)
        return self._placed[1]

    def neighbour(self, number: int, *, forward: bool) -> int | None:
        """The line that hits next after a line, or before it, around the end; None when there is
        none yet."""
        found = [
            hit
            for task in self._hits
            if (hit := self._neighbour_in(task, number, forward=forward)) is not None
        ]
        if forward:
            ahead = [hit for hit in found if hit > number]
            return min(ahead or found, default=None)
        ahead = [hit for hit in found if hit < number]
        return max(ahead or found, default=None)

    def _neighbour_in(self, task: TaskId, number: int, *, forward: bool) -> int | None:
        hits = self._hits[task]
        line = self.lines.last_at(task, number)
        if not forward and self.lines.locate(task, line) != number:
            line += 1  # the line stands before `number`, so it may be a hit itself
        for _ in range(_TRIES):
            hit = hits.after(line) if forward else hits.before(line)
            if hit is None:
                return None
            place = self.lines.locate(task, hit)
            if place is not None:
                return place
            line = hit
        return None


class Filtered:
    """The lines of a log that match a query, or with a leading `!` those that do not.

    A `Scanner` takes `scan` through the log and keeps up with it; what has passed so far is shown
    at once. `Lines` for a pane.
    """

    def __init__(self, document: Document, text: str) -> None:
        self.document = document
        self._changes = 0
        """How often lines did not pass any more that had passed: they were rewritten."""
        self._exclude = text.startswith("!")
        self._query = Query(text[1:] if self._exclude else text)
        self._found: array[int] = array("Q")
        """Lines that have passed, for the thread."""
        self._passed = self._found
        self._count = 0
        self._scanned = self._taken = 0
        """Lines of the log that the thread has looked at, and as of the last `refresh`."""

    @property
    def count(self) -> int:
        """Lines that have passed, as of the last `refresh`."""
        return self._count

    @property
    def order(self) -> int:
        """Changes when lines were rewritten."""
        return self._changes + self.document.order

    def refresh(self) -> bool:
        """Adds what has passed since."""
        self._taken = self._scanned  # before the count: a mark may not run ahead of its lines
        before = self._count, self.order
        self._passed = self._found
        self._count = len(self._passed)
        self.document.refresh()  # after the count: each line that has passed is to be had there
        return (self._count, self.order) != before

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
        settled = 0
        for chunk in chunks(self.document.file):
            if chunk is not None:
                hits, _ = self._query.lines(chunk)
                if self._exclude:
                    out = set(hits)
                    hits = [n for n in range(chunk.first, chunk.after) if n not in out]
                if (before := list(self._found[settled:])) != hits[: len(before)]:
                    self._found = self._found[:settled]
                    self._changes += 1
                    before = []
                self._found.extend(hits[len(before) :])
                self._scanned = chunk.after
                if chunk.settled:
                    settled = len(self._found)
            yield chunk is not None


class Scanner:
    """A thread that takes scans of logs on by turns. Each yields whether it has advanced; when
    all have come to the ends of their logs, they are asked again after `pause` seconds."""

    def __init__(self, name: str, scans: Iterable[Iterator[bool]], pause: float) -> None:
        self._scans = list(scans)
        self._pause = pause
        self._stop = threading.Event()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def close(self) -> None:
        """Tells the thread to end; does not wait for it."""
        self._stop.set()

    @property
    def closed(self) -> bool:
        """Whether it was told to end."""
        return self._stop.is_set()

    def _run(self) -> None:
        while not self._stop.is_set():
            going = self._scans
            for _ in range(_TURNS):
                going = [scan for scan in going if self._advance(scan)]
                if not going:
                    self._stop.wait(self._pause)
                    break

    def _advance(self, scan: Iterator[bool]) -> bool:
        try:
            return not self._stop.is_set() and next(scan)
        except (OSError, StopIteration):  # somebody has removed the file
            return False


def chunks(file: LogFile) -> Iterator[Chunk | None]:
    """Chunks of finished lines from the beginning on, and None each time that the log's end has
    been reached; who then goes on looks for more. The last lines, which programs may rewrite, come
    again when the log has grown."""
    reading = _Reading()
    while True:
        stretch, size = file.next_stretch(reading.offset)
        yield from _plain_chunks(file, reading, size if stretch is None else stretch.begin, stretch)
        if stretch is None:
            yield None
            continue
        reading.line = stretch.line
        while True:
            rows = file.rows(stretch, reading.line)
            last = max(rows.final, reading.line)
            if lines := rows.rows[reading.line - rows.first : last - rows.first]:
                reading.line = last
                yield _chunk_of(lines, last - len(lines), reading.offset)
            stretch, size = file.next_stretch(stretch.begin)
            if stretch is None:
                return  # the log has become another one
            if stretch.end is not None and reading.line >= stretch.after:
                reading.offset, reading.line = stretch.end, stretch.after
                break
            if stretch.end is None and not lines:
                if (shown := rows.rows[reading.line - rows.first :]) and size != reading.seen:
                    reading.seen = size
                    yield _chunk_of(shown, reading.line, size, settled=False)
                yield None
            elif not lines and not rows.rows:  # its states cannot be read
                reading.offset, reading.line = stretch.end or size, stretch.after
                break


@dataclass
class _Reading:
    """How far a log has been read."""

    offset: int = 0
    line: int | None = 0
    """The number of the line at the offset; None where nobody has counted so far."""
    seen: int = 0
    """Size of the log at which lines that may be rewritten came last."""

    def place(self, file: LogFile, begin: int) -> int | Callable[[], int]:
        """The number of the line at this offset, or what finds it."""
        return partial(file.line_at, begin) if self.line is None else self.line


def _chunk_of(rows: list[Row], first: int, end: int, *, settled: bool = True) -> Chunk:
    text = "".join(f"{row.text()}\n" for row in rows)
    return Chunk(first, text.encode(errors="replace"), end, settled)


def _plain_chunks(
    file: LogFile, reading: _Reading, end: int, stretch: Stretch | None
) -> Iterator[Chunk]:
    """Chunks of lines that are what stands between newlines, up to an offset, at which a stretch
    of others begins, or the log has its end."""
    at, rest = reading.offset, b""
    while at < end:
        data = file.read(at, min(CHUNK_BYTES, end - at))
        if not data:
            break
        at += len(data)
        rest += data
        whole = rest.rfind(b"\n") + 1
        cut = whole if at == end and stretch is not None else _settled(rest)
        if len(rest) - whole >= GIANT:
            cut = whole
        if cut:
            begin = at - len(rest)
            reading.offset = begin + cut
            chunk = Chunk(reading.place(file, begin), rest[:cut], reading.offset)
            yield chunk
            reading.line = vars(chunk).get("after")
            rest, whole = rest[cut:], whole - cut
        if len(rest) - whole >= GIANT:
            begin, rest = at - len(rest), b""
            yield Chunk(reading.place(file, begin), b"", reading.offset)
    if stretch is None and (whole := rest.rfind(b"\n") + 1) and at != reading.seen:
        reading.seen = at
        begin = at - len(rest)
        place = reading.place(file, begin)
        yield Chunk(place, rest[:whole], begin + whole, settled=False)


def _settled(data: bytes) -> int:
    """Where the last lines begin, which may be rewritten."""
    cut = len(data)
    for _ in range(BLOCK_LINES + 1):
        cut = data.rfind(b"\n", 0, cut)
        if cut < 0:
            return 0
    return cut + 1


def backwards(file: LogFile, line: int) -> Iterator[Chunk]:
    """Chunks of the lines before line `line` of a log without stretches, the nearest first; each
    chunk begins at a mark, so its first line may be cut."""
    offset, newlines, _ = file.mark_before_line(line)
    end = offset + CHUNK_BYTES
    while True:
        data = file.read(offset, end - offset)
        yield Chunk(newlines, data, offset + len(data))
        if offset == 0:
            return
        end = offset
        offset, newlines = file.mark_before_offset(max(0, offset - CHUNK_BYTES))
