"""Runs that have ended: a line about each for lists, and one opened from disk."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace

from ..cluster.saved_file import Stamp
from ..errors import LauncherError, TfmuxError
from ..ids import TaskId
from ..paths import runs_home
from ..run.snapshot import Snapshot
from ..run.stacks import Stacks
from ..run.states import Outcome, RunPhase
from ..store.metrics import Series
from ..store.runs import RunFolder, UnreadableRun
from ..store.stream import Summary, read_end
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
    name: str = ""
    """Name of its cluster."""
    phase: RunPhase | None = None
    """None: nothing of it could be read."""
    waiting: str = ""
    """Tasks or hosts that are waited for."""
    live: int = 0
    """Tasks that may have a process."""
    tasks: int = 0
    hosts: tuple[str, ...] = ()
    step: int | None = None
    loss: float | None = None
    last: float = 0.0
    """Time of the last event."""
    first_failure: str = ""
    attempt_text: str = ""
    """`attempt 2 of 4: worker:1 exit 1 on tf2`, where all tasks were started again."""
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


class SummaryReader:
    """Reads the summary of one run, again and again: the end of its stream, or all of it where
    that breaks off, when the stream has changed."""

    def __init__(self, folder: RunFolder) -> None:
        self.run: StoredRun | None = None
        """The run, where all of its stream was read."""
        self._folder = folder
        self._stamp: Stamp | None = None
        self._known: RunSummary | None = None

    def read(self, *, metrics: bool = False) -> RunSummary:
        """Summary of the run as its stream tells it now, with `metrics` with the newest ones."""
        stamp = Stamp.of(self._folder.events)
        if self._known is None or stamp != self._stamp:
            self._stamp, self.run = stamp, None
            self._known = self._read()
        elif metrics and self.run is not None:
            self._known = self._of_run(self.run)
        return self._known

    def _read(self) -> RunSummary:
        folder = self._folder
        end = read_end(folder.events)
        if end is not None:
            return _summary(folder, end, end.ended or 0.0)
        try:
            self.run = StoredRun(folder)
        except TfmuxError as error:
            problem = f"could not be read: {error}".partition("\n")[0]
            return RunSummary(folder.run_id, folder, _launched(folder), None, problem=problem)
        return self._of_run(self.run)

    def _of_run(self, run: StoredRun) -> RunSummary:
        told = run.damage.describe(self._folder.run_id)
        summary = Summary.of(run.snapshot(), run.last)
        seen = _summary(self._folder, summary, run.last, told)
        return replace(seen, proven=seen.proven and run.over)  # hosts that are not in the receipt


def summary(folder: RunFolder) -> RunSummary:
    """Summary of a run that is read once."""
    return SummaryReader(folder).read()


def unreadable_summary(run: UnreadableRun) -> RunSummary:
    """Summary of a run that cannot be looked at."""
    folder = RunFolder(runs_home() / run.run_id)
    return RunSummary(run.run_id, folder, 0.0, None, problem=f"could not be read: {run.reason}")


def _summary(folder: RunFolder, seen: Summary, last: float, problem: str = "") -> RunSummary:
    return RunSummary(
        run_id=folder.run_id,
        folder=folder,
        started=seen.started or _launched(folder),
        ended=seen.ended,
        outcome=seen.outcome,
        exit_code=seen.exit_code,
        name=seen.name,
        phase=seen.state,
        waiting=seen.waiting,
        live=seen.live,
        tasks=seen.tasks,
        hosts=seen.hosts,
        step=seen.step,
        loss=seen.loss,
        last=last,
        first_failure=seen.first_failure,
        attempt_text=seen.attempt_text,
        clean=seen.clean is not False,
        proven=bool(seen.clean),
        problem=problem,
    )


def _launched(folder: RunFolder) -> float:
    with suppress(OSError):
        return folder.cluster_file.stat().st_mtime
    return 0.0


class FinishedRun:
    """A run as it was; implements `control.RunControl`. There is nothing left to act on, and
    nothing will change."""

    living = False

    def __init__(self, run: StoredRun) -> None:
        self.logs = run.logs()
        self._metrics = run.metrics
        self._metrics.read()
        self._snapshot = _at_rest(run)

    def snapshot(self) -> Snapshot:
        return self._snapshot

    def series(self, task: TaskId) -> Series:
        return self._metrics.series(task)

    def kill_all(self, *, by_person: bool = True, force: bool = False) -> None: ...
    def press_kill(self) -> None: ...
    def restart(self, task: TaskId, *, hard: bool = False) -> None: ...
    def signal(self, task: TaskId, name: str) -> None: ...

    def request_stacks(self, tasks: Sequence[TaskId] | None = None) -> Future[Stacks]:
        future: Future[Stacks] = Future()
        future.set_exception(LauncherError("the run has ended: nothing of it stands anywhere"))
        return future

    def detach(self) -> None: ...
    def close(self) -> None: ...


def _at_rest(run: StoredRun) -> Snapshot:
    """State in its record; where that breaks off, it says so instead of showing tasks alive."""
    snapshot = run.snapshot()
    if snapshot.state is RunPhase.ENDED:
        return snapshot
    outputs = [view.last_output or 0.0 for view in snapshot.tasks]
    note = "its launcher died before it could write down how the run ended"
    return replace(
        snapshot.with_lost_tasks("the record ends here"),
        state=RunPhase.ENDED,
        ended=max([run.last, *outputs]),
        waiting="",
        notes=(*snapshot.notes, note),
    )
