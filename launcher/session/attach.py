"""Taking up a run that another launcher began: its events, then what its agents hold."""

from __future__ import annotations

from pathlib import Path

from ..cluster.file import load
from ..cluster.spec import Cluster
from ..errors import RunNotFoundError
from ..paths import runs_home
from ..plan.plan import HostFacts, Plan, make_plan
from ..store.logs import LogStore
from ..store.replay import Replay
from ..store.runs import RunFolder
from ..store.stored_events import Damage, events
from .session import Session


class StoredRun:
    """A run as its folder on this machine tells it."""

    def __init__(self, folder: RunFolder) -> None:
        """Reads cluster file and events.

        Raises:
            ClusterFileError: the stored cluster file cannot be read.
        """
        self.folder = folder
        self.cluster = load(folder.cluster_file, base=folder.origin)
        self.damage = Damage()
        """What of the events could not be read."""
        found = list(events(folder.records(self.damage), self.damage))
        first = Replay(make_plan(self.cluster, folder.run_id), found)
        self.plan = _plan(self.cluster, folder.run_id, first)
        self.replay = Replay(self.plan, found, self.damage)

    @property
    def over(self) -> bool:
        """Nothing of it can live any more: it ended, and every host confirmed it."""
        return self.replay.over

    def attach(self) -> Session:
        """A session that takes the run over when it is started."""
        past = self.replay
        return Session(self.folder, self.cluster, self.plan, resume=past.resume, past=past)

    def logs(self) -> LogStore:
        """The run's logs, for reading."""
        return LogStore(self.folder.path, read_only=True)


def stored(run_id: str, file: Path | None = None) -> StoredRun:
    """Finds a run; with the cluster file also one that another machine launched.

    Raises:
        RunNotFoundError: it is not known here, and there is no file.
        ClusterFileError: the file cannot be used.
    """
    if file is None or (runs_home() / run_id).is_dir():
        return StoredRun(RunFolder.find(run_id))
    cluster = load(file)
    if "/" in run_id or not run_id.startswith(f"{cluster.name}-"):
        raise RunNotFoundError(f"{file} is the file of {cluster.name!r}, not of run {run_id!r}")
    return StoredRun(RunFolder.create(run_id, file.read_text(), cluster))


def _plan(cluster: Cluster, run_id: str, replay: Replay) -> Plan:
    """The plan with the ports that were picked at launch."""
    hosts = make_plan(cluster, run_id)
    facts = {
        host.name: HostFacts(
            ports={
                task.id: replay.ports[task.id]
                for task in hosts.on_host(host.name)
                if task.id in replay.ports
            }
        )
        for host in hosts.hosts
    }
    return make_plan(cluster, run_id, facts, replay.resume)
