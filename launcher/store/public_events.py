"""Public events of a run: what `--json` prints and `events.jsonl` keeps.

One JSON object a line. All have `time` (epoch seconds) and `event`:

    run      run, state, and at the end outcome, exit_code and where there is one first_failure;
             with note: something said once (a host lost, a takeover, a full disk); where an
             engine gives the hosts allocation: {engine, job, state, reason, expected}
    host     host, state, reason; while files go to it staged_bytes, staged_total, staged_files,
             staged_total_files, and while results come back collected_bytes, collected_total
    task     task, host, state, attempt, and where known pid, exit_code, signal, reason, address,
             log_start (the byte of the log where this attempt begins)
    metric   task, host, values: {name: number} (all that the line named), and where known step,
             loss and rate (global steps a second). Runs of the 0.1 form have the values at the
             top level
    log      task, host, text (one line; only on stdout, never in the file)
    receipt  hosts: [{host, signalled, survivors: [{pid, command, state}], confirmed,
             unreachable_until, seconds, engine, by_engine}], clean; engine is what the engine
             that gave the node says of it, by_engine that it alone has confirmed it
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from pydantic import TypeAdapter

from ..ids import TaskId
from ..printable import printable
from ..run.snapshot import Failure, HostView, Receipt, Snapshot, TaskView
from .logs import LogFile

_FAILURE = TypeAdapter(Failure)
TAIL_LINES = 20
TAIL_BYTES = 16 * 1024


def changes(before: Snapshot | None, after: Snapshot, now: float) -> Iterator[dict[str, Any]]:
    """The records of what differs between two snapshots."""
    if before is None or _run_key(before) != _run_key(after):
        yield _run(after, now)
    old_hosts = {view.name: view for view in before.hosts} if before else {}
    for host in after.hosts:
        old = old_hosts.get(host.name)
        if old is None or _host_key(old) != _host_key(host):
            yield _host(host, now)
    old_tasks = {view.id: view for view in before.tasks} if before else {}
    for task in after.tasks:
        was = old_tasks.get(task.id)
        if was is None or _task_key(was) != _task_key(task):
            yield _task(task, now)
    said = before.notes if before else ()
    for note in after.notes[_common(said, after.notes) :]:
        yield {**_run(after, now), "note": note}
    if after.receipt is not None and (before is None or before.receipt is None):
        yield receipt_record(after.receipt, now)


def receipt_record(receipt: Receipt, now: float) -> dict[str, Any]:
    hosts = [asdict(host) for host in receipt.hosts]
    return {"time": now, "event": "receipt", "hosts": hosts, "clean": receipt.clean}


def metric_record(
    now: float, task: TaskId, host: str, values: Mapping[str, float], rate: float | None
) -> dict[str, Any]:
    """A metric line as a record; what is no finite number (a loss of NaN) is no JSON and left out.

    Names that a cluster file gives its metrics stand in `values` alone: one called `task` must
    not take the place of the task.
    """
    finite = {name: value for name, value in values.items() if math.isfinite(value)}
    known: dict[str, float] = {}
    known |= {name: finite[name] for name in ("step", "loss") if name in finite}
    if rate is not None and math.isfinite(rate):
        known["rate"] = round(rate, 3)
    head = {"time": now, "event": "metric", "task": str(task), "host": host}
    return {**head, **known, "values": finite}


def log_tail(log: LogFile) -> tuple[str, ...]:
    """The last lines of a log, printable, each of at most 500 characters."""
    return tail_lines(log.read(max(0, log.size - TAIL_BYTES), TAIL_BYTES))


def tail_lines(raw: bytes) -> tuple[str, ...]:
    """The last lines of some bytes, as `log_tail` has them."""
    text = raw.decode(errors="replace").replace("\r\n", "\n").replace("\r", "\n")
    found = [printable(line.expandtabs(), 500) for line in text.split("\n")]
    return tuple([line for line in found if line.strip()][-TAIL_LINES:])


def _common(before: tuple[str, ...], after: tuple[str, ...]) -> int:
    """Number of the notes that were there before; the oldest ones may have been dropped."""
    for dropped in range(len(before) + 1):
        rest = before[dropped:]
        if after[: len(rest)] == rest:
            return len(rest)
    return 0


def _run_key(view: Snapshot) -> tuple[object, ...]:
    return (view.state, view.exit_code, _allocation(view))


def _allocation(view: Snapshot) -> dict[str, Any] | None:
    names = ("engine", "job", "state", "reason", "expected")
    return {name: getattr(view.allocation, name) for name in names} if view.allocation else None


def _run(after: Snapshot, now: float) -> dict[str, Any]:
    record: dict[str, Any] = {
        "time": now,
        "event": "run",
        "run": after.run_id,
        "state": str(after.state),
    }
    if after.allocation is not None:
        record["allocation"] = _allocation(after)
    if after.outcome is not None:
        record |= {"outcome": str(after.outcome), "exit_code": after.exit_code}
        if after.first_failure is not None:
            record["first_failure"] = _FAILURE.dump_python(after.first_failure, mode="json")
    return record


def _host_key(view: HostView) -> tuple[object, ...]:
    staged = (view.staged_bytes, view.staged_total)
    return (view.state, view.reason, *staged, view.collected_bytes, view.collected_total)


def _host(view: HostView, now: float) -> dict[str, Any]:
    record = {"time": now, "event": "host", "host": view.name, "state": str(view.state)}
    record["reason"] = view.reason
    shown: list[str] = []
    if view.staged_total:
        shown += ("staged_bytes", "staged_total", "staged_files", "staged_total_files")
    if view.collected_total:
        shown += ("collected_bytes", "collected_total")
    return record | {name: getattr(view, name) for name in shown}


def _task_key(view: TaskView) -> tuple[object, ...]:
    return (view.state, view.attempt, view.pid, view.exit_code, view.exit_signal, view.reason)


def _task(view: TaskView, now: float) -> dict[str, Any]:
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
    return record | {key: value for key, value in optional.items() if value is not None}
