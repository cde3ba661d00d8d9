"""Events and log lines of a run as they come, from the files in its folder."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

from ..ids import TaskId
from ..lines import displayed
from ..printable import without_escapes
from ..store.runs import RunFolder
from ..store.stream import LineReader, LogEvent, PublicEvent, printable_values

if TYPE_CHECKING:
    from .client import RunClient


_LATE_SECONDS = 2.0
"""Age from which on a note that the file does not have comes from the launcher."""


class EventFiles:
    """The events of one run, each once, from its two files. Where the disk takes nothing, notes
    come from the launcher process, and at the end what the file lacks; `read` waits for the disk.
    """

    def __init__(self, folder: RunFolder, *, from_end: bool) -> None:
        """`from_end`: only what comes from now on."""
        make = LineReader.from_end if from_end else LineReader
        self._events, self._metrics = make(folder.events), make(folder.metrics)
        self._recorded = time.time() if from_end else 0.0
        """Time of the last event in the file."""
        self._early: list[int] = []
        """Numbers of the notes that came from the launcher process."""

    def read(self, client: RunClient, *, last: bool = False) -> list[PublicEvent]:
        """The events that have come since the last call; with `last` nothing comes after them."""
        events = _events_in(self._events)
        if events:
            self._recorded = events[-1]["time"]
        found = sorted(
            [*events, *_events_in(self._metrics)], key=lambda event: float(event["time"])
        )
        lacking = client.records(self._recorded)
        if not last:
            late = time.time() - _LATE_SECONDS
            lacking = [one for one in lacking if one["event"] == "note" and one["time"] < late]
        new = [event for event in found + lacking if event.get("number") not in self._early]
        self._early += [one["number"] for one in lacking if one["event"] == "note"]
        return new


def _events_in(reader: LineReader) -> list[PublicEvent]:
    """The events of the lines that have come."""
    return [event for line in reader.read() if (event := _event(line)) is not None]


def _event(line: bytes) -> PublicEvent | None:
    """The event of a line; None where it is damaged, or for launchers alone."""
    try:
        event = printable_values(json.loads(line))
    except (ValueError, RecursionError):
        return None
    if not isinstance(event, dict) or event.get("event") == "facts":
        return None
    return event if isinstance(event.get("time"), int | float) and "event" in event else None


_CHUNK = 1 << 18
_LONGEST = 1 << 20


class LogLines:
    """Whole lines of one log file, as they come."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self._path = os.fspath(path)
        self._offset = offset
        self._rest = b""
        self.behind = False
        """The file has more than was read."""

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

    @property
    def left(self) -> int:
        """Bytes that have not been read yet."""
        with suppress(OSError):
            return max(0, os.stat(self._path).st_size - self._offset)
        return 0

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
        """A file has more than was read."""
        return any(log.behind for log in self._logs.values())

    @property
    def left(self) -> int:
        """Bytes that have not been read yet."""
        return sum(log.left for log in self._logs.values())


def line_text(line: bytes) -> str:
    """Text of a line as it is shown."""
    return displayed(line).decode(errors="replace")
