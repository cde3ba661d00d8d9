"""Runs of the past: what a list says of each, and one opened from disk as if it were living."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from ..ids import TaskId
from ..paths import runs_home
from ..run.snapshot import Receipt, Snapshot
from ..run.states import Outcome, RunState, TaskState
from ..store.logs import LogStore
from ..store.metrics import Series
from ..store.runs import RunFolder, UnreadableRun
from ..store.stored_events import (
    Damage,
    FailureRecord,
    MetricEvent,
    ReceiptEvent,
    RunEvent,
    events,
    open_regular,
    records,
)
from .attach import StoredRun

_ENDS = 64 * 1024
"""Bytes of a journal that are read at each end: a long run's events are many megabytes."""


@dataclass(frozen=True)
class RunSummary:
    """One line about a run. Times are seconds since the epoch."""

    run_id: str
    folder: RunFolder
    started: float
    ended: float | None
    """None: no end was written down; it lives, or its launcher died."""
    outcome: Outcome | None = None
    exit_code: int | None = None
    step: int | None = None
    loss: float | None = None
    last: float = 0.0
    """When the last event came."""
    first_failure: str = ""
    clean: bool = True
    """No receipt says that something may be left."""
    proven: bool = False
    """A receipt says that nothing is left."""
    problem: str = ""
    """What could not be read."""

    @property
    def over(self) -> bool:
        """It ended and nothing is left; not where something that was read leaves a doubt."""
        return self.ended is not None and self.proven and not self.problem


def summary(folder: RunFolder) -> RunSummary:
    """What both ends of a run's journal tell."""
    started = ended = None
    last = 0.0
    outcome: Outcome | None = None
    exit_code: int | None = None
    step: int | None = None
    loss: float | None = None
    failure = ""
    receipt: Receipt | None = None
    damage = Damage()
    for event in events(records(_ends(folder.journal, damage), damage), damage):
        match event:
            case RunEvent(outcome=Outcome.DETACHED):
                pass  # that launcher left; the run went on
            case RunEvent(outcome=Outcome()):
                outcome, ended, exit_code = event.outcome, event.time, event.exit_code
                failure = _failure(event.first_failure)
            case RunEvent(note=None) if event.state not in (RunState.ENDED, "planned"):
                outcome = ended = exit_code = receipt = None  # taken up again after that
            case MetricEvent():
                step = step if event.step is None else max(event.step, step or 0)
                loss = loss if event.loss is None else event.loss
            case ReceiptEvent():
                receipt = event.receipt
        started = event.time if started is None else started
        last = event.time
    if started is None:
        with suppress(OSError):
            started = folder.cluster_file.stat().st_mtime
    return RunSummary(
        run_id=folder.run_id,
        folder=folder,
        started=started or 0.0,
        ended=ended,
        outcome=outcome,
        exit_code=exit_code,
        step=step,
        loss=loss,
        last=last,
        first_failure=failure,
        clean=receipt is None or receipt.clean,
        proven=receipt is not None and receipt.clean,
        problem=damage.told(folder.run_id),
    )


def unreadable_summary(run: UnreadableRun) -> RunSummary:
    """What is known of a run that cannot be looked at."""
    folder = RunFolder(runs_home() / run.run_id)
    return RunSummary(run.run_id, folder, 0.0, None, problem=f"could not be read: {run.reason}")


class PastRun:
    """A run as it was; implements `control.RunControl`. There is nothing left to act on."""

    def __init__(self, run: StoredRun) -> None:
        self._logs = run.logs()
        self._series = run.replay.series
        self._snapshot = _at_rest(run.replay.snapshot, self._logs)

    @property
    def logs(self) -> LogStore:
        """The run's logs."""
        return self._logs

    @property
    def living(self) -> bool:
        """Never."""
        return False

    def snapshot(self) -> Snapshot:
        """The run as it was at its end."""
        return self._snapshot

    def subscribe(self, listener: Callable[[Snapshot], None]) -> None:
        """Nothing will change."""

    def series(self, task: TaskId) -> Series:
        """What the task's metric lines said over time."""
        return self._series[task]

    def kill_all(self) -> None:
        """There is nothing to end."""

    def restart(self, task: TaskId, *, hard: bool = False) -> None:
        """There is nothing to start."""

    def signal(self, task: TaskId, name: str) -> None:
        """There is nobody to signal."""

    def detach(self) -> None:
        """Nobody tends it."""

    def close(self) -> None:
        """Nothing is open: logs are opened for each read."""


def _at_rest(snapshot: Snapshot, logs: LogStore) -> Snapshot:
    """What its record says; where that breaks off, it says so instead of showing tasks alive."""
    if snapshot.state is RunState.ENDED:
        return snapshot
    why = "the record ends here"
    tasks = tuple(
        replace(view, state=TaskState.LOST, reason=why) if not view.state.ended else view
        for view in snapshot.tasks
    )
    times = [view.last_output or view.started or 0.0 for view in snapshot.tasks]
    times += [logs.open(view.id).path.stat().st_mtime for view in tasks if _exists(logs, view.id)]
    note = "its launcher died before it could write down how the run ended"
    return replace(
        snapshot,
        state=RunState.ENDED,
        tasks=tasks,
        ended=max([*times, snapshot.started]),
        waiting="",
        notes=(*snapshot.notes, note),
    )


def _exists(logs: LogStore, task: TaskId) -> bool:
    return logs.open(task).path.exists()


def _failure(record: FailureRecord | None) -> str:
    return f"{record.task} @{record.host} {record.how}" if record is not None else ""


def _ends(path: Path, damage: Damage) -> Iterator[bytes]:
    """The lines at the beginning and at the end of a journal; one that is cut by the middle that
    is left out, or by a crash, is none."""
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            data = file.read(_ENDS)
            if size > 2 * _ENDS:
                data = data[: data.rfind(b"\n") + 1]
                file.seek(size - _ENDS)
                data += file.read().partition(b"\n")[2]
            else:
                data += file.read(_ENDS)
    except FileNotFoundError:
        return
    except OSError as error:
        damage.reason = error.strerror or str(error)
        return
    *lines, rest = data.split(b"\n")
    yield from lines
    with suppress(ValueError, RecursionError):
        json.loads(rest)
        yield rest
