"""Index of the parts of a log whose lines rewrite one another, as bars do that stand one above the
other.

A `Stretch` begins with the upper line that a program could reach when it went up for the first
time, and ends before the first of `BLOCK_LINES` lines without a further movement: whatever comes
behind those cannot reach it. Outside of stretches a line of a log is what stands between two
newlines. Inside there are fewer lines than newlines: a line is what a terminal shows of it in the
end, and counts once.

An hour of bars is one stretch of many megabytes, so the state of the block is recorded about every
64 KiB; whoever needs a line reads on from the last state before it has settled. Whoever counts a
log finds its stretches and writes them to a file beside its index; readers take them from there.
"""

from __future__ import annotations

import bisect
import json
from array import array
from collections.abc import Callable
from typing import Any

from ..frozen import frozen
from ..lines import BLOCK_BYTES, BLOCK_LINES, Block, Row

STATE_BYTES = 64 * 1024
_PIECE = 16 * 1024
_FEW, _EACH_BYTES, _MOST = 1000, 4096, 100_000
"""Stretches of one log: a few, one more for so many bytes, and no more than that. A program that
makes more of them is shown as it writes: what is recorded of a stretch takes about a kilobyte."""
_MOST_STATES = 512
"""That a process remembers of one log; of more of them every other one."""
_MOST_BACK = 16 << 20
"""Bytes through which the beginning of a line is looked for."""
_OPEN = 2**64 - 1
Read = Callable[[int, int], bytes]
"""Reads at most so many bytes from an offset."""


@frozen
class Stretch:
    """A part of a log whose lines rewrite one another."""

    begin: int
    line: int
    """The number of its first line."""
    end: int | None
    """None while it may go on."""
    after: int
    """The number of the line behind it."""

    def has(self, line: int) -> bool:
        return self.line <= line and (self.end is None or line < self.after)


@frozen
class Rows:
    """Some lines of a stretch; those below `final` are settled."""

    first: int
    rows: list[Row]
    final: int

    def has(self, line: int) -> bool:
        return self.first <= line < self.first + len(self.rows)


