"""The end of a log that has reached its limit: a file of bounded size, written in a circle.

Where bytes had to go, a mark in the log says how many, and the first line behind it is a whole one.
The file begins with its state, so that an agent after this one finds what it has kept.
"""

from __future__ import annotations

import os
import re
import struct
from contextlib import suppress
from typing import Iterator

_STATE = struct.Struct("<QQ")
"""Bytes that the file keeps, and bytes that have come to it."""
_MOST_KEPT = 16 << 20
_LEAST_KEPT = 64
_LEAST_ROOM = 400
_MOST_ROOM = 256 << 20
_MARK_BYTES = 128
"""Bytes of a mark at most."""
_LONGEST_LINE = 64 << 10
_MOST_ABOVE = 50
_UPS = re.compile(rb"\x1b\[([0-9]{0,2})[AF]")
_MOVES = re.compile(rb"(?:\x1b\[[0-9]{0,2}[AF][\r\n]?)+")
_STEP = 1 << 20


def end_room(limit: int) -> int:
    """Bytes of a limit that are left for ends: of several attempts, which come one after the
    other."""
    room = min(limit // 2, _MOST_ROOM)
    return room if room >= _LEAST_ROOM else 0


class LogEnd:
    """Keeper of the last bytes of one attempt. Used by one thread at a time."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = -1
        self._keeps = 0
        self._came = 0
        self.used = False
        """Something is kept, or was to be."""
        self.left_out = 0
        """Bytes of the line before the first whole one, as of the last `parts`."""

    def begin(self, room: int) -> None:
        """Begins to keep what is written; the log has so much room left. Half of it stays free, for
        the attempts that follow, and because the file stands beside the log until its content is
        there. Never raises."""
        keeps = min(_MOST_KEPT, (room - _MARK_BYTES) // 2 - _STATE.size)
        self._keeps = keeps if keeps >= _LEAST_KEPT else 0
        self._came, self.used = 0, True
        if self._keeps:
            flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
            try:
                self._fd = os.open(self._path, flags, 0o600)
            except OSError:
                self._keeps = 0

    def take_up(self) -> bool:
        """Takes up what another agent has kept here; False where there is nothing."""
        if self.used:
            return False
        try:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:  # the usual case: there is none
            return False
        with suppress(OSError, struct.error):
            keeps, came = _STATE.unpack(os.pread(self._fd, _STATE.size, 0))
            if 0 < min(keeps, came) <= os.fstat(self._fd).st_size - _STATE.size:
                self._keeps, self._came, self.used = keeps, came, True
                return True
        self.remove()  # its disk was full
        return False

    def write(self, data: memoryview) -> tuple[int, int]:
        """Keeps some bytes in the place of the oldest; how many bytes that has cost by the limit,
        and how many by the disk."""
        came = len(data)
        if not self._keeps:
            self._came += came
            return came, 0
        gone = max(0, self._came + came - self._keeps) - max(0, self._came - self._keeps)
        at = self._came + max(0, came - self._keeps)
        data = data[max(0, came - self._keeps) :]
        try:
            while data:
                place = at % self._keeps
                part = data[: self._keeps - place]
                written = os.pwrite(self._fd, part, _STATE.size + place)
                at += written
                data = data[written:]
            os.pwrite(self._fd, _STATE.pack(self._keeps, self._came + came), 0)
        except OSError:  # a full disk: what it has is kept
            return 0, came
        self._came += came
        return gone, 0

    def parts(self, after: bytes, room: int) -> Iterator[bytes]:
        """What is to be appended to a log whose last byte is `after`, where there is `room`: a
        mark, unless all is here, and the end."""
        self.left_out = 0
        if min(self._came, self._keeps) + _MARK_BYTES > room:
            return  # ends of many attempts have used it
        first = max(0, self._came - self._keeps)
        above = 0
        if first and self._keeps:
            start = self._read(first, _LONGEST_LINE)
            self.left_out = _line_start(start)
            first += self.left_out
            above = _lines_above(start)
        if first:
            newline = b"" if after == b"\n" else b"\n"
            mark = b"[tfmux: %d bytes are not kept here: log_limit]\n" % first
            yield newline + mark + b"\n" * above
        while first < self._came and (part := self._read(first, _STEP)):
            first += len(part)
            yield part

    def _read(self, at: int, limit: int) -> bytes:
        place = at % self._keeps
        limit = min(limit, self._came - at, self._keeps - place)
        try:
            return os.pread(self._fd, limit, _STATE.size + place)
        except OSError:
            return b""

    def remove(self) -> None:
        """Forgets what was kept."""
        if self._fd >= 0:
            with suppress(OSError):
                os.unlink(self._path)
        self.close()

    def close(self) -> None:
        """Closes the file, which stays."""
        fd, self._fd = self._fd, -1
        self._keeps = self._came = 0
        self.used = False
        if fd >= 0:
            with suppress(OSError):
                os.close(fd)


def _lines_above(data: bytes) -> int:
    """Lines by which a program moves up, to rewrite its progress bars: the mark stays above."""
    moves = (_UPS.findall(found.group()) for found in _MOVES.finditer(data))
    ups = (sum(int(number or 1) for number in numbers) for numbers in moves)
    return min(_MOST_ABOVE, max(ups, default=0))


def _line_start(data: bytes) -> int:
    """Where the first whole line begins; in a very long one, a character."""
    found = data.find(b"\n") + 1
    if found:
        return found
    return next((at for at in range(min(4, len(data))) if data[at] & 0xC0 != 0x80), 0)
