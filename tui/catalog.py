"""Catalog of the home screen: clusters, runs and demos, read from disk, and what hosts report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from launcher.cluster import library
from launcher.cluster.file_model import ClusterModel
from launcher.cluster.read import load
from launcher.errors import ClusterFileError, LockError
from launcher.frozen import frozen
from launcher.history.run_list import (
    ActiveHost,
    ListedRun,
    RunReader,
    active_runs,
    removed_runs,
    unreadable_run,
    without_copies,
)
from launcher.paths import Stamp
from launcher.store.runs import RunFolder
from tui import demos

MOST_RUNS = 300
"""Runs that are listed; `tfmux logs` opens older ones by name."""


@frozen
class ClusterEntry:
    """Cluster file, as a row of the home screen."""

    path: Path
    saved: bool
    """The cluster is a saved one; otherwise it was named on the command line."""
    stamp: Stamp | None
    cluster: ClusterModel | None
    problem: str = ""
    problems: int = 0

    @property
    def key(self) -> str:
        """Key of its row in Home's table of clusters."""
        return f"cluster {self.path}"


@frozen
class DemoEntry:
    """A demo: its name and the first comment of its file."""

    name: str
    about: str
    path: Path

    @property
    def key(self) -> str:
        """Key of its row in Home's table of demos."""
        return f"demo {self.name}"


Entry = ClusterEntry | ListedRun | DemoEntry


class Entries(NamedTuple):
    """Clusters, runs and demos that the home screen lists."""

    active: list[ListedRun]
    clusters: list[ClusterEntry]
    past: list[ListedRun]
    demos: list[DemoEntry]


@dataclass
class Catalog:
    """Reads what there is, and again only what has changed. Blocking: for a thread."""

    files: Sequence[Path] = ()
    unreadable: dict[str, str] = field(default_factory=dict)
    """Runs of which it is not known whether they are active, and why."""
    _clusters: dict[Path, ClusterEntry] = field(default_factory=dict)
    _readers: dict[str, RunReader] = field(default_factory=dict)
    _demos: list[DemoEntry] = field(default_factory=list)
    _hosts: dict[str, tuple[ActiveHost, ...]] = field(default_factory=dict)
    """What the hosts of active runs have answered."""
    _asked: set[str] = field(default_factory=set)
    """Runs whose hosts have been asked."""

    def read(self) -> Entries:
        """Reads the files of this machine."""
        runs = self._runs()
        return Entries(
            [run for run in runs if run.active],
            self._all_clusters(),
            [run for run in runs if not run.active],
            self.demos(),
        )

    def ask_hosts(self) -> None:
        """Asks the hosts of runs that no launcher supervises."""
        asked = {folder.run_id for folder in RunFolder.all()}
        found = active_runs()
        self._hosts = {run.folder.run_id: run.hosts for run in found.runs}
        self.unreadable = {
            run.run_id: f"could not be read: {run.reason}" for run in found.unreadable
        }
        self._asked = asked

    def forget_answers(self) -> None:
        """Counts all hosts as not yet asked."""
        self._asked = set()

    def _all_clusters(self) -> list[ClusterEntry]:
        """Files of the command line, then the saved ones."""
        known = {path.resolve(): None for path in self.files}
        found = [self._cluster(path, saved=False) for path in self.files]
        rest = (path for path in library.saved() if path.resolve() not in known)
        return found + [self._cluster(path, saved=True) for path in rest]

    def _runs(self) -> list[ListedRun]:
        """The newest runs with the launcher on this machine that supervises them, if any; then
        the runs that cannot be read."""
        folders, unreadable = RunFolder.scan()
        runs = [self._run(folder) for folder in folders[:MOST_RUNS]]
        active = without_copies([run for run in runs if run.active])
        active += removed_runs({folder.run_id for folder in folders})
        runs = active + [run for run in runs if not run.active]
        return runs + [replace(unreadable_run(run), asked=True) for run in unreadable[:MOST_RUNS]]

    def _run(self, folder: RunFolder) -> ListedRun:
        run_id = folder.run_id
        reader = self._readers.setdefault(folder.path.name, RunReader(folder))
        run = reader.read()
        try:
            launcher = None if run.over else folder.launcher_pid()
        except LockError as error:
            launcher, run = None, replace(run, problem=str(error))
        if launcher is not None:
            run = reader.read(metrics=True)
        problem = self.unreadable.get(run_id, run.problem)
        hosts, asked = self._hosts.get(run_id, ()), run_id in self._asked
        return replace(run, launcher=launcher, hosts=hosts, asked=asked, problem=problem)

    def demos(self) -> list[DemoEntry]:
        """Returns the demos that come with the program."""
        if not self._demos:  # assigned at once: a lookup that was cancelled may still be running
            files = {name: demos.find(name) for name in demos.names()}
            self._demos = [DemoEntry(name, demos.about(file), file) for name, file in files.items()]
        return self._demos

    def _cluster(self, path: Path, saved: bool) -> ClusterEntry:
        stamp = Stamp.of(path)
        known = self._clusters.get(path)
        if known is not None and known.stamp == stamp and stamp is not None:
            return known
        try:
            entry = ClusterEntry(path, saved, stamp, load(path))
        except ClusterFileError as error:
            first = error.problems[0]
            where = f"line {first.line}: " if first.line else ""
            problem = f"{where}{first}"
            entry = ClusterEntry(path, saved, stamp, None, problem, len(error.problems))
        self._clusters[path] = entry
        return entry
