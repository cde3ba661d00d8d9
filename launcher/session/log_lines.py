"""Lines of log files, read as they come by whoever wants them: a slow reader holds up nobody."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from ..ids import TaskId
from ..printable import without_escapes
from ..store.public_events import LogEvent

_CHUNK = 1 << 18
_LONGEST = 1 << 20


class LogLines:
    """Whole lines of one log file, as they come."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self._path = path
        self._fd = -1
        self._offset = offset
        self._rest = b""

    @classmethod
    def from_end(cls, path: Path) -> Self:
        """Follows a file from its present end."""
        return cls(path, path.stat().st_size if path.exists() else 0)

    def read(self) -> bytes:
        """The next bytes, at most 256 KiB."""
        if self._fd < 0:
            try:
                self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return b""  # the task has not written anything yet
        data = os.pread(self._fd, _CHUNK, self._offset)
        self._offset += len(data)
        return data

    def lines(self, *, last: bool = False) -> list[bytes]:
        """The lines that have become whole; with `last` also one without a newline."""
        data = self.read()
        parts = (self._rest + data).split(b"\n")
        self._rest = parts.pop()
        if len(self._rest) > _LONGEST or (last and self._rest and not data):
            parts.append(self._rest)
            self._rest = b""
        return parts

    @property
    def behind(self) -> bool:
        """There is more to read."""
        return bool(self._rest) or (self._fd >= 0 and self._offset < os.fstat(self._fd).st_size)

    def close(self) -> None:
        """Closes the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class RunLogs:
    """Lines of all tasks of a run as public events. Its methods wait for the disk."""

    def __init__(self, folder: Path, tasks: Mapping[TaskId, str], *, from_end: bool) -> None:
        """`tasks` maps each task to its host; `from_end` skips what is there already."""
        paths = {task: folder / f"{task.stem}.log" for task in tasks}
        make = LogLines.from_end if from_end else LogLines
        self._logs = {task: make(path) for task, path in paths.items()}
        self._tasks = tasks

    def read(self, *, last: bool = False) -> list[LogEvent]:
        """The next lines, of at most 256 KiB of each log; with `last` also what ends without a
        newline."""
        return [
            {
                "event": "log",
                "time": time.time(),
                "task": str(task),
                "host": self._tasks[task],
                "text": without_escapes(line_text(line)),
            }
            for task, log in self._logs.items()
            for line in log.lines(last=last)
        ]

    @property
    def behind(self) -> bool:
        """There is more to read."""
        return any(log.behind for log in self._logs.values())

    def close(self) -> None:
        """Closes the files."""
        for log in self._logs.values():
            log.close()


def line_text(line: bytes) -> str:
    """Text of a line as its last carriage return leaves it."""
    return line.decode(errors="replace").rstrip("\r").rsplit("\r", 1)[-1]
