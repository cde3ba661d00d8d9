"""The log store: every task's output on disk first, byte for byte, and a sparse index of it.

A log is one raw file a task (`worker-0.log`). Bytes of a remote task are appended by the link
as they arrive; a task of this machine is written by its agent straight into the same folder,
and the store only learns how far it has grown, so that nothing is stored twice. Whoever shows
or searches a log reads the file. Next to it lies an index: for about every 64 KiB, and at
least for every quarter of a second of output, where in the file that was, how many newlines
stand before it and when it was received.
"""

from __future__ import annotations

import bisect
import os
import re
import struct
import sys
import threading
import time
from array import array
from contextlib import suppress
from functools import cache
from itertools import accumulate, repeat
from pathlib import Path
from typing import Any

from ..ids import TaskId
from ..lines import UP, is_native_frame, screen
from ..paths import open_regular
from ..printable import printable
from .disk import Files
from .rewritten import Rows, Stretch, Stretches, lines_above

MARK_BYTES = 64 * 1024
MARK_SECONDS = 0.25
_MARK = struct.Struct("<QQd")
_READ = 512 << 10
"""Bytes that are read at once: what is counted next should still be in the processor's cache."""
_STEP = 4 << 20
"""Bytes that are counted in one call by whoever has more to do."""
_FOLLOW_SECONDS = 0.1
_NEAR_END = 2 * MARK_BYTES
"""Bytes behind the last mark that are counted at once."""
_WRITER_SECONDS = 0.5
"""Longest wait for marks of another process under a flood; at ordinary times none is waited for."""
_FLOOD = 256 * 1024
"""Bytes at once that are a flood: under one, the launcher spent most of its time counting."""
_LONGEST_RECORD = 1 << 20
"""Bytes of a record of a stretch."""
_LONGEST_UP = 12
_UNFINISHED = re.compile(rb"\x1b(?:\[[0-9]{0,9})?\Z")
"""What may go on to be a movement upwards."""
_scratch = threading.local()


class _Marks:
    """Places in a log: the byte of each, the lines before it, and when it was received.

    Arrays: a log of 10 GiB has 160,000 marks, which as objects would take 30 MB.
    """

    def __init__(self) -> None:
        self.offsets = array("Q")
        self.lines = array("Q")
        self.times = array("d")

    def __len__(self) -> int:
        return len(self.times)

    def append(self, offset: int, lines: int, time: float) -> None:
        self.offsets.append(offset)
        self.lines.append(lines)
        self.times.append(time)

    def drop(self, count: int) -> None:
        """Forgets the first `count` marks."""
        del self.offsets[:count], self.lines[:count], self.times[:count]

    def packed(self, first: int) -> bytes:
        """The marks from the one numbered `first`, as the index file has them."""
        rest = zip(self.offsets[first:], self.lines[first:], self.times[first:], strict=True)
        return b"".join(_MARK.pack(*mark) for mark in rest)


@cache
def _numpy() -> Any:
    """What counts newlines four times as fast; None where it is missing: it comes with the trainer.
    Its import takes a tenth of a second, which only a flood is worth."""
    try:
        import numpy
    except ImportError:
        return None
    return numpy


def _newlines(data: bytes | bytearray, length: int, *, flood: bool) -> list[int]:
    """Newlines in each `MARK_BYTES` of the first `length` bytes.

    Under a flood numpy looks at all of them at once.
    """
    starts = range(0, length, MARK_BYTES)
    np = _numpy() if flood else None
    if np is None:
        return [data.count(b"\n", at, min(at + MARK_BYTES, length)) for at in starts]
    found = np.frombuffer(data, np.uint8, length) == ord("\n")
    return [int(np.count_nonzero(found[at : at + MARK_BYTES])) for at in starts]


def _goes_up(data: bytes | bytearray, length: int) -> bool:
    """Whether some bytes may move to a line above. Under a flood of coloured lines an expression
    would take as long as all the rest: there the letter A is looked for first, with which nearly
    all programs move up; that one uses F at such a speed is not noticed."""
    if data.find(b"\x1b", 0, length) < 0:
        return False
    np = _numpy() if length >= _FLOOD and "numpy" in sys.modules else None
    if np is not None:
        if data.find(b"A", 0, length) < 0:
            return False
        found = np.frombuffer(data, np.uint8, length)
        at = np.flatnonzero(found == ord("A"))
        before = found[at[at > 0] - 1]
        if not ((before == ord("[")) | (before - ord("0") < 10)).any():
            return False
    return UP.search(memoryview(data)[:length]) is not None


