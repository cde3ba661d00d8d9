"""Stream of a run: its records as lines of JSON, in `events.jsonl` and `metrics.jsonl`.

Each line is a whole view (`run.snapshot`), so that the last line about a task, a host or the run
says how it stands, whatever became of the lines before; `metrics.jsonl` has the metric lines of the
tasks. The same lines are printed by `--json`. Such a file outlives the program that wrote it: a
crash cuts a line, a disk or a person damages it, and what cannot be read is counted.

A stream is complete only up to its end, a `Summary`, which the launcher writes when nothing
follows. Without it nobody can see how many records a power failure or a hanging disk has taken.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import math
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal, get_args

from pydantic import ConfigDict, Field, TypeAdapter
from pydantic_core import PydanticSerializationError

from ..frozen import frozen
from ..ids import TaskId
from ..printable import printable
from ..quantities import age, counted
from ..run.fields import Attempt, Count, ExitCode, Time
from ..run.gpus import GpuSample
from ..run.snapshot import (
    Metric,
    Receipt,
    RunView,
    Snapshot,
    TaskView,
)
from ..run.states import HostState, Outcome, RunPhase
from ..run.views import Record, Views
from .declared import Declared

LONGEST = 16 << 20
"""Bytes of the longest line that is looked at, and that is written: a receipt of 1,024 hosts with a
hundred survivors each."""
_LONGEST_TEXT = 1 << 16
_BUFFER = 1 << 18
_MOST_DAMAGE = 64 << 20
"""Bytes in which no record is found, after which only the end of the file is looked at: a crash
cuts a line, and a launcher writes no more."""
_COST_OF_LINE = 1 << 12
"""Bytes that could be read in the time in which a line is found to be no record."""
_BEFORE = 1 << 10
"""Bytes by which a place in a file is found again."""
_MOST_SEARCHED = 1 << 26
_TAIL = 1 << 16
"""Bytes at the end of a file that are looked at first for its last line."""


@frozen
class Summary:
    """A run in short: the end of its stream, and a line about it in lists."""

    run_id: Annotated[str, Field(alias="run")]
    """The run's id."""
    name: str
    """Name of its cluster."""
    state: RunPhase
    """State of the run."""
    started: Time
    """When it was launched."""
    ended: Time | None = None
    """When it ended."""
    outcome: Outcome | None = None
    """How it ended."""
    exit_code: ExitCode | None = None
    """Exit code of `tfmux up FILE`; absent while there is none."""
    first_failure: str = ""
    """The task that failed first, its host, and how; else the first host that refused, and why."""
    cause_text: str = ""
    """Which task is guilty of the failure, and why; empty where nothing points to one."""
    attempt: Attempt = 1
    """Number of the start of all tasks: from 1 on, more with `restart-all`."""
    attempt_text: str = ""
    """`attempt 2 of 4: worker:1 exit 1 on tf2`, where all tasks were started again."""
    clean: bool | None = None
    """Every host has confirmed that no process is left; absent without a receipt."""
    tasks: Count = 0
    """Number of its tasks."""
    live: Count = 0
    """Number of its tasks that may have a process."""
    stalled: Count = 0
    """Number of its tasks whose next metric line is long overdue."""
    stalled_since: Time | None = None
    """When the last metric line of the first of them came."""
    hosts: tuple[str, ...] = ()
    """Its hosts, by their names in the cluster file."""
    step: Count | None = None
    """The highest global step that any task has reported."""
    loss: float | None = None
    """The chief's loss."""
    waiting: str = ""
    """Tasks or hosts that are waited for, such as `ps:0 on tf1:2222`."""
    kept: Mapping[str, Count] = field(default_factory=dict)
    """Bytes that its tasks have left in the workdirs of hosts."""
    time: Time = field(default=0.0, compare=False)
    """When this was recorded, in seconds since the epoch."""
    event: Literal["end"] = "end"

    def stalled_text(self, now: float) -> str:
        """`2 tasks have stalled, for 41 s`; empty if none has."""
        if self.stalled_since is None:
            return ""
        which = "1 task has" if self.stalled == 1 else f"{self.stalled} tasks have"
        return f"{which} stalled, for {age(now - self.stalled_since)}"

    @classmethod
    def of(cls, seen: Snapshot, now: float) -> Summary:
        """The summary of a run as it stands; one that was taken over has no end here."""
        failure, left = seen.first_failure, seen.outcome is Outcome.TAKEN_OVER
        refused = (
            f"{one.name}: {one.reason}" for one in seen.hosts if one.state is HostState.REFUSED
        )
        stalled = [t.stalled_since for t in seen.tasks if t.stalled_since is not None]
        return cls(
            seen.run_id,
            seen.name,
            seen.state,
            seen.started,
            ended=None if left else seen.ended,
            outcome=None if left else seen.outcome,
            exit_code=None if left else seen.exit_code,
            first_failure=f"{failure.task} @{failure.host} {failure.how}"
            if failure
            else next(refused, ""),
            cause_text=seen.verdict.text if seen.verdict is not None else "",
            attempt=seen.attempt,
            attempt_text=seen.attempt_text,
            clean=None if seen.receipt is None else seen.clean,
            tasks=len(seen.tasks),
            live=sum(task.state.live for task in seen.tasks),
            stalled=len(stalled),
            stalled_since=min(stalled, default=None),
            hosts=tuple(host.name for host in seen.hosts),
            step=seen.step,
            loss=seen.loss,
            waiting=seen.waiting,
            kept={one.host: one.bytes for one in seen.results_kept if one.bytes},
            time=now,
        )


