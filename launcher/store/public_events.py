"""Public events of a run: what `--json` prints, `events.jsonl` keeps and programs iterate over.

One JSON object a line. Each has `time` (epoch seconds) and `event`, which says what it is about;
the classes below are its kinds, and the text below a field is its description in the JSON Schema
(`docs/schemas`). `log` is only on stdout, never in the file.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any, Literal, NotRequired, TypedDict, cast

from pydantic import TypeAdapter

from ..ids import TaskId
from ..printable import printable
from ..run.snapshot import Failure, HostView, Receipt, Snapshot, TaskView, new_notes
from .logs import LogFile


class AllocationRecord(TypedDict):
    """The request for nodes, as its engine tells it."""

    engine: str
    """Name of the engine, such as `slurm`."""
    job: str
    """Id of the request there."""
    state: str
    """State of the request in the engine's words."""
    reason: str
    """Why it waits, in the engine's words; may be empty."""
    expected: float | None
    """When it is expected to begin, in seconds since the epoch."""


class FailureRecord(TypedDict):
    """The first task that failed."""

    task: str
    """The task, such as `worker:0`."""
    host: str
    """The host of the cluster file."""
    how: str
    """How it ended, in words."""
    time: float
    """When it failed."""
    others: list[str]
    """Tasks that failed because of it, 100 at most."""
    tail: list[str]
    """The last lines of its log, printable."""
    unlisted: int
    """Number of the tasks that failed beyond those."""


class RunEvent(TypedDict):
    """The run's state has changed, or something was said once."""

    event: Literal["run"]
    time: float
    """Seconds since the epoch."""
    run: str
    """The run's id."""
    state: str
    """State of the run."""
    allocation: NotRequired[AllocationRecord]
    """Where an engine gives the hosts."""
    outcome: NotRequired[str]
    """At the end, as `exit_code` and `first_failure` are."""
    exit_code: NotRequired[int | None]
    """Exit code of `tfmux up`; null while there is none."""
    first_failure: NotRequired[FailureRecord]
    """The task that failed first; absent where none did."""
    note: NotRequired[str]
    """Said once: a host lost, a takeover, a full disk."""


class HostEvent(TypedDict):
    """The link to a host, or the way of files to it and of results back."""

    event: Literal["host"]
    time: float
    """Seconds since the epoch."""
    host: str
    """The host of the cluster file."""
    state: str
    """State of the link."""
    reason: str
    """Why it is in that state; may be empty."""
    staged_bytes: NotRequired[int]
    """Bytes of files that have been sent."""
    staged_total: NotRequired[int]
    """Bytes of files that are to be sent."""
    staged_files: NotRequired[int]
    """Number of files that have been sent."""
    staged_total_files: NotRequired[int]
    """Number of files that are to be sent."""
    collected_bytes: NotRequired[int]
    """Bytes of results that have been fetched."""
    collected_total: NotRequired[int]
    """Bytes of results that are to be fetched."""


class TaskEvent(TypedDict):
    """A task's state has changed."""

    event: Literal["task"]
    time: float
    """Seconds since the epoch."""
    task: str
    """The task, such as `worker:0`."""
    host: str
    """The host of the cluster file."""
    state: str
    """State of the task."""
    attempt: int
    """Number of the start, from 1 on; 0 before the first one."""
    address: str
    """Address in the cluster spec, `host:port`."""
    log_start: NotRequired[int]
    """The byte of the log where this attempt begins."""
    pid: NotRequired[int]
    """Id of its process on the host."""
    exit_code: NotRequired[int]
    """Status with which it ended by itself."""
    signal: NotRequired[str]
    """Name of the signal that ended it."""
    reason: NotRequired[str]
    """Why it is in that state."""