class LogFile:
    """One task's log: a raw file, its size, its lines, and marks into it.

    Written by one thread, which may wait for the disk; read by any, which never wait for it: a
    lock guards the marks, and the disk is not touched under it. Sizes and offsets are bytes,
    times are seconds since the epoch on this machine (time of receipt).
    """

    def __init__(
        self,
        path: Path,
        *,
        read_only: bool = False,
        only_writes: bool = False,
        disk: Files | None = None,
    ) -> None:
        """`read_only`: somebody else writes log and index, we only look. `only_writes`: bytes of an
        earlier launcher behind its index are left to `count`, and marks are forgotten when they
        are in the index: a writer needs none, and those of thousands of tasks take 200 MB an
        hour."""
        self.path = path
        self._disk = disk or Files()
        self._read_only = read_only
        self._only_writes = only_writes
        self._index_path = path.with_suffix(".idx")
        self._lock = threading.Lock()
        self.size = 0
        """Bytes that are on disk; for a reader, those that are counted, too."""
        self._counted = 0
        """Bytes from the beginning whose lines are known."""
        self._inherited = (0, 0.0)
        """Bytes that an earlier launcher has left, and when the last of them were written."""
        self.newlines = 0
        """Lines that are whole in the counted bytes: newlines, but for stretches that are
        rewritten."""
        self._stretches = Stretches()
        self._stretches_path = path.with_suffix(".rewritten")
        self._unfinished = b""
        """An escape sequence at the end of what was counted."""
        self._stretches_saved = self._stretches_read = 0
        """Bytes of the file of stretches that were written, or read and taken."""
        self._marks = _Marks()
        self._saved = 0
        """Marks that are in the index file."""
        self._forgotten = 0
        """Marks that are saved and dropped from memory."""
        self._read = 0
        """Bytes of the index file that have been read."""
        self._marks_came = 0.0
        """When the last marks of another process were read."""
        self._load()

    def read(self, offset: int, limit: int) -> bytes:
        """At most `limit` bytes from `offset`, never beyond `size`; none of a log that somebody
        has removed. Safe from any thread.

        Opened for each read (5 µs): who reads, and until when, nobody knows, least of all at the
        end of a run, so a descriptor that is kept is never closed.
        """
        limit = min(limit, self.size - offset)
        if limit <= 0:
            return b""
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return b""
        try:
            return os.pread(fd, limit, offset)
        finally:
            os.close(fd)

    def mark_before_line(self, line: int) -> tuple[int, int, int]:
        """The last place outside of stretches at or before line `line` (counted from 0): its
        offset, how many lines stand before that offset, and the offset up to which lines are what
        stands between newlines. The line begins somewhere after it."""
        with self._lock:
            # A mark with as many lines may lie inside that line: the one before it.
            at = bisect.bisect_left(self._marks.lines, line) - 1
            mark = (self._marks.offsets[at], self._marks.lines[at]) if at >= 0 else (0, 0)
            if not self._stretches:
                return *mark, self.size
            end, after, noticed = self._stretches.before_line(line)
            offset, lines = mark if mark[0] >= noticed else (end, after)
            following = self._stretches.after_offset(offset)
            return offset, lines, following.begin if following is not None else self.size

    def mark_before_offset(self, offset: int) -> tuple[int, int]:
        """The last mark at or before `offset`: its offset and the lines before it."""
        with self._lock:
            at = bisect.bisect_right(self._marks.offsets, offset) - 1
            return (self._marks.offsets[at], self._marks.lines[at]) if at >= 0 else (0, 0)

    def line_at(self, offset: int) -> int:
        """The number of the line that has the byte at `offset`."""
        with self._lock:
            stretch = self._stretches.of_offset(offset)
            end, after, noticed = self._stretches.place_before(offset)
        if stretch is not None:
            return self._stretches.line_at(self.read, stretch, offset)
        begin, line = self.mark_before_offset(offset)
        if begin < noticed:
            begin, line = end, after
        while begin < offset and (data := self.read(begin, min(_READ, offset - begin))):
            line += data.count(b"\n")
            begin += len(data)
        return line

    def shown(self) -> tuple[int, int, int]:
        """Bytes that are counted, lines that stand in them (a last one without its newline
        counts), and a generation counter of changes of lines before the last one."""
        with self._lock:
            size, block = self._counted, self._stretches.block
            changes = self._stretches.changes
            if block is not None:
                return size, block.count, changes
            lines = self.newlines
        return size, lines + (size > 0 and self.read(size - 1, 1) != b"\n"), changes

    def stretch_of(self, line: int) -> Stretch | None:
        """The stretch of lines that rewrite one another with line `line`."""
        if not self._stretches:
            return None
        with self._lock:
            return self._stretches.of_line(line)

    def next_stretch(self, offset: int) -> tuple[Stretch | None, int]:
        """The first stretch that begins at an offset or behind it, and the bytes that are
        counted."""
        with self._lock:
            return self._stretches.after_offset(offset), self._counted

    def rows(self, stretch: Stretch, line: int) -> Rows:
        """Lines of a stretch, with line `line` among them where there is such a line."""
        with self._lock:
            block, size = self._stretches.block, self._counted
            if stretch.end is None and block is not None and line >= block.top:
                return Rows(block.top, [row.copy() for row in block.rows], block.top)
        return self._stretches.rows(self.read, stretch, line, size)

    def time_at(self, offset: int) -> float | None:
        """Time of receipt of the byte at `offset`, to a quarter of a second."""
        with self._lock:
            at = bisect.bisect_right(self._marks.offsets, offset) - 1
            return self._marks.times[at] if at >= 0 else None

    def marks(self, first: int = 0) -> list[tuple[int, float]]:
        """The marks from the one numbered `first`: lines before it, and time of receipt."""
        with self._lock:
            marks = self._marks
            return list(zip(marks.lines[first:], marks.times[first:], strict=True))

    def append(self, offset: int, data: bytes, now: float) -> None:
        """Puts a remote task's bytes on disk; what is already there is not written again.

        Raises:
            OSError: the disk is full or gone; nothing was counted, the same call may be
                repeated.
            ValueError: there is a gap between the log's end and `offset`.
        """
        if offset > self.size:
            raise ValueError(f"{self.path.name}: bytes {self.size}–{offset} are missing")
        data = data[self.size - offset :]
        if not data:
            return
        view = memoryview(data)
        at = self.size
        while view:  # at our own count: a write cut short by a full disk is repeated
            written = self._disk.write(self.path, view, at)
            view = view[written:]
            at += written
        if self._counted == self.size:
            self._count(data, len(data), now)
        else:
            self.size += len(data)
        self._save_marks()

    def grown(self, size: int) -> None:
        """A task of this machine has written up to `size`, or as far as its file goes, which
        somebody may have cut; the new bytes are left to `count`.

        Raises:
            OSError: somebody has removed the file.
        """
        if size > self.size:
            self.size = max(self.size, min(size, os.stat(self.path).st_size))

    @property
    def uncounted(self) -> int:
        """Bytes that are left to `count`."""
        return self.size - self._counted

    def count(self, now: float) -> None:
        """Counts the next bytes, at most 4 MiB, so that whoever has more to do may do it between
        two calls.

        Raises:
            OSError: the file cannot be read.
        """
        size, written = self._inherited
        inherited = self._counted < size
        self._follow(min(self.size, self._counted + _STEP), written if inherited else now)
        self._save_marks()

    def _follow(self, size: int, now: float) -> None:
        """Counts what stands in the file up to `size`."""
        if size <= self._counted:
            return
        if not hasattr(_scratch, "buffer"):
            _scratch.buffer = bytearray(_READ)  # a fresh one for each read costs page faults
        buffer: bytearray = _scratch.buffer
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            until = time.monotonic() + _FOLLOW_SECONDS
            while self._counted < size:
                # Lines that are rewritten take a hundred times as long.
                most = MARK_BYTES if self._stretches.block is not None else _READ
                part = memoryview(buffer)[: min(most, size - self._counted)]
                count = os.preadv(fd, [part], self._counted)
                if not count:
                    break
                self._count(buffer, count, now)
                if self._stretches and time.monotonic() > until:
                    break  # lines that are rewritten take long, and others wait
        finally:
            os.close(fd)

    def refresh(self) -> bool:
        """Follows a log that another process writes: takes up the marks that it has saved since,
        and counts only what stands behind the last of them; False when it has not grown."""
        try:
            info = os.stat(self.path)
        except OSError:
            return False  # not there yet, or somebody has removed it
        before = self.size
        if info.st_size > before:
            now = time.monotonic()
            with suppress(OSError):
                # A stretch that goes on is followed here, unless that is far behind.
                if self._stretches.block is None or info.st_size - before > 2 * _NEAR_END:
                    self._load_marks(info.st_size)
                if self.size > before:
                    self._marks_came = now
                # While the writer's marks come it counts what stands behind them, too.
                waited = now - self._marks_came >= _WRITER_SECONDS
                if waited or info.st_size - self.size <= _NEAR_END:
                    self._follow(min(info.st_size, self.size + _STEP), info.st_mtime)
        return self.size > before

    def close(self) -> None:
        """Closes what was opened for writing; reading goes on to work."""
        self._disk.close()

    def _count(self, data: bytes | bytearray, length: int, now: float) -> None:
        """Counts the first `length` bytes of `data`, which follow on what was counted."""
        before, self._unfinished = self._unfinished, b""
        goes_up = bool(before) and UP.match(before + data[: min(length, _LONGEST_UP)]) is not None
        if self._stretches.block is None and not goes_up and not _goes_up(data, length):
            self._count_lines(data, length, now)
        else:
            self._count_rewritten(bytes(memoryview(data)[:length]), now, goes_up=goes_up)
        if self._stretches.block is None:
            found = _UNFINISHED.search(before + data[max(0, length - _LONGEST_UP) : length])
            self._unfinished = found.group() if found is not None else b""

    def _count_rewritten(self, data: bytes, now: float, *, goes_up: bool) -> None:
        """Counts bytes in which programs may move to lines above; `goes_up`: with the first of
        them such a movement ends."""
        stretches, at = self._stretches, 0
        while at < len(data):
            if stretches.block is not None:
                end = min(at + MARK_BYTES, len(data))
                with self._lock:
                    if self._is_due(now):
                        lines = stretches.line_of_mark()
                        lines = max(lines, self._marks.lines[-1] if self._marks else 0)
                        self._marks.append(self._counted, lines, now)
                    used = stretches.feed(data[at:end], self._counted)
                    block = stretches.block
                    lines = block.line if block is not None else stretches.last_line
                    self.newlines = max(self.newlines, lines)
                    self._counted += used
                    self.size = max(self.size, self._counted)
                at += used
                continue
            if goes_up:
                if (above := lines_above(self.read, self._counted, stretches.end)) is not None:
                    with self._lock:
                        stretches.begin(above, self._counted, self.newlines)
                    goes_up = False
                    continue
                end = data.find(b"\n", at) + 1 or len(data)  # a line of many megabytes
            else:
                found = None if stretches.is_full(self._counted) else UP.search(data, at)
                end = found.start() if found is not None else len(data)
            goes_up = not goes_up
            if end > at:
                self._count_lines(data[at:end], end - at, now)
                at = end

    def _is_due(self, now: float) -> bool:
        """What is counted next gets a mark."""
        marks = self._marks
        return (
            not marks
            or self._counted - marks.offsets[-1] >= MARK_BYTES
            or now - marks.times[-1] >= MARK_SECONDS
        )

    def _count_lines(self, data: bytes | bytearray, length: int, now: float) -> None:
        """Counts bytes in which lines are what stands between newlines."""
        # Who only looks at logs counts once.
        flood = length >= _FLOOD and (self._only_writes or "numpy" in sys.modules)
        counts = _newlines(data, length, flood=flood)
        with self._lock:
            marks = self._marks
            first = 0 if self._is_due(now) else 1  # a large chunk gets marks of its own
            *lines, newlines = accumulate(counts, initial=self.newlines)
            begin, end = self._counted, self._counted + length
            marks.offsets.extend(range(begin, end, MARK_BYTES)[first:])
            marks.lines.extend(lines[first:])
            marks.times.extend(repeat(now, len(marks.lines) - len(marks.times)))
            self.newlines = newlines
            self._counted = end
            self.size = max(self.size, end)

    def _save_marks(self) -> None:
        if self._read_only:
            self._stretches.unsaved.clear()
        if self._read_only or self._saved == self._forgotten + len(self._marks):
            return
        if not self._save_stretches():
            return  # marks do not run ahead of them
        raw = self._marks.packed(self._saved - self._forgotten)
        try:
            written = self._disk.write(self._index_path, raw, self._saved * _MARK.size)
        except OSError:
            return  # a full disk: the marks are kept here, and saved with the next ones
        self._saved += written // _MARK.size
        self._forget_marks()

    def _save_stretches(self) -> bool:
        unsaved = self._stretches.unsaved
        while unsaved:
            raw = "".join(f"{record}\n" for record in unsaved).encode()
            try:
                written = self._disk.write(self._stretches_path, raw, self._stretches_saved)
            except OSError:
                return False
            if written < len(raw):
                return False  # all of them are written again
            self._stretches_saved += written
            unsaved.clear()
        return True

    def _forget_marks(self) -> None:
        if not self._only_writes:
            return
        with self._lock:  # the last one says when the next is due
            self._stretches.forget()
            count = max(0, min(self._saved - self._forgotten, len(self._marks) - 1))
            self._marks.drop(count)
            self._forgotten += count

    def _load(self) -> None:
        """Takes up the log of an earlier launcher: its marks, then a count of what follows, which
        takes a writer too long: 2.5 s for each GiB."""
        if not self.path.exists():
            return
        info = self.path.stat()
        self._load_marks(info.st_size)
        self._forget_marks()
        if self._only_writes:
            self.size, self._inherited = info.st_size, (info.st_size, info.st_mtime)
        else:
            self._follow(info.st_size, info.st_mtime)

    def _load_marks(self, on_disk: int) -> None:
        """Reads marks from the index file, from where they were read last."""
        try:
            fd = os.open(self._index_path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            raw = os.pread(fd, max(0, os.fstat(fd).st_size - self._read), self._read)
        finally:
            os.close(fd)
        raw = raw[: len(raw) // _MARK.size * _MARK.size]
        marks = self._marks
        with self._lock:
            for offset, lines, time in _MARK.iter_unpack(raw):
                if offset > on_disk:
                    break
                if marks and offset <= max(marks.offsets[-1], self._counted):
                    if not self._read_only:
                        break
                    self._read += _MARK.size  # counted here already
                    continue
                self._read += _MARK.size
                marks.append(offset, lines, time)
            before = self._counted
            if marks and marks.offsets[-1] > before:
                self._counted, self.newlines = marks.offsets[-1], marks.lines[-1]
                self.size = max(self.size, self._counted)
                self._unfinished = b""
        self._saved = len(marks)
        if self._counted > before:
            self._load_stretches()

    def _load_stretches(self) -> None:
        """Takes up the stretches before the last mark."""
        stretches, position = self._stretches, self._stretches_read
        with suppress(OSError), open_regular(self._stretches_path) as file:
            file.seek(position)
            for record in file:
                if not record.endswith(b"\n") or len(record) > _LONGEST_RECORD:
                    break
                with self._lock:
                    if not stretches.take(record, self._counted):
                        break
                position += len(record)
        self._stretches_read = self._stretches_saved = position
        if stretches.goes_on:
            begin = stretches.last_state
            data = self.read(begin, self._counted - begin)
            with self._lock:
                stretches.resume(data, begin)
                if stretches.block is not None:
                    self.newlines = max(self.newlines, stretches.block.line)


TAIL_LINES = 20
TAIL_BYTES = 16 * 1024


def log_tail(log: LogFile, lines: int = TAIL_LINES, size: int = TAIL_BYTES) -> tuple[str, ...]:
    """The last lines of a log as they are shown, printable, each of at most 500 characters."""
    return tail_lines(log.read(max(0, log.size - size), size), lines)


def tail_lines(raw: bytes, lines: int = TAIL_LINES) -> tuple[str, ...]:
    """The last lines of some bytes, as `log_tail` has them, without stacks of machine code unless
    there is nothing else."""
    shown = [printable(line.expandtabs(), 500) for line in screen(raw)]
    found = [line for line in shown if line.strip()]
    said = [line for line in found if not is_native_frame(line)]
    return tuple((said or found)[-lines:])


class LogStore:
    """All logs of a run, in the run's folder. `open` is safe from any thread."""

    def __init__(
        self,
        folder: Path,
        *,
        read_only: bool = False,
        only_writes: bool = False,
        disk: Files | None = None,
    ) -> None:
        """`disk` writes all of them."""
        self.folder = folder
        self._read_only = read_only
        self._only_writes = only_writes
        self._disk = disk or Files()
        self._lock = threading.Lock()
        self._files: dict[TaskId, LogFile] = {}

    def open(self, task: TaskId) -> LogFile:
        """The log of a task; it is empty until the first byte has come."""
        with self._lock:
            if task not in self._files:
                path = self.folder / f"{task.stem}.log"
                self._files[task] = LogFile(
                    path,
                    read_only=self._read_only,
                    only_writes=self._only_writes,
                    disk=self._disk,
                )
            return self._files[task]

    def refresh(self) -> bool:
        """Follows the logs that have been opened and that another process writes; False when none
        has grown."""
        with self._lock:
            files = list(self._files.values())
        grown = [file.refresh() for file in files]
        return any(grown)

    def close(self) -> None:
        """Closes all logs for writing."""
        self._disk.close()
