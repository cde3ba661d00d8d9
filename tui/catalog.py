"""Catalog of the home screen: clusters, runs and demos, read from disk, and what hosts report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from launcher.cluster import ClusterModel, library, load
from launcher.cluster.saved_file import Stamp
from launcher.errors import ClusterFileError, LockError
from launcher.session.records import (
    ActiveRun,
    RunSummary,
    SummaryReader,
    active_runs,
    unreadable_summary,
)
from launcher.store.runs import RunFolder
from tui import demos

MOST_RUNS = 300
"""Runs that are listed; `tfmux logs` opens older ones by name."""


@dataclass(frozen=True)
class ClusterEntry:
    """Cluster file, as a row of the home screen."""

    path: Path
    saved: bool
    """It is one of the saved clusters; otherwise it was named on the command line."""
    stamp: Stamp | None
    cluster: ClusterModel | None
    problem: str = ""
    problems: int = 0

    @property
    def key(self) -> str:
        """Key of its row in Home's table of clusters."""
        return f"cluster {self.path}"


@dataclass(frozen=True)
class RunEntry:
    """A run; `report` is what its hosts reported, if they were asked."""

    summary: RunSummary
    launcher: int | None
    report: ActiveRun | None = None
    asked: bool = False

    @property
    def active(self) -> bool:
        """It has a launcher, its hosts report tasks, or they are still being asked."""
        if self.launcher is not None:
            return True
        if self.summary.over:
            return False
        return not self.asked or (self.report is not None and self.report.alive)

    @property
    def key(self) -> str:
        """Key of its row in Home's table of runs."""
        return f"run {self.summary.run_id}"


@dataclass(frozen=True)
class DemoEntry:
    """A demo: its name and the first comment of its file."""

    name: str
    about: str
    path: Path

    @property
    def key(self) -> str:
        """Key of its row in Home's table of demos."""
        return f"demo {self.name}"


Entry = ClusterEntry | RunEntry | DemoEntry


class Entries(NamedTuple):
    """Clusters, runs and demos that the home screen lists."""

    active: list[RunEntry]
    clusters: list[ClusterEntry]
    past: list[RunEntry]
    demos: list[DemoEntry]


@dataclass
class Catalog:
    """Reads what there is, and again only what has changed. Blocking: for a thread."""

    files: Sequence[Path] = ()
    unreadable: dict[str, str] = field(default_factory=dict)
    """Runs of which it is not known whether they are active, and why."""
    _clusters: dict[Path, ClusterEntry] = field(default_factory=dict)
    _summaries: dict[str, SummaryReader] = field(default_factory=dict)
    _demos: list[DemoEntry] = field(default_factory=list)
    _reports: dict[str, ActiveRun] = field(default_factory=dict)
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
        self._reports = {run.run_id: run for run in found.runs}
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

    def _runs(self) -> list[RunEntry]:
        """The newest runs with the launcher on this machine that supervises them, if any; then
        the runs that cannot be read."""
        folders, unreadable = RunFolder.scan()
        entries = []
        for folder in folders[:MOST_RUNS]:
            reader = self._summaries.setdefault(folder.run_id, SummaryReader(folder))
            told = reader.read()
            try:
                launcher = None if told.over else folder.launcher_pid()
            except LockError as error:
                launcher, told = None, replace(told, problem=str(error))
            if launcher is not None:
                told = reader.read(metrics=True)
            entries.append(self._run(told, launcher, asked=told.run_id in self._asked))
        shown = [unreadable_summary(run) for run in unreadable[:MOST_RUNS]]
        return entries + [self._run(told, None, asked=True) for told in shown]

    def _run(self, told: RunSummary, launcher: int | None, *, asked: bool) -> RunEntry:
        if problem := self.unreadable.get(told.run_id):
            told = replace(told, problem=problem)
        return RunEntry(told, launcher, self._reports.get(told.run_id), asked)

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
