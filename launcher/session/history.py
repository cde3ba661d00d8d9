"""Runs of the past: what a list says of each, and one opened from disk as if it were living."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..ids import TaskId
from ..run.snapshot import Snapshot
from ..run.states import Outcome, RunState, TaskState
from ..store.logs import LogStore
from ..store.metrics import Series
from ..store.runs import RunFolder
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

    @property
    def over(self) -> bool:
        """It ended and nothing is left."""
        return self.ended is not None and self.clean


def summaries(limit: int) -> list[RunSummary]:
    """The newest runs of this machine, the newest first."""
    return [summary(folder) for folder in RunFolder.all()[:limit]]


def summary(folder: RunFolder) -> RunSummary:
    """What both ends of a run's journal tell."""
    started = ended = None
    last = 0.0
    outcome: Outcome | None = None
    exit_code: int | None = None
    figures: dict[str, float] = {}
    failure = ""
    clean = True
    for record in _ends(folder.journal):
        match record:
            case {"event": "run", "outcome": Outcome.DETACHED.value}:
                continue  # that launcher left; the run went on
            case {"event": "run", "outcome": str(word), "time": float(when)}:
                with suppress(ValueError):
                    outcome, ended = Outcome(word), when
                exit_code = record.get("exit_code")
                failure = _failure(record.get("first_failure"))
            case {"event": "run", "state": str(state)} if "note" not in record:
                if state not in (RunState.ENDED, "planned"):
                    outcome = ended = exit_code = None  # taken up again after that
            case {"event": "metric"}:
                values = {k: v for k, v in record.items() if isinstance(v, int | float)}
                figures |= {"step": max(values.get("step", 0.0), figures.get("step", 0.0))}
                if "loss" in values:
                    figures["loss"] = values["loss"]
            case {"event": "receipt"}:
                clean = bool(record.get("clean"))
        if isinstance(record.get("time"), int | float):
            started = record["time"] if started is None else started
            last = record["time"]
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
        step=int(figures["step"]) if "step" in figures else None,
        loss=figures.get("loss"),
        last=last,
        first_failure=failure,
        clean=clean,
    )


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


def _failure(record: object) -> str:
    if isinstance(record, dict):
        with suppress(KeyError):
            return f"{record['task']} @{record['host']} {record['how']}"
    return ""


def _ends(path: Path) -> Iterator[dict[str, Any]]:
    """The records at the beginning and at the end of a journal."""
    with suppress(OSError), path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        data = file.read(_ENDS)
        if size > 2 * _ENDS:
            file.seek(size - _ENDS)
            data += b"\n" + file.read().partition(b"\n")[2]
        else:
            data += file.read()
        for line in data.splitlines():
            with suppress(ValueError):
                record = json.loads(line)
                if isinstance(record, dict):
                    yield record
