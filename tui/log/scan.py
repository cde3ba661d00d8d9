"""Scan of a whole log in chunks of whole lines, for threads of their own."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from launcher.store.logs import LogFile

CHUNK_BYTES = 256 * 1024
"""Small enough that the interpreter's lock is given back before a key would be felt to wait."""
GIANT = 4 * 1024 * 1024
"""Of a longer line only the last part is looked at."""
ESCAPE = r"\x1b\[[0-?]*[ -/]*[@-~]"
"""A change of colour, and whatever else begins like one."""
ESCAPES = re.compile(ESCAPE.encode())


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
        """The lines without colours."""
        return ESCAPES.sub(b"", self.data) if self.coloured else self.data


def follow(file: LogFile, stop: threading.Event, pause: float) -> Iterator[Chunk | None]:
    """Chunks of finished lines from the beginning on, and None each time that the log's end has
    been reached; looks for more every `pause` seconds until `stop` is set."""
    offset = line = 0
    while not stop.is_set():
        at, size, rest = offset, file.size, b""
        while at < size and not stop.is_set():
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
        yield None
        while file.size <= offset and not stop.wait(pause):
            pass
        stop.wait(pause)


def backwards(file: LogFile, line: int, stop: threading.Event) -> Iterator[Chunk]:
    """Chunks of the lines before line `line`, the nearest first; each chunk begins at a mark,
    so its first line may be cut."""
    offset, newlines = file.mark_before_line(line)
    end = offset + CHUNK_BYTES
    while not stop.is_set():
        data = file.read(offset, end - offset)
        yield Chunk(newlines, data, offset + len(data))
        if offset == 0:
            return
        end = offset
        offset, newlines = file.mark_before_offset(max(0, offset - CHUNK_BYTES))
