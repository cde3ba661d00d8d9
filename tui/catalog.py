"""Catalog of the home screen: clusters, runs and demos, read from disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from launcher.cluster import library
from launcher.cluster.file import load
from launcher.cluster.library import Stamp
from launcher.cluster.spec import Cluster
from launcher.errors import ClusterFileError
from launcher.session.discovery import ActiveRun
from launcher.session.history import RunSummary, summary, unreadable_summary
from launcher.store.runs import RunFolder
from tui import demos

MOST_RUNS = 300
"""Runs that are listed; `tfmux logs` opens older ones by name."""


@dataclass(frozen=True)
class ClusterEntry:
    """A cluster file."""

    path: Path
    saved: bool
    """It is one of the saved clusters; otherwise it was named on the command line."""
    stamp: Stamp | None
    cluster: Cluster | None
    problem: str = ""
    problems: int = 0

    @property
    def key(self) -> str:
        """Key of its row."""
        return f"cluster {self.path}"


@dataclass(frozen=True)
class RunEntry:
    """A run; `living` is what its hosts report, if they were asked."""

    summary: RunSummary
    launcher: int | None
    living: ActiveRun | None = None
    asked: bool = False

    @property
    def lives(self) -> bool:
        """It has a launcher, its hosts report tasks, or they are still being asked."""
        if self.launcher is not None:
            return True
        if self.summary.over:
            return False
        return not self.asked or (self.living is not None and self.living.alive)

    @property
    def key(self) -> str:
        """Key of its row."""
        return f"run {self.summary.run_id}"


@dataclass(frozen=True)
class DemoEntry:
    """A demo: its name and the first comment of its file."""

    name: str
    about: str
    path: Path

    @property
    def key(self) -> str:
        """Key of its row."""
        return f"demo {self.name}"


Entry = ClusterEntry | RunEntry | DemoEntry


@dataclass
class Catalog:
    """Reads what there is, and again only what has changed. Blocking: for a thread."""

    files: Sequence[Path] = ()
    _clusters: dict[Path, ClusterEntry] = field(default_factory=dict)
    _runs: dict[str, tuple[Stamp | None, RunSummary]] = field(default_factory=dict)
    _demos: list[DemoEntry] = field(default_factory=list)

    def clusters(self) -> list[ClusterEntry]:
        """Files of the command line, then the saved ones."""
        known = {path.resolve(): None for path in self.files}
        found = [self._cluster(path, saved=False) for path in self.files]
        rest = (path for path in library.saved() if path.resolve() not in known)
        return found + [self._cluster(path, saved=True) for path in rest]

    def runs(self) -> list[RunEntry]:
        """The newest runs with the launcher on this machine that supervises them, if any; then
        the runs that cannot be read."""
        folders, unreadable = RunFolder.scan()
        entries = []
        for folder in folders[:MOST_RUNS]:
            told = self._summary(folder)
            entries.append(RunEntry(told, None if told.over else folder.launcher_pid()))
        shown = [unreadable_summary(run) for run in unreadable[:MOST_RUNS]]
        return entries + [RunEntry(told, None, asked=True) for told in shown]

    def demos(self) -> list[DemoEntry]:
        """All demos."""
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

    def _summary(self, folder: RunFolder) -> RunSummary:
        stamp = Stamp.of(folder.journal) or Stamp.of(folder.public_events)
        known = self._runs.get(folder.run_id)
        if known is not None and known[0] == stamp:
            return known[1]
        told = summary(folder)
        self._runs[folder.run_id] = (stamp, told)
        return told