@frozen
class LogLine:
    """A line of a task's log: on stdout alone, in none of these files."""

    id: Annotated[TaskId, Field(alias="task")]
    """The task, such as `worker:0`."""
    host: str
    """The host of the cluster file."""
    text: str
    """The line, printable."""
    time: Time = 0.0
    """Seconds since the epoch."""
    event: Literal["log"] = "log"


Line = Record | Metric | GpuSample | Summary
PublicEvent = dict[str, Any]
"""A record as programs get it: what JSON has in its line."""
LogEvent = dict[str, Any]
"""A line of a log as programs get it."""
_CONFIG = ConfigDict(ser_json_inf_nan="strings")


@cache  # no launch waits for it: the first record comes when its agents are being started
def _line_type() -> TypeAdapter[Line]:
    kinds = Annotated[
        Record | Metric | GpuSample | Summary,
        Field(discriminator="event"),
    ]
    return TypeAdapter(kinds, config=_CONFIG)


_STAY = ("reason", "doubt", "attempt", "stage", "tasks", "live")
_EMPTY: dict[str, frozenset[str]] = {
    kind.event: frozenset(
        one.name
        for one in dataclasses.fields(kind)
        if one.default_factory is dict
        or (isinstance(one.default, str | tuple | bool | int) and not one.default)
        if one.name not in _STAY
    )
    for kind in get_args(Line)
}
"""Keys that a record lacks where they are empty, false or 0, since that is their default."""


def plain(line: Line) -> dict[str, Any]:
    """A record as JSON has it: what is absent, empty or false is left out, as far as that is what
    a key stands for that is not there."""
    absent = not isinstance(line, Receipt)  # which says of each host all that it can say
    try:
        values = json.loads(_line_type().dump_json(line, by_alias=True, exclude_none=absent))
    except PydanticSerializationError:  # half a surrogate pair: a name that is not UTF-8
        values = _line_type().dump_python(line, mode="json", by_alias=True, exclude_none=absent)
    head: dict[str, Any] = {"time": line.time, "event": line.event}
    if isinstance(line, Receipt):
        head["clean"] = line.clean
    missing = _EMPTY[line.event]
    return head | {key: value for key, value in values.items() if value or key not in missing}