class Stretches:
    """The stretches of one log, and the block at its end while one goes on."""

    def __init__(self) -> None:
        self._begins = array("Q")
        self._lines = array("Q")
        self._ends = array("Q")
        self._afters = array("Q")
        self._noticed = array("Q")
        """Offset at which the end was noticed: marks before it count other lines."""
        self._states: list[tuple[int, int, str]] = []
        """Offset, number of the upper line, and state of the block, in this order."""
        self.block: Block | None = None
        """The block of the stretch that goes on."""
        self.unsaved: list[str] = []
        """Records that are not in the file yet."""
        self.changes = 0
        """A generation counter: lines in their middle have changed."""
        self._at = 0
        """Offset up to which records count."""
        self._count = 0
        """Stretches, with those that are forgotten."""
        self._next_state = 0
        self._ups = 0
        self.last_line = 0
        """The number of the lowest line of the block that has ended last."""
        self._calm: tuple[int, int] | None = None
        """Offset and number of the first line since the last movement upwards."""

    def __len__(self) -> int:
        return len(self._begins)

    def is_full(self, offset: int) -> bool:
        """No further stretch is taken note of in a log of so many bytes."""
        return self._count >= min(_MOST, _FEW + offset // _EACH_BYTES)

    @property
    def end(self) -> int:
        """Offset behind the last stretch that has ended."""
        return next((end for end in reversed(self._ends[-2:]) if end != _OPEN), 0)

    def __getitem__(self, at: int) -> Stretch:
        end = self._ends[at]
        known = None if end == _OPEN else end
        return Stretch(self._begins[at], self._lines[at], known, self._afters[at])

    def of_line(self, line: int) -> Stretch | None:
        """The stretch with a line; None where it stands between two."""
        at = bisect.bisect_right(self._lines, line) - 1
        return self[at] if at >= 0 and self[at].has(line) else None

    def of_offset(self, offset: int) -> Stretch | None:
        """The stretch with a byte."""
        at = bisect.bisect_right(self._begins, offset) - 1
        return self[at] if at >= 0 and offset < self._ends[at] else None

    def before_line(self, line: int) -> tuple[int, int, int]:
        """Offset behind the last stretch that ended before a line, the line's number there, and
        the offset from which marks count."""
        at = bisect.bisect_right(self._lines, line) - 1
        at -= at >= 0 and self[at].has(line)
        return self._behind(at)

    def place_before(self, offset: int) -> tuple[int, int, int]:
        """Offset behind the last stretch that begins at or before a byte, the line's number there,
        and the offset from which marks count."""
        return self._behind(bisect.bisect_right(self._begins, offset) - 1)

    def _behind(self, at: int) -> tuple[int, int, int]:
        return (self._ends[at], self._afters[at], self._noticed[at]) if at >= 0 else (0, 0, 0)

    def line_of_mark(self) -> int:
        """The line for a mark at the end of what was counted: the first one that was rewritten
        since the mark before, since it is only now as it is; where none was, that of the cursor."""
        block = self.block
        assert block is not None
        low, block.low = block.low, block.line
        return min(low, block.line)

    def after_offset(self, offset: int) -> Stretch | None:
        """The first stretch that begins at an offset or behind it."""
        at = bisect.bisect_left(self._begins, offset)
        return self[at] if at < len(self) else None

    # --- whoever counts -------------------------------------------------------------------

    def begin(self, above: Above, offset: int, lines: int) -> None:
        """Begins a stretch: at `offset`, in line `lines`, is a movement upwards."""
        first = lines - above.data.count(b"\n")
        block = self.block = Block(first)
        block.keeps_settled = False
        at = offset - len(above.data)
        block.offset = block.rows[0].start = block.rows[0].end = above.begin
        for line in above.data.splitlines(keepends=True):
            at += len(line)
            block.feed(line)
            block.offset = at
        self._open(above.begin, first)
        self._ups, self._calm = block.ups, None
        self._record("begin", offset, above.begin, first)
        self._remember(offset)

    def feed(self, data: bytes, offset: int) -> int:
        """Goes on with the stretch; returns how many bytes were taken: not all where it ended."""
        block, at = self.block, 0
        assert block is not None
        self.changes += 1
        while at < len(data):
            cut = data.find(b"\n", at) + 1 or len(data)
            cut = min(cut, at + _PIECE)
            block.offset = offset + at
            block.feed(data[at:cut])
            at = cut
            if block.ups != self._ups:
                self._ups, self._calm = block.ups, None
            if data[at - 1] == 0x0A and block.at_new_line:
                if self._calm is None:
                    self._calm = offset + at, block.last
                elif (
                    block.last - self._calm[1] >= BLOCK_LINES
                    or offset + at - self._calm[0] >= BLOCK_BYTES
                ):
                    self.last_line = block.last
                    self._record("end", offset + at, *self._calm)
                    self._close(offset + at, *self._calm)
                    return at
            if offset + at >= self._next_state:
                self._remember(offset + at)
        return at

    def _remember(self, offset: int) -> None:
        assert self.block is not None
        state = json.dumps([*(self._calm or (0, 0)), self.block.state()])
        self._record("state", offset, self.block.top, state)
        self._keep(offset, self.block.top, state)
        self._next_state = offset + max(STATE_BYTES, 4 * len(state))

    def _record(self, kind: str, at: int, *values: Any) -> None:
        self.unsaved.append(json.dumps([kind, at, *values]))
        self._at = at

    def _open(self, begin: int, line: int) -> None:
        self._begins.append(begin)
        self._lines.append(line)
        self._ends.append(_OPEN)
        self._afters.append(0)
        self._noticed.append(_OPEN)
        self._count += 1
        self.changes += 1

    def _close(self, noticed: int, end: int, after: int) -> None:
        self._ends[-1], self._afters[-1], self._noticed[-1] = end, after, noticed
        self.block = None
        self.changes += 1

    def _keep(self, offset: int, top: int, state: str) -> None:
        self._states.append((offset, top, state))
        if len(self._states) > _MOST_STATES:
            del self._states[1:-1:2]

    def forget(self) -> None:
        """Keeps only what the next bytes need: who only writes looks nothing up."""
        del self._states[:-1]
        if len(self) > 2:
            columns = self._begins, self._lines, self._ends, self._afters, self._noticed
            for column in columns:
                del column[:-2]

    # --- whoever reads --------------------------------------------------------------------

    def take(self, record: bytes, limit: int) -> bool:
        """Takes a record from the file, where it is of bytes before `limit`; what is known here
        already, or damaged, is passed over."""
        try:
            kind, at, first, second = json.loads(record)
            if not all(isinstance(value, int) and 0 <= value < _OPEN for value in (at, first)):
                return True
            if at > limit:
                return False
            if at < self._at:
                return True
            live = self.goes_on
            if kind == "begin" and not live and first >= self.end and self._count < _MOST:
                self._open(first, int(second))
            elif kind == "state" and live:
                self._keep(at, first, str(second))
            elif kind == "end" and live and first >= self._begins[-1]:
                self._close(at, first, max(int(second), self._lines[-1]))
            self._at = at
        except (ValueError, TypeError, OverflowError, RecursionError):
            pass
        return True

    @property
    def goes_on(self) -> bool:
        """The last stretch has not ended."""
        return len(self) > 0 and self._ends[-1] == _OPEN

    @property
    def last_state(self) -> int:
        """Offset of the last state that is known."""
        return self._states[-1][0] if self._states else 0

    def resume(self, data: bytes, begin: int) -> None:
        """Sets the block up for what comes behind `data`, which begin at the last state, and
        before which all records were taken."""
        found = _restored(self._states[-1][2]) if self._states else None
        if found is None or begin < self._begins[-1]:
            here = begin + len(data)
            self._close(here, here, self._lines[-1])
            return
        (self._calm, self.block), state = found, self._states[-1][2]
        self._ups, self._next_state = 0, begin + max(STATE_BYTES, 4 * len(state))
        self.block.keeps_settled = False
        self.feed(data, begin)
        self.unsaved.clear()

    def rows(self, read: Read, stretch: Stretch, line: int, size: int) -> Rows:
        """Lines of a stretch, with that of a number among them if there is such a line; `size` is
        the end of the log."""
        found = [
            state
            for state in list(self._states)  # another thread may count meanwhile
            if stretch.begin <= state[0] <= (size if stretch.end is None else stretch.end)
        ]
        at = max(0, bisect.bisect_right(found, line, key=lambda state: state[1]) - 1)
        if at >= len(found) or (restored := _restored(found[at][2])) is None:
            return Rows(line, [], line)
        _, block = restored
        offset, is_last = found[at][0], at == len(found) - 1
        end = (size if stretch.end is None else stretch.end) if is_last else found[at + 1][0]
        first = block.top
        while offset < end and block.top <= line + BLOCK_LINES:
            data = read(offset, min(_PIECE, end - offset))
            if not data:
                break
            for piece in data.splitlines(keepends=True):
                block.offset = offset
                block.feed(piece)
                offset += len(piece)
        if not is_last or offset < end:
            return Rows(first, block.settled, block.top)
        if stretch.end is None:
            return Rows(first, block.settled + block.rows, block.top)
        return Rows(first, (block.settled + block.rows)[: stretch.after - first], stretch.after)

    def line_at(self, read: Read, stretch: Stretch, offset: int) -> int:
        """The number of the line in which a byte of a stretch was written."""
        states = [s for s in list(self._states) if stretch.begin <= s[0] <= offset]
        if not states or (restored := _restored(states[-1][2])) is None:
            return stretch.line
        at, (_, block) = states[-1][0], restored
        block.keeps_settled = False
        while at < offset and (data := read(at, min(_PIECE, offset - at))):
            block.feed(data)
            at += len(data)
        return block.line


def _restored(state: str) -> tuple[tuple[int, int] | None, Block] | None:
    """A block and the beginning of its calm; None where the record is damaged."""
    try:
        offset, line, block = json.loads(state)
        return (offset, line) if offset else None, Block.restored(block)
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return None


@frozen
class Above:
    """The lines that a program may reach."""

    begin: int
    """Offset of the first of them."""
    data: bytes
    """Their bytes; of a first one that is longer than all others together its end."""


def lines_above(read: Read, offset: int, low: int) -> Above | None:
    """The last lines before an offset, and what stands before it in its own line; none before
    `low`. None where the beginning of the first one is far away."""
    begin = max(low, offset - BLOCK_BYTES)
    data = read(begin, offset - begin)
    cut = len(data)
    for _ in range(BLOCK_LINES):
        cut = data.rfind(b"\n", 0, cut)
        if cut < 0:
            break
    if cut >= 0:
        return Above(begin + cut + 1, data[cut + 1 :])
    end = begin
    while end > low:
        if offset - end > _MOST_BACK:
            return None
        at = max(low, end - BLOCK_BYTES)
        found = read(at, end - at).rfind(b"\n")
        if found >= 0:
            return Above(at + found + 1, data)
        end = at
    return Above(low, data)
