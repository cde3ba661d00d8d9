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
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from ..printable import printable

LONGEST = 1 << 20
"""Bytes of the longest line that is looked at; the longest that is written is the final snapshot of
a run with a thousand tasks."""
_LONGEST_TEXT = 1 << 16
_CHUNK = 1 << 20


@dataclass
class Damage:
    """What of a run's record could not be read."""

    records: int = 0
    reason: str = ""
    """Why the file could not be read, or not to its end."""

    def __bool__(self) -> bool:
        return bool(self.records or self.reason)

    def told(self, run_id: str) -> str:
        """A sentence; empty where all was read."""
        count = f"{self.records} record{'' if self.records == 1 else 's'} of {run_id}"
        words = [f"{count} could not be read"] if self.records else []
        if self.reason:
            words.append(f"the events of {run_id} could not be read: {self.reason}")
        return "; ".join(words)


class Lines:
    """Puts lines together from chunks; one that is too long is dropped and counted."""

    def __init__(self, damage: Damage) -> None:
        self._damage = damage
        self._rest = b""
        self._dropping = False

    @property
    def rest(self) -> bytes:
        """The beginning of a line that has no end yet."""
        return self._rest

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yields the lines that have become whole."""
        *lines, rest = (self._rest + chunk).split(b"\n")
        if lines and self._dropping:
            self._dropping = False
            lines = lines[1:]
        for line in lines:
            if len(line) <= LONGEST:
                yield line
            else:
                self._damage.records += 1
        if len(rest) > LONGEST and not self._dropping:
            self._dropping = True
            self._damage.records += 1
        self._rest = b"" if self._dropping else rest


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
            raise OSError(errno.ENOLINK, "it is a dangling link") from None
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is no file")
    return os.fdopen(fd, "rb", buffering=0)


def chunks(path: Path, damage: Damage) -> Iterator[bytes]:
    """The bytes of a file; why it cannot be read (to its end) stands in `damage`."""
    try:
        with open_regular(path) as file:
            while chunk := file.read(_CHUNK):
                yield chunk
    except FileNotFoundError:
        return
    except OSError as error:
        damage.reason = error.strerror or str(error)


def records(lines: Iterable[bytes], damage: Damage) -> Iterator[dict[str, Any]]:
    """The JSON objects among the lines."""
    for line in lines:
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if isinstance(record, dict):
            yield record
        else:
            damage.records += 1


def stored_records(path: Path, damage: Damage) -> Iterator[dict[str, Any]]:
    """The records of a file; a last line that a crash has cut is left out."""
    lines = Lines(damage)
    for chunk in chunks(path, damage):
        yield from records(lines.feed(chunk), damage)
    yield from records([lines.rest], Damage())


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
