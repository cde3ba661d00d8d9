"""Scan of a whole log in chunks of whole lines, for threads of their own."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from launcher.printable import CSI
from launcher.store.logs import LogFile

CHUNK_BYTES = 256 * 1024
"""Small enough that the interpreter's lock is given back before a key would be felt to wait."""
GIANT = 4 * 1024 * 1024
"""Of a longer line only the last part is looked at."""
_TURNS = 100
"""After so many, scans at their ends are asked again, although one log is still being read."""
ESCAPES = re.compile(CSI.encode())


@dataclass(frozen=True)
class Chunk:
    """Whole lines of a log; `first` is the number of the first one."""

    first: int
    data: bytes
    end: int
    """Offset in the file of the end of the chunk."""

    @property
    def after(self) -> int:
        """The number of the line after the chunk."""
        return self.first + self.data.count(b"\n")

    @property
    def coloured(self) -> bool:
        """Colours change in it, perhaps in the middle of a word."""
        return b"\x1b" in self.data

    @property
    def text(self) -> bytes:
        """The lines without escape sequences of colours."""
        return ESCAPES.sub(b"", self.data) if self.coloured else self.data


def chunks(file: LogFile) -> Iterator[Chunk | None]:
    """Chunks of finished lines from the beginning on, and None each time that the log's end has
    been reached; who then goes on looks for more."""
    offset = line = 0
    while True:
        at, size, rest = offset, file.size, b""
        while at < size:
            data = file.read(at, min(CHUNK_BYTES, size - at))
            if not data:
                break
            at += len(data)
            rest += data
            if cut := rest.rfind(b"\n") + 1:
                offset = at - len(rest) + cut
                chunk = Chunk(line, rest[:cut], offset)
                yield chunk
                line, rest = chunk.after, rest[cut:]
            elif len(rest) >= GIANT:
                rest = b""
                yield Chunk(line, b"", offset)
        yield None


def backwards(file: LogFile, line: int) -> Iterator[Chunk]:
    """Chunks of the lines before line `line`, the nearest first; each chunk begins at a mark,
    so its first line may be cut."""
    offset, newlines = file.mark_before_line(line)
    end = offset + CHUNK_BYTES
    while True:
        data = file.read(offset, end - offset)
        yield Chunk(newlines, data, offset + len(data))
        if offset == 0:
            return
        end = offset
        offset, newlines = file.mark_before_offset(max(0, offset - CHUNK_BYTES))


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
