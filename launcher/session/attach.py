"""Runs on this machine as their folders tell them: to be looked at, or to be taken up."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from ..cluster.model import ClusterModel
from ..cluster.read import load, loads, read_text
from ..errors import RunNotFoundError
from ..ids import is_run_id
from ..paths import runs_home
from ..plan.plan import Plan, Resume
from ..printable import escaped
from ..run.run import RunStateMachine
from ..run.snapshot import Snapshot
from ..run.states import Outcome, RunPhase
from ..store.logs import LogStore
from ..store.metrics_file import MetricsFile, latest_metrics
from ..store.runs import RunFolder
from ..store.stream import read_stream


class StoredRun:
    """A run as its stream tells it."""

    def __init__(self, folder: RunFolder) -> None:
        """Reads the stream; the cluster file, too, where the stream has no end.

        Raises:
            ClusterFileError: the stored cluster file cannot be read.
        """
        self.folder = folder
        stream = read_stream(folder.events, folder.run_id)
        self.damage = stream.damage
        """Parts of the stream that could not be read."""
        self.last = stream.last
        """Time of the last record."""
        self.complete = stream.complete
        """The stream could be read up to its end."""
        self.metrics = MetricsFile(folder.metrics)
        self.end = stream.end
        self._views = stream.views
        if self.end is None:
            self._views = self.run.views  # with the hosts and tasks of which nothing is known

    @cached_property
    def cluster(self) -> ClusterModel:
        """The cluster as it was launched."""
        return load(self.folder.cluster_file, base=self.folder.origin)

    @cached_property
    def run(self) -> RunStateMachine:
        """The run, to be taken up."""
        return RunStateMachine(self.cluster, self.folder.run_id, past=self._views)

    @property
    def plan(self) -> Plan:
        """The plan with the ports that were picked at launch."""
        return self.run.plan

    @property
    def resume(self) -> Resume | None:
        """The run that this one goes on from."""
        return self._views.run.resume

    @property
    def over(self) -> bool:
        """Nothing of it can live any more: it ended, and every host confirmed that nothing is left.
        Without the end of the stream every host of the plan is one that may hold something."""
        if self.end is not None:
            return bool(self.end.clean)  # its launcher knew which hosts it had contacted
        seen = self.snapshot()
        ended = seen.state is RunPhase.ENDED and seen.outcome is not Outcome.DETACHED
        if not ended or seen.receipt is None or not seen.clean:
            return False
        named = {host.host for host in seen.receipt.hosts}
        return named >= {host.name for host in self.plan.hosts}

    def snapshot(self) -> Snapshot:
        """The run as it was when the last record was written, with the newest metrics."""
        if self.end is None:
            for task, latest in latest_metrics(self.folder.metrics).items():
                if (view := self._views.tasks.get(task)) is not None:
                    self._views.update_task(task, **latest.figures(view.last_output))
            self.run.refresh_waiting()
        return self._views.snapshot()

    def logs(self) -> LogStore:
        return LogStore(self.folder.path, read_only=True)


def stored(run_id: str, file: Path | None = None) -> StoredRun:
    """Finds a run; with the cluster file also one that another machine launched.

    Raises:
        RunNotFoundError: it is not known here, and there is no file.
        ClusterFileError: the file cannot be used.
    """
    return StoredRun(stored_folder(run_id, file))


def stored_folder(run_id: str, file: Path | None = None) -> RunFolder:
    """The folder of a run; with the cluster file one is made for what another machine launched.

    Raises:
        RunNotFoundError: it is not known here, and there is no file.
        ClusterFileError: the file cannot be used.
    """
    if file is None or (runs_home() / run_id).is_dir():
        return RunFolder.find(run_id)
    text = read_text(file)
    cluster = loads(text, escaped(str(file)), file.absolute().parent)
    if "/" in run_id or not run_id.startswith(f"{cluster.name}-"):
        raise RunNotFoundError(f"{file} is the file of {cluster.name!r}, not of run {run_id!r}")
    return RunFolder.create(run_id, text, cluster)


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
    earlier = read_stream(folder.events, folder.run_id).views.run.resume
    return Resume(folder.run_id, earlier.logdir_run_id if earlier else folder.run_id)
