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
"""A line longer than this is looked at in parts."""
ESCAPE = r"\x1b\[[0-?]*[ -/]*[@-~]"
"""A change of colour, and whatever else begins like one."""
ESCAPES = re.compile(ESCAPE.encode())


@dataclass(frozen=True)
class Chunk:
    """Whole lines of a log; `first` is the number of the first one."""

    first: int
    data: bytes
    end: int
    """Where in the file the chunk ends."""

    @property
    def coloured(self) -> bool:
        """Colours change in it, perhaps in the middle of a word."""
        return b"\x1b" in self.data

    @property
    def text(self) -> bytes:
        """The lines without colours."""
        return ESCAPES.sub(b"", self.data) if self.coloured else self.data


def forwards(file: LogFile, offset: int, line: int, stop: threading.Event) -> Iterator[Chunk]:
    """Chunks from `offset`, the beginning of line `line`, to the end as it is now. A last line
    without newline comes too, in a chunk of its own."""
    rest = b""
    size = file.size
    at = offset
    while at < size and not stop.is_set():
        data = file.read(at, min(CHUNK_BYTES, size - at))
        if not data:
            return
        at += len(data)
        rest += data
        cut = rest.rfind(b"\n") + 1
        if not cut and len(rest) < GIANT:
            continue
        whole, rest = (rest[:cut], rest[cut:]) if cut else (rest, b"")
        yield Chunk(line, whole, at - len(rest))
        line += whole.count(b"\n")
    if rest and not stop.is_set():
        yield Chunk(line, rest, at)


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