def encode(line: Line) -> bytes:
    """A record as a line; half a surrogate pair stands in it as JSON has it."""
    text = json.dumps(plain(line), ensure_ascii=False)
    return text.encode(errors="backslashreplace") + b"\n"


def decode(values: Any) -> Line:
    """Reads a record from what JSON has; its texts are made printable, but for those of facts,
    which go back to hosts as they are and are never shown.

    Raises:
        ValueError: it is none that this version knows.
        RecursionError: its values are nested too deeply.
    """
    facts = isinstance(values, dict) and values.get("event") == "facts"
    line = _line_type().validate_python(values if facts else printable_values(values))
    if isinstance(line, TaskView | RunView) and not line.is_sound():
        raise ValueError(f"a record of {line.event} contradicts itself")
    return line


def parse(line: bytes) -> Line:
    """Reads a line.

    Raises:
        ValueError: it is no record that this version knows.
        RecursionError: its values are nested too deeply.
    """
    return decode(json.loads(line))


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


# --- reading ----------------------------------------------------------------------------------


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


class LineReader:
    """Whole lines of a file that grows; `read` goes on where the last call has ended, also in a
    file that was put in its place, with older lines left out (`thinning`)."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.offset = 0
        self.damage = Damage()
        self._damaged = 0
        """Bytes in which there was no record, as far as is known here."""
        self._before = b""
        """The bytes before the offset, by which it is found again."""
        self.cut = False
        """A line stands at the end that is not whole."""

    @classmethod
    def from_end(cls, path: Path) -> LineReader:
        """Reads what comes from now on."""
        reader = cls(path)
        with suppress(OSError), _open_regular(path) as file:
            reader.offset = os.fstat(file.fileno()).st_size
            file.seek(max(0, reader.offset - _BEFORE))
            reader._before = file.read(reader.offset - file.tell())
        return reader

    def read(self) -> Iterator[bytes]:
        """Yields the lines that are whole; one that is being written, or that a crash has cut, is
        left for the next call. Those that are too long are dropped and counted."""
        try:
            with _open_regular(self._path) as file:
                self.cut = False
                self._seek(file)
                while line := file.readline(LONGEST + 1):
                    if self._damaged > _MOST_DAMAGE:
                        self._skip(file)
                        continue
                    if not line.endswith(b"\n") and len(line) <= LONGEST:
                        self.cut = True
                        return
                    self.offset += len(line)
                    self._before = (self._before + line)[-_BEFORE:]
                    if line.endswith(b"\n"):
                        yield line
                        continue
                    self.damage.records += 1
                    self._damaged += len(line)
                    while line and not line.endswith(b"\n") and self._damaged <= _MOST_DAMAGE:
                        line = file.readline(_BUFFER)
                        self._damaged += len(line)
                        self.offset += len(line)
                        self._before = (self._before + line)[-_BEFORE:]
        except FileNotFoundError:
            return
        except OSError as error:
            self.damage.reason = error.strerror or str(error)

    def _skip(self, file: BinaryIO) -> None:
        """Goes on behind the first newline in the last sixteenth of what is left of a file that is
        no stream, where that is much."""
        self._damaged = 0
        left = os.fstat(file.fileno()).st_size - self.offset
        if left > _TAIL:
            self.damage.reason = "most of the file holds no records"
            self.offset += left - left // 16
            self._before = b""
        file.seek(self.offset)
        whole = left <= _TAIL
        while not whole and self._damaged <= _MOST_DAMAGE and (line := file.readline(_BUFFER)):
            self.offset += len(line)
            self._damaged += len(line)
            whole = line.endswith(b"\n")

    def _seek(self, file: BinaryIO) -> None:
        """Goes to where the last call has ended."""
        before = self._before
        file.seek(self.offset - len(before))
        if file.read(len(before)) == before:
            return
        file.seek(0)
        contents = file.read(_MOST_SEARCHED)
        at = contents.rfind(before)
        if at >= 0:
            self.offset = at + len(before)
        else:  # too far behind: by time
            self.offset = _after(contents, before)
        self._before = contents[max(0, self.offset - _BEFORE) : self.offset]
        file.seek(self.offset)

    def skip(self, most: int) -> None:
        """Leaves out what lies before the last `most` bytes."""
        with suppress(OSError), _open_regular(self._path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > most:
                file.seek(size - most)
                self.offset = size - most + len(file.readline(most))

    def records(self) -> Iterator[Line]:
        """Yields the records that are whole; lines that hold none are counted as damage."""
        for line in self.read():
            if not line.strip():
                self._damaged += _COST_OF_LINE
                continue  # a launcher begins one after what an earlier one may have left
            try:
                yield parse(line)
            except (ValueError, RecursionError):
                self.damage.records += 1
                self._damaged += _COST_OF_LINE + len(line)


@dataclass
class Stream:
    """The file of a run, as far as it can be read."""

    views: Views
    damage: Damage
    end: Summary | None = None
    """The end of the run, when no record has followed."""
    last: float = 0.0
    """Time of the last record."""

    @property
    def complete(self) -> bool:
        """The end is there, and nothing before it is missing."""
        return self.end is not None and not self.damage


def read_stream(path: Path, run: str | Declared) -> Stream:
    """Folds the whole file of a run; one that is not there is empty. A record that contradicts what
    is known of the `run`, by its id alone or by the other files of its folder, counts as damaged.
    """
    declared = run if isinstance(run, Declared) else Declared(run)
    run_id, reader = declared.run_id, LineReader(path)
    views = Views(RunView(run_id, run_id, RunPhase.CONNECTING, 0.0))
    stream = Stream(views, reader.damage)
    for record in reader.records():
        if not declared.admits(record):
            reader.damage.records += 1
            continue
        stream.last = max(stream.last, record.time)
        stream.end = record if isinstance(record, Summary) else None
        if not isinstance(record, Summary | Metric | GpuSample):
            views.take(record)
    if reader.cut:
        stream.end = None
    return stream


def read_end(path: Path, run_id: str) -> Summary | None:
    """The end of the stream, by its last line alone; None where that is another record, or another
    run's: the run goes on, or its last launcher could not write all."""
    with suppress(OSError, ValueError, RecursionError):  # reading the whole stream will say why
        line = _last_line(path)
        record = parse(line) if line else None
        if isinstance(record, Summary) and record.run_id == run_id:
            return record
    return None


