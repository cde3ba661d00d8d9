"""Reader of files that hold one JSON object a line.

Such a file outlives the program that wrote it: a crash cuts a line, a disk or a person damages
it. So lines are read one by one, none that is too long is kept, and what cannot be read is
counted.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import TypeAdapter

from ..printable import printable
from ..quantities import counted

LONGEST = 64 << 20
"""Bytes of the longest line that is looked at, and that is written: with 8,000 tasks on as many
hosts the last record has 9 MiB, and the facts of the hosts may have 8 KiB each."""
_LONGEST_TEXT = 1 << 16
_BUFFER = 1 << 18
_TAIL = 1 << 16
"""Bytes at the end of a file that are looked at first for its last line."""


@dataclass
class Damage:
    """Parts of a run's record that could not be read."""

    records: int = 0
    reason: str = ""
    """Why the file could not be read, or not to its end."""

    def __bool__(self) -> bool:
        return bool(self.records or self.reason)

    def describe(self, run_id: str) -> str:
        """A sentence; empty where all was read."""
        count = f"{counted(self.records, 'record')} of {run_id}"
        words = [f"{count} could not be read"] if self.records else []
        if self.reason:
            words.append(f"the events of {run_id} could not be read: {self.reason}")
        return "; ".join(words)


def open_regular(path: Path) -> BinaryIO:
    """Opens a file for reading.

    Raises:
        FileNotFoundError: nothing is there: the run has just been made.
        OSError: it cannot be read, or is a folder, a pipe, a link to nowhere.
    """
    # A pipe in the file's place must not be waited for.
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        if path.is_symlink():
            raise OSError(errno.ENOLINK, "a dangling symbolic link") from None
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file")
    return os.fdopen(fd, "rb", buffering=_BUFFER)


def read_lines(file: BinaryIO, damage: Damage) -> Iterator[bytes]:
    """Yields the lines of a file from where it stands; the last one may have no end yet. One that
    is too long is dropped and counted."""
    while line := file.readline(LONGEST + 1):
        if len(line) <= LONGEST or line.endswith(b"\n"):
            yield line
            continue
        damage.records += 1
        while line and not line.endswith(b"\n"):
            line = file.readline(_BUFFER)


def last_line(path: Path) -> bytes:
    """The last line of a file, without its end; empty where that is too long.

    Raises:
        OSError: the file cannot be read.
    """
    with open_regular(path) as file:
        size, wanted = os.fstat(file.fileno()).st_size, _TAIL
        while True:
            start = max(0, size - wanted)
            file.seek(start)
            _, newline, line = file.read(wanted).rstrip(b"\n").rpartition(b"\n")
            if newline or not start:
                return line if len(line) <= LONGEST else b""
            if wanted > LONGEST:
                return b""
            wanted = min(4 * wanted, LONGEST + 2)  # the line between two newlines


def stored_records(path: Path, damage: Damage) -> Iterator[dict[str, Any]]:
    """The JSON objects of a file; a last line that a crash has cut is left out. What cannot be
    read, and why the file cannot be read to its end, stands in `damage`."""
    try:
        with open_regular(path) as file:
            for line in read_lines(file, damage):
                record = _parsed(line)
                if isinstance(record, dict):
                    yield record
                elif line.strip() and line.endswith(b"\n"):
                    damage.records += 1
    except FileNotFoundError:
        return
    except OSError as error:
        damage.reason = error.strerror or str(error)


@cache
def form(kind: Any) -> TypeAdapter[Any]:
    """Reader and writer of a kind of value, made once."""
    return TypeAdapter(kind)


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def printable_values(value: Any) -> Any:
    """A JSON value whose texts are all safe to show."""
    if isinstance(value, str):
        return printable(value, _LONGEST_TEXT)
    if isinstance(value, dict):
        items = value.items()
        return {printable(key, _LONGEST_TEXT): printable_values(item) for key, item in items}
    if isinstance(value, list):
        return [printable_values(item) for item in value]
    return value
