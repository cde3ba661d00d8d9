"""A run as its folder tells it: to be looked at, taken up, or gone on from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ..agent.folders import FolderError, has_agent
from ..errors import ClusterFileError, LauncherError, RunNotFoundError, TfmuxError
from ..ids import TaskId, is_run_id
from ..paths import runs_home
from ..plan.facts import Resume
from ..printable import escaped
from ..run.gpus import GpuSample
from ..run.snapshot import Snapshot
from ..run.states import Outcome, RunPhase
from ..run.views import Views
from ..store.declared import Declared
from ..store.launch_machine import Machine
from ..store.living_runs import read_entry
from ..store.logs import LogStore
from ..store.metrics import MetricsFile, Series, latest_metrics
from ..store.runs import RunFolder
from ..store.stream import read_stream

if TYPE_CHECKING:
    from ..cluster.file_model import ClusterModel
    from ..plan.run_plan import Plan
    from ..run.machine import RunStateMachine
    from ..run.stack_groups import Stacks
    from ..run.state import RunData
    from .control import MaskedText


class StoredRun:
    """A run as its stream tells it."""

    def __init__(self, folder: RunFolder) -> None:
        """Reads the stream; the cluster file, too, where the stream has no end.

        Raises:
            ClusterFileError: the stored cluster file cannot be read.
        """
        self.folder = folder
        stream = read_stream(folder.events, self._declared())
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
            self._views = self.data  # with the hosts and tasks of which nothing is known

    @cached_property
    def cluster(self) -> ClusterModel:
        """The cluster as it was launched."""
        from ..cluster.read import load

        return load(self.folder.cluster_file, base=self.folder.origin)

    def _declared(self) -> Declared:
        """The run by its cluster file; by its id alone where that cannot be read: then only a run
        that has ended can be looked at."""
        from ..plan.planner import make_plan

        with suppress(TfmuxError):
            return Declared.by(make_plan(self.cluster, self.folder.run_id))
        return Declared(self.folder.run_id)

    @cached_property
    def data(self) -> RunData:
        """The run with its plan."""
        from ..run.state import RunData

        folder, past = self.folder, self._views
        return RunData(self.cluster, folder.run_id, past=past, launched_on=folder.launched_on)

    @cached_property
    def run(self) -> RunStateMachine:
        """The run, to be taken up."""
        from ..run.machine import RunStateMachine

        return RunStateMachine(self.cluster, self.folder.run_id, past=self.data)

    @property
    def plan(self) -> Plan:
        """The plan with the ports that were picked at launch."""
        return self.data.plan

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
        seen = self._views.snapshot()  # of which the newest metrics say nothing
        ended = seen.state is RunPhase.ENDED and seen.outcome is not Outcome.TAKEN_OVER
        if not ended or seen.receipt is None or not seen.clean:
            return False
        named = {host.host for host in seen.receipt.hosts}
        return named >= {host.name for host in self.plan.hosts}

    @property
    def views(self) -> Views:
        """The run as it was when the last record was written, with the newest metrics."""
        if self.end is None:
            for task, latest in latest_metrics(self.folder.metrics).items():
                if (view := self._views.tasks.get(task)) is not None:
                    self._views.update_task(task, **latest.figures(view.last_output))
            self.data.refresh_waiting()
        return self._views

    def snapshot(self) -> Snapshot:
        """The views as they stand."""
        return self.views.snapshot()

    def logs(self) -> LogStore:
        return LogStore(self.folder.path, read_only=True)


def stored_folder(run_id: str, file: Path, *, removed: bool = False) -> RunFolder:
    """The folder of the run with this id and cluster file: it is made for what another machine
    launched, or where it was removed, and a stored cluster file that cannot be read is replaced.
    `removed`: one that is not there any more will do, where the run's launcher process lives.

    Raises:
        RunNotFoundError: the file is another cluster's.
        ClusterFileError: the file cannot be used.
    """
    from ..cluster.read import load, loads, read_text

    folder = RunFolder(runs_home() / run_id)
    try:
        folder = RunFolder.find(run_id, removed=removed)
    except RunNotFoundError:
        pass  # another machine has launched it, or it has lost its folder or its cluster file
    if folder.is_there:
        try:
            load(folder.cluster_file, base=folder.origin)
            return folder
        except ClusterFileError:
            pass  # it is damaged, and this one is for that
    text = read_text(file)
    cluster = loads(text, escaped(str(file)), file.absolute().parent)
    run_id = folder.run_id
    if "/" in run_id or not run_id.startswith(f"{cluster.name}-"):
        raise RunNotFoundError(f"{file} is the file of {cluster.name!r}, not of run {run_id!r}")
    if folder.is_there:
        folder.write_cluster(text, cluster)
        return folder
    return RunFolder.create(run_id, text, cluster, _launched_on(run_id, cluster))


def _launched_on(run_id: str, cluster: ClusterModel) -> Machine | None:
    """The machine that has launched a run of which there is no folder; None: this one, as the index
    of its living runs says, a local agent's lock, or a process of a task of `localhost`."""
    from ..on_host.probe import leftovers
    from ..plan.planner import make_plan

    with suppress(OSError, FolderError):
        if read_entry(run_id) is not None:
            return None
        plan = make_plan(cluster, run_id)
        if any(host.local and has_agent(run_id, host.name) for host in plan.hosts):
            return None
        local = {str(task.id) for task in plan.tasks if plan.host(task.host).local}
        if any(run == run_id and task in local for run, task, *_ in leftovers()["found"]):
            return None
    return Machine()


