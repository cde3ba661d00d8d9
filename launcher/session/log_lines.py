"""Lines of log files, read as they come by whoever wants them: a slow reader holds up nobody.

No file stays open between two reads: a run may have more logs than a process may open files.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

from ..ids import TaskId
from ..printable import without_escapes
from ..store.stream import LogEvent

_CHUNK = 1 << 18
_LONGEST = 1 << 20


class LogLines:
    """Whole lines of one log file, as they come."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self._path = os.fspath(path)
        self._offset = offset
        self._rest = b""
        self.behind = False
        """There was more to read than was read."""

    @classmethod
    def from_end(cls, path: Path) -> Self:
        """Follows a file from its present end."""
        return cls(path, path.stat().st_size if path.exists() else 0)

    def read(self) -> bytes:
        """The next bytes, at most 256 KiB; none while the file is not there or cannot be opened."""
        self.behind = False
        try:
            size = os.stat(self._path).st_size
            if size <= self._offset:
                return b""
            with open(self._path, "rb", buffering=0) as file:
                data = os.pread(file.fileno(), _CHUNK, self._offset)
        except OSError:
            return b""
        self._offset += len(data)
        self.behind = bool(data) and self._offset < size
        return data

    def lines(self, *, last: bool = False) -> list[bytes]:
        """The lines that have become whole; with `last` also one without a newline."""
        data = self.read()
        if not data and not (last and self._rest):
            return []
        parts = (self._rest + data).split(b"\n")
        self._rest = parts.pop()
        if len(self._rest) > _LONGEST or (last and self._rest and not data):
            parts.append(self._rest)
            self._rest = b""
        self.behind = self.behind or (last and bool(self._rest))
        return parts


class RunLogs:
    """Lines of all tasks of a run. Its methods wait for the disk."""

    def __init__(self, folder: Path, tasks: Mapping[TaskId, str], *, from_end: bool) -> None:
        """`tasks` maps each task to its host; `from_end` skips what is there already."""
        make = LogLines.from_end if from_end else LogLines
        self._logs = {task: make(folder / f"{task.stem}.log") for task in tasks}
        self._tasks = tasks

    def read(
        self, only: TaskId | None = None, *, last: bool = False
    ) -> Iterator[tuple[TaskId, bytes]]:
        """Yields the next lines, of at most 256 KiB of each log; with `last` also what ends without
        a newline."""
        for task in self._logs if only is None else (only,):
            for line in self._logs[task].lines(last=last):
                yield task, line

    def event(self, task: TaskId, line: bytes) -> LogEvent:
        """A line as an event."""
        return {
            "time": time.time(),
            "event": "log",
            "task": str(task),
            "text": without_escapes(line_text(line)),
            "host": self._tasks[task],
        }

    @property
    def behind(self) -> bool:
        """There was more to read than was read."""
        return any(log.behind for log in self._logs.values())


def line_text(line: bytes) -> str:
    """Text of a line as its last carriage return leaves it."""
    return line.decode(errors="replace").rstrip("\r").rsplit("\r", 1)[-1]