class MetricEvent(TypedDict):
    """A task has written a metric line."""

    event: Literal["metric"]
    time: float
    """Seconds since the epoch."""
    task: str
    """The task, such as `worker:0`."""
    host: str
    """The host of the cluster file."""
    values: dict[str, float]
    """All that the line named."""
    step: NotRequired[float]
    """Global step."""
    loss: NotRequired[float]
    """Loss."""
    rate: NotRequired[float]
    """Global steps a second."""


class SurvivorRecord(TypedDict):
    """A process that a kill did not end."""

    pid: int
    """Its id on the host."""
    command: str
    """Its command line, printable."""
    state: str
    """Its state, as `/proc` has it."""


class HostReceiptRecord(TypedDict):
    """One host's part of the receipt of a kill."""

    host: str
    """The host of the cluster file."""
    signalled: int
    """Number of processes that got a signal."""
    survivors: list[SurvivorRecord]
    """Processes that are still there, 100 at most."""
    unlisted: int
    """Number of the processes that are still there beyond those."""
    confirmed: bool
    """Nothing is left, by the word of the host's kernel."""
    doubt: str
    """Why the host's agent has looked and cannot confirm; empty where it has not answered."""
    unreachable_until: float | None
    """When the lease of a host ends that cannot be reached; null for one that answered, where that
    time has passed, and with `on_disconnect = "keep"`."""
    seconds: float
    """How long the kill took there."""
    engine: str
    """What the engine that gave the node says of it."""
    by_engine: bool
    """The engine alone has confirmed it."""


class ReceiptEvent(TypedDict):
    """The proof at the end of a run."""

    event: Literal["receipt"]
    time: float
    """Seconds since the epoch."""
    hosts: list[HostReceiptRecord]
    """The receipts of all hosts."""
    clean: bool
    """Every host has confirmed that nothing is left."""


class LogEvent(TypedDict):
    """One line of a task's log."""

    event: Literal["log"]
    time: float
    """Seconds since the epoch."""
    task: str
    """The task, such as `worker:0`."""
    host: str
    """The host of the cluster file."""
    text: str
    """The line, printable."""


PublicEvent = RunEvent | HostEvent | TaskEvent | MetricEvent | ReceiptEvent

_FAILURE = TypeAdapter(Failure)
TAIL_LINES = 20
TAIL_BYTES = 16 * 1024


class ChangeRecords:
    """Makes the records of what is different from what was recorded before."""

    def __init__(self, before: Snapshot | None) -> None:
        """`before`: the run as an earlier launcher has recorded it."""
        self._before = before
        self._begun = before is not None and any(task.attempt for task in before.tasks)
        self._keys: dict[str | TaskId, tuple[object, ...]] = {}

    def changes(
        self, after: Snapshot, hosts: Iterable[HostView], tasks: Iterable[TaskView], now: float
    ) -> Iterator[PublicEvent]:
        """The records of a run, of whose hosts and tasks only these may have changed: one event
        changes a few of thousands."""
        before, self._before = self._before, after
        if before is None or _run_key(before) != _run_key(after):
            yield _run(after, now)
        for host in hosts:
            if self._is_new(host.name, _host_key(host)):
                yield _host(host, now)
        for task in tasks:
            self._begun = self._begun or task.attempt > 0
            if self._is_new(task.id, _task_key(task)):
                yield _task(task, now)
        said = before.notes if before else ()
        for note in new_notes(said, after.notes):
            yield {**_run(after, now), "note": note}
        if after.receipt is not None and (before is None or before.receipt is None):
            yield receipt_record(after.receipt, now, begun=self._begun)

    def _is_new(self, name: str | TaskId, key: tuple[object, ...]) -> bool:
        known = self._keys.get(name)
        self._keys[name] = key
        return known != key


def receipt_record(receipt: Receipt, now: float, *, begun: bool) -> ReceiptEvent:
    """The receipt of a run that has `begun` tasks, or has not."""
    hosts = [cast(HostReceiptRecord, asdict(host)) for host in receipt.hosts]
    clean = receipt.clean and bool(hosts or not begun)
    return {"time": now, "event": "receipt", "hosts": hosts, "clean": clean}


