"""Events and log lines of a run as they come, from the files in its folder."""

from __future__ import annotations

import json
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

from ..ids import TaskId
from ..lines import BLOCK_LINES, UP, Block, Row, displayed
from ..paths import open_regular
from ..printable import without_escapes
from ..store.runs import RunFolder
from ..store.stream import LineReader, LogEvent, PublicEvent, printable_values

Told = Callable[[float], list[PublicEvent]]
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
        self._early: set[int] = set()
        """Numbers of the notes that came from the launcher process, and not from the file yet."""

    def read(self, told: Told, *, last: bool = False) -> list[PublicEvent]:
        """The events that have come since the last call; with `last` nothing comes after them.
        `told` gives the records later than a time as the launcher process has sent them."""
        events = _events_in(self._events)
        if events:
            self._recorded = events[-1]["time"]
        found = sorted(
            [*events, *_events_in(self._metrics)], key=lambda event: float(event["time"])
        )
        lacking = told(self._recorded)
        if not last:
            late = time.time() - _LATE_SECONDS
            lacking = [one for one in lacking if one["event"] == "note" and one["time"] < late]
        new = [event for event in found + lacking if event.get("number") not in self._early]
        self._early -= {event["number"] for event in found if event["event"] == "note"}
        self._early |= {event["number"] for event in lacking if event["event"] == "note"}
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
_LONGEST_UP, _LONGEST_BAR = 16, 4096
"""Bytes of a movement upwards, and of a line that may be rewritten."""


class _Bars:
    """Lines that a program rewrites, for a reader that cannot go back: a line comes when the
    program has gone to lines below it twice, and again at the end where it has changed since."""

    def __init__(self, before: Iterable[bytes]) -> None:
        """`before` are the last lines that have come."""
        self._block = Block()
        self._said: dict[int, str] = {}
        for line in before:
            self._block.feed(line + b"\n")
        self._note_rows()
        self._lows = deque([self._block.line] * 2, maxlen=2)
        self._calm: int | None = None
        """The first line since the last movement upwards."""

    @property
    def is_over(self) -> bool:
        """No line that has come can be rewritten any more."""
        return self._calm is not None and self._block.last - self._calm > BLOCK_LINES

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that are at rest behind some bytes."""
        block, ups = self._block, self._block.ups
        block.low = block.last
        for line in data.splitlines(keepends=True):
            before = block.ups
            block.feed(line)
            if block.ups != before:
                self._calm = None
            elif self._calm is None and block.at_new_line:
                self._calm = block.last
        self._lows.append(min(block.low, block.line) if block.ups != ups else block.line)
        settled, block.settled = block.settled, []
        return self._come(settled, block.top - len(settled)) + self._come(
            block.rows[: max(0, min(self._lows) - block.top)], block.top
        )

    def end(self) -> list[bytes]:
        """The lines that have not come as they are now, but for an empty one behind the last."""
        block = self._block
        return self._come(block.rows[: block.count - block.top], block.top)

    def _come(self, rows: list[Row], first: int) -> list[bytes]:
        lines = []
        for number, row in enumerate(rows, first):
            text = row.text()
            if self._said.get(number) != text:
                self._said[number] = text
                lines.append(text.encode(errors="replace"))
        for number in [number for number in self._said if number < self._block.top]:
            del self._said[number]
        return lines

    def _note_rows(self) -> None:
        block = self._block
        for number, row in enumerate(block.rows[:-1], block.top):
            self._said[number] = row.text()
        block.settled.clear()


class LogLines:
    """Whole lines of one log file, as they come."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self._path = os.fspath(path)
        self._before: deque[bytes] = deque(maxlen=BLOCK_LINES)
        self._bars: _Bars | None = None
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
            with open_regular(self._path) as file:
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

    def lines(self, *, last: bool = False, raw: bool = False) -> list[bytes]:
        """The lines that have become whole; with `last` also one without a newline. Where a
        program rewrites lines above, those that are at rest, as they are shown; not with `raw`."""
        data = self.read()
        if self._bars is not None:
            return self._rewritten(data, last=last)
        if not data and not (last and self._rest):
            return []
        fresh = self._rest[-_LONGEST_UP:] + data  # a read may end within a movement
        if not raw and b"\x1b" in fresh and UP.search(fresh):
            self._bars = _Bars(self._before)
            data, self._rest = self._rest + data, b""
            return self._rewritten(data, last=last)
        parts = (self._rest + data).split(b"\n")
        self._rest = parts.pop()
        if len(self._rest) > _LONGEST or (last and self._rest and not data):
            parts.append(self._rest)
            self._rest = b""
        self.behind = self.behind or (last and bool(self._rest))
        self._before.extend(line[:_LONGEST_BAR] for line in parts[-BLOCK_LINES:])
        return parts

    def _rewritten(self, data: bytes, *, last: bool) -> list[bytes]:
        assert self._bars is not None
        lines = self._bars.feed(data) if data else []
        if (last and not data) or self._bars.is_over:
            lines += self._bars.end()
            self._bars = None
        self.behind = self.behind or (last and self._bars is not None)
        return lines


class RunLogs:
    """Lines of all tasks of a run. Its methods wait for the disk."""

    def __init__(self, folder: Path, tasks: Mapping[TaskId, str], *, from_end: bool) -> None:
        """`tasks` maps each task to its host; `from_end` skips what is there already."""
        make = LogLines.from_end if from_end else LogLines
        self._logs = {task: make(folder / f"{task.stem}.log") for task in tasks}
        self._tasks = tasks

    def read(
        self, only: TaskId | None = None, *, last: bool = False, raw: bool = False
    ) -> Iterator[tuple[TaskId, bytes]]:
        """Yields the next lines, of at most 256 KiB of each log, as `LogLines.lines` does."""
        for task in self._logs if only is None else (only,):
            for line in self._logs[task].lines(last=last, raw=raw):
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