def find_resumed(run_id: str, name: str) -> Resume:
    """Finds the run that a new run of the cluster `name` goes on from, and its log directory.

    `run_id` is what `any_run` takes. A whole id of this cluster need not be known here: another
    machine launched that run, or its folder was removed.

    Raises:
        RunNotFoundError: no run, or several.
    """
    from .named_runs import any_run  # which few launches need

    try:
        folder = any_run(run_id)
    except RunNotFoundError:
        if is_run_id(run_id, name):
            return Resume(run_id, run_id)
        raise
    earlier = read_stream(folder.events, folder.run_id).views.run.resume
    return Resume(folder.run_id, earlier.logdir_run_id if earlier else folder.run_id)


class FinishedRun:
    """A run as it was; implements `control.RunControl`. There is nothing left to act on, and
    nothing will change."""

    living = False
    standstill = ""

    def __init__(self, run: StoredRun) -> None:
        self.logs = run.logs()
        self._metrics = run.metrics
        self._metrics.read()
        self._snapshot = _at_rest(run)

    def snapshot(self) -> Snapshot:
        return self._snapshot

    def subscribe(self, listener: Callable[[Snapshot], None]) -> None: ...

    def series(self, task: TaskId) -> Series:
        return self._metrics.series(task)

    def gpu_samples(self, host: str) -> Sequence[GpuSample]:
        return self._metrics.gpu_samples(host)

    def kill_all(self, *, by_person: bool = True, force: bool = False) -> None: ...
    def press_kill(self) -> None: ...
    def restart(self, task: TaskId, *, hard: bool = False) -> None: ...
    def signal(self, task: TaskId, name: str) -> None: ...

    def request_stacks(self, tasks: Sequence[TaskId] | None = None) -> Future[Stacks]:
        future: Future[Stacks] = Future()
        future.set_exception(
            LauncherError("the run has ended: it has no processes and so no stacks")
        )
        return future

    def mask_values(self, text: str) -> Future[MaskedText]:
        future: Future[MaskedText] = Future()
        future.set_exception(LauncherError("the run has ended: nobody knows values of variables"))
        return future

    def detach(self, *, wait: bool = True) -> None: ...
    def close(self, *, wait: bool = True) -> None: ...


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