def failure_record(failure: Failure) -> FailureRecord:
    return cast(FailureRecord, _FAILURE.dump_python(failure, mode="json"))


def metric_record(
    now: float, task: TaskId, host: str, values: Mapping[str, float], rate: float | None
) -> MetricEvent:
    """A metric line as a record; what is no finite number (a loss of NaN) is no JSON and left out.

    Names that a cluster file gives its metrics stand in `values` alone: one called `task` must
    not take the place of the task.
    """
    finite = {name: value for name, value in values.items() if math.isfinite(value)}
    record: MetricEvent = {
        "time": now,
        "event": "metric",
        "task": str(task),
        "host": host,
        "values": finite,
    }
    if "step" in finite:
        record["step"] = finite["step"]
    if "loss" in finite:
        record["loss"] = finite["loss"]
    if rate is not None and math.isfinite(rate):
        record["rate"] = round(rate, 3)
    return record


def log_tail(log: LogFile) -> tuple[str, ...]:
    """The last lines of a log, printable, each of at most 500 characters."""
    return tail_lines(log.read(max(0, log.size - TAIL_BYTES), TAIL_BYTES))


def tail_lines(raw: bytes) -> tuple[str, ...]:
    """The last lines of some bytes, as `log_tail` has them."""
    text = raw.decode(errors="replace").replace("\r\n", "\n").replace("\r", "\n")
    found = [printable(line.expandtabs(), 500) for line in text.split("\n")]
    return tuple([line for line in found if line.strip()][-TAIL_LINES:])


def _run_key(view: Snapshot) -> tuple[object, ...]:
    return (view.state, view.exit_code, _allocation(view))


def _allocation(view: Snapshot) -> AllocationRecord | None:
    names = AllocationRecord.__annotations__
    found = view.allocation
    if found is None:
        return None
    return cast(AllocationRecord, {name: getattr(found, name) for name in names})


def _run(after: Snapshot, now: float) -> RunEvent:
    record: RunEvent = {
        "time": now,
        "event": "run",
        "run": after.run_id,
        "state": str(after.state),
    }
    if (allocation := _allocation(after)) is not None:
        record["allocation"] = allocation
    if after.outcome is not None:
        record["outcome"], record["exit_code"] = str(after.outcome), after.exit_code
        if after.first_failure is not None:
            record["first_failure"] = failure_record(after.first_failure)
    return record


def _host_key(view: HostView) -> tuple[object, ...]:
    staged = (view.staged_bytes, view.staged_total)
    return (view.state, view.reason, *staged, view.collected_bytes, view.collected_total)


def _host(view: HostView, now: float) -> HostEvent:
    record: dict[str, Any] = {"time": now, "event": "host", "host": view.name}
    record |= {"state": str(view.state), "reason": view.reason}
    shown: list[str] = []
    if view.staged_total:
        shown += ("staged_bytes", "staged_total", "staged_files", "staged_total_files")
    if view.collected_total:
        shown += ("collected_bytes", "collected_total")
    return cast(HostEvent, record | {name: getattr(view, name) for name in shown})


def _task_key(view: TaskView) -> tuple[object, ...]:
    return (view.state, view.attempt, view.pid, view.exit_code, view.exit_signal, view.reason)


def _task(view: TaskView, now: float) -> TaskEvent:
    record: dict[str, Any] = {
        "time": now,
        "event": "task",
        "task": str(view.id),
        "host": view.host,
        "state": str(view.state),
        "attempt": view.attempt,
        "address": view.address,
    }
    mine = [one.log_start for one in view.attempts if one.number == view.attempt]
    optional = {
        "log_start": mine[-1] if mine else None,
        "pid": view.pid,
        "exit_code": view.exit_code,
        "signal": view.exit_signal,
        "reason": view.reason or None,
    }
    known = {key: value for key, value in optional.items() if value is not None}
    return cast(TaskEvent, record | known)
