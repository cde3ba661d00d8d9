"""Runs on this machine as their folders tell them: to be looked at, or to be taken up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ..cluster.read import load, loads, read_text
from ..errors import RunNotFoundError
from ..ids import is_run_id
from ..paths import runs_home
from ..plan.plan import Plan, Resume
from ..printable import escaped
from ..run.run import RunStateMachine
from ..run.snapshot import Snapshot
from ..run.states import Outcome, RunPhase
from ..store.journal import read_begin, read_journal
from ..store.logs import LogStore
from ..store.metrics_file import MetricsFile, latest_metrics
from ..store.runs import RunFolder


class StoredRun:
    """A run as its journal tells it."""

    def __init__(self, folder: RunFolder) -> None:
        """Reads cluster file and journal.

        Raises:
            ClusterFileError: the stored cluster file cannot be read.
        """
        self.folder = folder
        self.cluster = load(folder.cluster_file, base=folder.origin)
        journal = read_journal(folder.journal)
        self.run: RunStateMachine = journal.replay(self.cluster, folder.run_id)
        self.damage = journal.damage
        """Parts of the journal that could not be read."""
        self.last = journal.last
        """Time of the last event."""
        self.metrics = MetricsFile(folder.metrics)
        self.events = len(journal.events)
        """Number of the journal's events that `run` has handled."""
        self.complete = journal.complete
        """The journal was there and could be read up to the record of the run's end."""
        self._final = journal.final

    @property
    def plan(self) -> Plan:
        """The plan with the ports that were picked at launch."""
        return self.run.plan

    @property
    def over(self) -> bool:
        """Nothing of it can live any more: it ended, and every host that may hold something
        confirmed that nothing is left."""
        seen = self._final or self.run.snapshot()
        ended = seen.state is RunPhase.ENDED and seen.outcome is not Outcome.DETACHED
        if not ended or seen.receipt is None or not seen.clean:
            return False
        if self._final is not None:
            return True  # the launcher that ended it knew which hosts it had contacted
        owed = self.run.contacted_hosts if self.complete else [host.name for host in seen.hosts]
        return set(owed) <= {host.host for host in seen.receipt.hosts}

    def snapshot(self) -> Snapshot:
        """The run as it was when the last record was written."""
        if self._final is not None:
            return self._final
        now = self.run.snapshot()
        latest = {**latest_metrics(self.folder.metrics), **self.metrics.latest}
        tasks = (latest[v.id].added_to(v) if v.id in latest else v for v in now.tasks)
        return replace(now, tasks=tuple(tasks))

    def logs(self) -> LogStore:
        return LogStore(self.folder.path, read_only=True)


def stored(run_id: str, file: Path | None = None) -> StoredRun:
    """Finds a run; with the cluster file also one that another machine launched.

    Raises:
        RunNotFoundError: it is not known here, and there is no file.
        ClusterFileError: the file cannot be used.
    """
    if file is None or (runs_home() / run_id).is_dir():
        return StoredRun(RunFolder.find(run_id))
    text = read_text(file)
    cluster = loads(text, escaped(str(file)), file.absolute().parent)
    if "/" in run_id or not run_id.startswith(f"{cluster.name}-"):
        raise RunNotFoundError(f"{file} is the file of {cluster.name!r}, not of run {run_id!r}")
    return StoredRun(RunFolder.create(run_id, text, cluster))


def find_resumed(run_id: str, name: str) -> Resume:
    """Finds the run that a new run of the cluster `name` goes on from, and its log directory.

    `run_id` is an id, or a beginning that only one run has. A whole id of this cluster need not be
    known here: another machine launched that run, or its folder was removed.

    Raises:
        RunNotFoundError: no run, or several.
    """
    try:
        folder = RunFolder.find(run_id)
    except RunNotFoundError:
        if is_run_id(run_id, name):
            return Resume(run_id, run_id)
        raise
    begin = read_begin(folder.journal)
    earlier = begin.resume if begin else None
    return Resume(folder.run_id, earlier.logdir_run_id if earlier else folder.run_id)