def _after(contents: bytes, line: bytes) -> int:
    """Offset of the first line that was recorded later than another one."""
    last = _time(line[line.rfind(b"\n", 0, -1) + 1 :])
    offset = 0
    for each in contents.splitlines(keepends=True):
        if _time(each) > last:
            break
        offset += len(each)
    return offset


def _time(line: bytes) -> float:
    """When a line was recorded; that of one that does not say it is minus infinity."""
    found = re.match(rb'\{"time": ([0-9.]+)', line)
    try:
        return float(found[1]) if found else -math.inf
    except ValueError:
        return -math.inf


def _open_regular(path: Path) -> BinaryIO:
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


def _last_line(path: Path) -> bytes:
    """The last line of a file that is whole, without its end; empty where that is too long."""
    with _open_regular(path) as file:
        size, wanted = os.fstat(file.fileno()).st_size, _TAIL
        while True:
            start = max(0, size - wanted)
            file.seek(start)
            tail = file.read(wanted)
            if not tail.endswith(b"\n"):
                return b""
            _, newline, line = tail.rstrip(b"\n").rpartition(b"\n")
            if newline or not start:
                return line if len(line) <= LONGEST else b""
            if wanted > LONGEST:
                return b""
            wanted = min(4 * wanted, LONGEST + 2)  # the line between two newlines
