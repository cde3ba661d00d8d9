"""Typed reader of a run's `events.jsonl` (`records` describes what stands there).

The file outlives the program that wrote it: a crash cuts a line, another version writes other
fields, a disk or a person damages it. So records are read one by one, each field is checked
here and nowhere else, and what cannot be read is counted.
"""

from __future__ import annotations

import errno
import json
import math
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, model_validator

from ..ids import TaskId
from ..printable import printable
from ..run.snapshot import Failure, HostReceipt, Receipt
from ..run.states import HostState, Outcome, RunState, TaskState

LONGEST = 1 << 20
"""Bytes of the longest line that is looked at; the longest that is written has some 50 kB."""
_CHUNK = 1 << 20
_LAST_TIME = 253402300799.0
"""The end of the year 9999: what comes later cannot be shown as a date."""
_LARGEST = 1 << 53
OWN_KEYS = frozenset({"time", "event", "task", "host", "values", "rate"})
"""Keys of a metric record that are no metrics."""


def _task(value: object) -> TaskId:
    if isinstance(value, str):
        return TaskId.parse(value)
    raise ValueError("not a task")


def _receipt(receipt: HostReceipt) -> HostReceipt:
    until = receipt.unreachable_until
    if until is not None and not 0 <= until <= _LAST_TIME:
        raise ValueError("not a time")
    survivors = tuple(
        replace(one, command=printable(one.command), state=printable(one.state))
        for one in receipt.survivors
    )
    return replace(receipt, host=printable(receipt.host), survivors=survivors)


Text = Annotated[str, AfterValidator(printable)]
Time = Annotated[float, Field(ge=0, le=_LAST_TIME)]
Task = Annotated[TaskId, BeforeValidator(_task)]
Count = Annotated[int, Field(ge=0, le=_LARGEST)]
Status = Annotated[int, Field(ge=-(1 << 31), lt=1 << 31)]
Port = Annotated[int, Field(ge=0, le=65535)]
Values = Annotated[
    dict[str, float],
    AfterValidator(lambda values: {k: v for k, v in values.items() if math.isfinite(v)}),
]


class _Event(BaseModel):
    time: Time


class FailureRecord(BaseModel):
    """The first task that failed."""

    task: Task
    host: Text
    how: Text
    time: Time = 0.0
    others: tuple[Task, ...] = ()
    tail: tuple[Text, ...] = ()

    @property
    def failure(self) -> Failure:
        """As it stands in a snapshot."""
        return Failure(self.task, self.host, self.how, self.time, self.others, self.tail)


class RunEvent(_Event):
    """The run's state, something said once (`note`), or what the launcher promised (`planned`)."""

    state: RunState | Literal["planned"]
    outcome: Outcome | None = None
    exit_code: Annotated[int, Field(ge=0, le=255)] | None = None
    first_failure: FailureRecord | None = None
    note: Text | None = None
    ports: dict[Task, Port] = Field(default_factory=dict)
    resume: str | None = None


class HostEvent(_Event):
    """A host's state."""

    host: Text
    state: HostState
    reason: Text = ""


class TaskEvent(_Event):
    """A task's state."""

    task: Task
    state: TaskState
    attempt: Count
    address: Text = ""
    log_start: Count | None = None
    pid: Count | None = None
    exit_code: Status | None = None
    signal: Text | None = None
    reason: Text = ""


class MetricEvent(_Event):
    """What a metric line named. In the 0.1 form the values stand among the record's own keys."""

    task: Task
    values: Values
    rate: float | None = None

    @model_validator(mode="before")
    @classmethod
    def _collect(cls, record: Any) -> Any:
        if isinstance(record, dict) and not isinstance(record.get("values"), dict):
            found = {
                key: value
                for key, value in record.items()
                if key not in OWN_KEYS and isinstance(value, int | float)
            }
            return {**record, "values": found}
        return record

    @property
    def step(self) -> int | None:
        """The global step."""
        step = self.values.get("step", math.nan)
        return int(step) if 0 <= step <= _LARGEST else None

    @property
    def loss(self) -> float | None:
        """The loss."""
        return self.values.get("loss")


class ReceiptEvent(_Event):
    """What the hosts saw after a kill."""

    hosts: tuple[Annotated[HostReceipt, AfterValidator(_receipt)], ...]

    @property
    def receipt(self) -> Receipt:
        """As it stands in a snapshot."""
        return Receipt(self.hosts)


Event = RunEvent | HostEvent | TaskEvent | MetricEvent | ReceiptEvent
_KINDS: dict[str, type[Event]] = {
    "run": RunEvent,
    "host": HostEvent,
    "task": TaskEvent,
    "metric": MetricEvent,
    "receipt": ReceiptEvent,
}


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


def events(found: Iterable[dict[str, Any]], damage: Damage) -> Iterator[Event]:
    """The records as events; those of kinds that this version does not know are left out."""
    for record in found:
        kind = record.get("event")
        if not isinstance(kind, str):
            damage.records += 1
        elif kind in _KINDS:
            try:
                yield _KINDS[kind].model_validate(record)
            except (ValueError, RecursionError):
                damage.records += 1
