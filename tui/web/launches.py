"""The runs that the pages of one server have launched or looked at.

A page comes and goes, so no run lives in one: each has a launcher of its own in the background.
A file a run in the server's private folder names it, and its launcher holds a lock on that file
from before its process exists until it has ended. So two pages that launch at the same moment,
or one that is reloaded while it launches, get one run; and nothing stale stays after a crash.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from launcher.cluster.spec import Cluster
from launcher.errors import TfmuxError
from launcher.ids import new_run_id
from launcher.paths import runs_home
from launcher.plan.plan import make_plan
from launcher.session.history import summary
from launcher.store.runs import RunFolder

FOLDER_VARIABLE = "TFMUX_SERVE"
"""Tells a page where its server keeps these files."""
_OF_PAGES = (
    FOLDER_VARIABLE,
    "TEXTUAL_DRIVER",
    "TEXTUAL_FPS",
    "TEXTUAL_COLOR_SYSTEM",
    "TERM_PROGRAM",
    "TERM_PROGRAM_VERSION",
    "COLUMNS",
    "ROWS",
)
_PATIENCE = 5.0


@dataclass(frozen=True)
class Launched:
    """A run, and whether it was there before."""

    folder: RunFolder
    again: bool = False


class Launches:
    """The files of one server's runs; safe to use from many processes at once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def launch(self, cluster: Cluster, text: str, resume: str | None = None) -> Launched:
        """Launches a cluster in the background, or finds the living run of that name.

        Raises:
            TfmuxError: it cannot be planned, or its last run is still being put away.
            OSError: the run's folder cannot be made.
        """
        path = self._path(cluster.name)
        lock = self._lock(path)
        if isinstance(lock, RunFolder):
            return Launched(lock, again=True)
        try:
            earlier = self._named(path)
            if earlier is not None and _open(earlier) and earlier.tended() is not None:
                return Launched(earlier, again=True)  # another launcher has taken it over
            os.ftruncate(lock, 0)
            run_id = new_run_id(cluster.name)
            make_plan(cluster, run_id, resume=resume)
            folder = RunFolder.create(run_id, text, cluster)
            os.pwrite(lock, run_id.encode(), 0)
            words = ["launch", run_id, *([resume] if resume else [])]
            _start(words, folder, lock)
        finally:
            os.close(lock)  # the launcher has inherited it, and holds the lock from here on
        return Launched(folder)

    def attach(self, folder: RunFolder) -> None:
        """Sees to it that a launcher tends a living run, and remembers it."""
        path = self._path(folder.run_id)
        lock = self._lock(path)
        if isinstance(lock, RunFolder):
            return
        try:
            os.ftruncate(lock, 0)
            tended = self.tended(folder)
            os.pwrite(lock, folder.run_id.encode(), 0)
            if not tended:
                _start(["attach", folder.run_id], folder, lock)
        finally:
            os.close(lock)

    def tended(self, folder: RunFolder) -> bool:
        """A launcher has the run, or is about to."""
        if folder.tended() is not None:
            return True
        named = [path for path in self._paths() if _is(self._named(path), folder)]
        return any(_held(path) for path in named)

    def living(self) -> list[RunFolder]:
        """The runs that have a launcher and have not ended, the newest first."""
        found: list[RunFolder] = []
        for path in self._paths():
            folder = self._named(path)
            if folder is None or any(_is(folder, one) for one in found) or not _open(folder):
                continue
            if _held(path) or folder.tended() is not None:
                found.append(folder)
        return found

    def _lock(self, path: Path) -> int | RunFolder:
        """A descriptor that holds the lock, or the living run whose launcher holds it."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + _PATIENCE
        while True:
            with suppress(BlockingIOError):
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return fd
            living = self._named(path)
            if living is not None and _open(living):
                os.close(fd)
                return living
            if time.monotonic() > deadline:
                os.close(fd)
                raise TfmuxError("the last run is still being put away; try again in a moment")
            time.sleep(0.02)

    def _path(self, name: str) -> Path:
        return self._folder / f"{hashlib.sha256(name.encode()).hexdigest()[:24]}.run"

    def _paths(self) -> list[Path]:
        with suppress(OSError):
            paths = self._folder.glob("*.run")
            return sorted(paths, key=lambda path: path.stat().st_mtime, reverse=True)
        return []

    @staticmethod
    def _named(path: Path) -> RunFolder | None:
        with suppress(OSError):
            run_id = path.read_text()
            if run_id and (runs_home() / run_id).is_dir():
                return RunFolder(runs_home() / run_id)
        return None


def _is(one: RunFolder | None, other: RunFolder) -> bool:
    return one is not None and one.run_id == other.run_id


def _open(folder: RunFolder) -> bool:
    """Its events do not say that it has ended."""
    return summary(folder).ended is None


def _held(path: Path) -> bool:
    try:
        with path.open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _start(words: list[str], folder: RunFolder, lock: int) -> None:
    environ = {key: value for key, value in os.environ.items() if key not in _OF_PAGES}
    with (folder.path / "launcher.log").open("ab") as output:
        subprocess.Popen(
            [sys.executable, "-P", "-m", "tui.web.background", *words],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environ,
            start_new_session=True,
            pass_fds=(lock,),
        )
