"""Runs that have ended: a line about each for lists, and one opened from disk."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from ..errors import TfmuxError
from ..ids import TaskId
from ..paths import runs_home
from ..run.snapshot import Snapshot
from ..run.states import Outcome, RunPhase
from ..store.journal import read_final
from ..store.logs import LogStore
from ..store.metrics import Series
from ..store.runs import RunFolder, UnreadableRun
from .attach import StoredRun


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
    queued: bool = False
    """It waits for its nodes."""
    step: int | None = None
    loss: float | None = None
    last: float = 0.0
    """Time of the last event."""
    first_failure: str = ""
    clean: bool = True
    """No receipt says that something may be left."""
    proven: bool = False
    """A receipt says that nothing is left."""
    problem: str = ""
    """Parts that could not be read."""

    @property
    def over(self) -> bool:
        """It ended and nothing is left; not where something that was read leaves a doubt."""
        return self.ended is not None and self.proven and not self.problem


def summary(folder: RunFolder) -> RunSummary:
    """Summary by the end of a run's journal; where it breaks off, by all of it."""
    final = read_final(folder.journal)
    if final is not None:
        return _summary(folder, final, final.ended or 0.0)
    try:
        run = StoredRun(folder)
    except TfmuxError as error:
        problem = f"could not be read: {error}".partition("\n")[0]
        return RunSummary(folder.run_id, folder, _launched(folder), None, problem=problem)
    return _summary(folder, run.snapshot(), run.last, run.damage.told(folder.run_id))


def unreadable_summary(run: UnreadableRun) -> RunSummary:
    """Summary of a run that cannot be looked at."""
    folder = RunFolder(runs_home() / run.run_id)
    return RunSummary(run.run_id, folder, 0.0, None, problem=f"could not be read: {run.reason}")


def _summary(folder: RunFolder, seen: Snapshot, last: float, problem: str = "") -> RunSummary:
    detached = seen.outcome is Outcome.DETACHED  # that launcher left; the run went on
    failure, receipt = seen.first_failure, seen.receipt
    return RunSummary(
        run_id=folder.run_id,
        folder=folder,
        started=seen.started or _launched(folder),
        ended=None if detached else seen.ended,
        outcome=None if detached else seen.outcome,
        exit_code=None if detached else seen.exit_code,
        queued=seen.state is RunPhase.QUEUED,
        step=seen.step,
        loss=seen.loss,
        last=last,
        first_failure=f"{failure.task} @{failure.host} {failure.how}" if failure else "",
        clean=receipt is None or receipt.clean,
        proven=receipt is not None and receipt.clean,
        problem=problem,
    )


def _launched(folder: RunFolder) -> float:
    with suppress(OSError):
        return folder.cluster_file.stat().st_mtime
    return 0.0


class FinishedRun:
    """A run as it was; implements `control.RunControl`. There is nothing left to act on, and
    nothing will change."""

    living = unsupervised = False

    def __init__(self, run: StoredRun) -> None:
        self.logs = run.logs()
        self._metrics = run.metrics
        self._metrics.read()
        self._snapshot = _at_rest(run.snapshot(), self.logs)

    def snapshot(self) -> Snapshot:
        return self._snapshot

    def series(self, task: TaskId) -> Series:
        return self._metrics.series(task)

    def subscribe(self, listener: Callable[[Snapshot], None]) -> None: ...
    def kill_all(self, *, by_person: bool = True) -> None: ...
    def restart(self, task: TaskId, *, hard: bool = False) -> None: ...
    def signal(self, task: TaskId, name: str) -> None: ...
    def resume(self) -> None: ...
    def detach(self) -> None: ...
    def close(self) -> None: ...


def _at_rest(snapshot: Snapshot, logs: LogStore) -> Snapshot:
    """State in its record; where that breaks off, it says so instead of showing tasks alive."""
    if snapshot.state is RunPhase.ENDED:
        return snapshot
    times = [view.last_output or view.started or 0.0 for view in snapshot.tasks]
    paths = [logs.open(view.id).path for view in snapshot.tasks]
    times += [path.stat().st_mtime for path in paths if path.exists()]
    note = "its launcher died before it could write down how the run ended"
    return replace(
        snapshot.with_lost_tasks("the record ends here"),
        state=RunPhase.ENDED,
        ended=max([*times, snapshot.started]),
        waiting="",
        notes=(*snapshot.notes, note),
    )
