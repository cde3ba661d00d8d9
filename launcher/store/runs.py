"""Folders of runs on this machine: what a run leaves here, and which launcher supervises it.

`$XDG_DATA_HOME/tfmux/runs/RUN_ID/` holds `cluster.toml` (as run), `events.jsonl`,
`metrics.jsonl`, and the logs.
A launcher holds a lock on `launcher.lock` while it lives; the lock goes with the process, so
nothing stale can stay behind after a crash.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import shutil
import stat
import time
import tomllib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ..agent.folders import FolderError, local_folder, private, remove_tree
from ..errors import LockError, RunNotFoundError, TfmuxError
from ..frozen import frozen
from ..paths import runs_home
from .launcher_lock import acquire, launcher_pid

if TYPE_CHECKING:
    from ..cluster.file_model import ClusterModel

_PARTIAL = ".new-"
"""Beginning of the names of folders that are not whole: they are being made, or removed."""
_PARTIAL_SECONDS = 600.0
"""Age from which on nobody is at work on one any more."""
SLOW_DISK_SECONDS = 1.0
"""A write that lasts longer is not waited for: the disk is full, or does not answer."""


class RunFolder:
    """One run's folder on this machine."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.run_id = path.name
        self.cluster_file = path / "cluster.toml"
        """The cluster file as run."""
        self.events = path / "events.jsonl"
        """Records of the run (`stream`)."""
        self.metrics = path / "metrics.jsonl"
        self._origin = path / "origin"
        self._forgotten = path / "forgotten"
        self._freed = path / "freed"

    @classmethod
    def create(cls, run_id: str, text: str, cluster: ClusterModel) -> RunFolder:
        """Makes the folder of a new run, mode 0700; `text` is the cluster's file as it stands.

        Raises:
            TfmuxError: the disk is full, or the folder of runs is somebody else's.
        """
        path = runs_home() / run_id
        new = runs_home() / f"{_PARTIAL}{run_id}"
        try:
            private(str(runs_home()))
            new.mkdir(mode=0o700)
        except FolderError as error:
            raise TfmuxError(f"runs are not kept there: {error}") from error
        except OSError as error:
            raise TfmuxError(f"{path} cannot be made: {error.strerror}") from error
        try:
            cls(new).write_cluster(text, cluster)
            new.rename(path)  # whole: half a run would be one that cannot be read
        except OSError as error:
            shutil.rmtree(new, ignore_errors=True)
            raise TfmuxError(f"{path} cannot be written: {error.strerror}") from error
        return cls(path)

    def write_cluster(self, text: str, cluster: ClusterModel) -> None:
        """Keeps the cluster's file as it stands, and where its relative paths start.

        Raises:
            OSError: the disk is full or gone; what was there is there.
        """
        if cluster.file.names_cluster:
            from ..cluster.read import with_file_name

            # It has that of the file, and this copy is called otherwise.
            text = with_file_name(text, cluster.name)
        new = self.path / "cluster.toml.new"
        new.write_text(text, encoding="utf-8", newline="")
        new.replace(self.cluster_file)
        self._origin.write_bytes(os.fsencode(cluster.base))

    @classmethod
    def find(cls, run_id: str) -> RunFolder:
        """The folder of a run, named whole or by a beginning that only one has.

        Raises:
            RunNotFoundError: no run, or several.
        """
        if run_id and "/" not in run_id and _problem(runs_home() / run_id) is None:
            return cls(runs_home() / run_id)
        found = [folder for folder in cls.all() if run_id and folder.run_id.startswith(run_id)]
        if len(found) == 1:
            return found[0]
        if found:
            names = ", ".join(folder.run_id for folder in found[:5])
            raise RunNotFoundError(f"{run_id!r} is the beginning of several runs: {names}")
        raise RunNotFoundError(
            f"no run {run_id!r} here; `tfmux ps` lists the active runs, `tfmux` all"
        )

    @classmethod
    def all(cls) -> list[RunFolder]:
        """All runs that can be looked at, the newest first."""
        return cls.scan()[0]

    @classmethod
    def scan(cls) -> tuple[list[RunFolder], list[UnreadableRun]]:
        """All runs, the newest first, and what stands among them and cannot be looked at. What is
        left of runs that never began is removed."""
        found: list[tuple[float, RunFolder]] = []
        unreadable = []
        try:
            names = sorted(os.listdir(runs_home()))
        except FileNotFoundError:
            names = []
        except OSError as error:
            names = []
            unreadable.append(UnreadableRun(str(runs_home()), error.strerror or str(error)))
        for name in names:
            path = runs_home() / name
            if name.startswith(_PARTIAL) or _never_began(path):
                _remove_old(path)
                continue
            problem = _problem(path)
            if problem is None:
                found.append((cls(path).launched, cls(path)))
            elif problem:
                unreadable.append(UnreadableRun(name, problem))
        found.sort(key=lambda one: one[0], reverse=True)
        return [folder for _, folder in found], unreadable

    @property
    def launched(self) -> float:
        """When the run was launched; 0 where that cannot be seen."""
        with suppress(OSError):
            return self.cluster_file.stat().st_mtime
        return 0.0

    @property
    def origin(self) -> Path:
        """Folder from which the cluster file's relative paths start."""
        with suppress(OSError):
            return Path(os.fsdecode(self._origin.read_bytes()))
        return self.path

    def remove(self) -> None:
        """Removes the folder of a run that was never launched."""
        shutil.rmtree(self.path, ignore_errors=True)

    def delete(self) -> None:
        """Deletes the folder of a run that has ended, with its record and logs, and nothing to
        which a link in it leads. What is interrupted goes on with the next look at all runs.

        Raises:
            TfmuxError: the folder is another user's or no folder, a launcher process has the run,
                or something in it cannot be removed.
        """
        partial = runs_home() / f"{_PARTIAL}{self.run_id}"
        try:
            if self.path.parent != runs_home() or not stat.S_ISDIR(self.path.lstat().st_mode):
                raise TfmuxError(f"{self.path} is not the folder of a run: it is left alone")
            if (owner := self.path.lstat().st_uid) != os.getuid():
                raise TfmuxError(f"{self.path} belongs to {_user(owner)}: it is left alone")
            if (lock := acquire(self.path)) is None:
                raise TfmuxError(f"{self.run_id} is active: `tfmux kill {self.run_id}` ends it")
            try:
                remove_tree(str(partial))  # of an earlier run of this name that was interrupted
                self.path.rename(partial)
                if not remove_tree(str(partial)):
                    raise TfmuxError(f"{partial}: some files in it could not be removed")
            finally:
                os.close(lock)
        except OSError as error:
            raise TfmuxError(f"{error.filename or self.path}: {error.strerror}") from error

    @property
    def forgotten(self) -> bool:
        """Somebody has taken it from the list of active runs, although no host has confirmed that
        nothing of it is left."""
        return self._forgotten.exists()

    def forget(self, *, yes: bool = True) -> None:
        """Takes it from that list, or puts it there again.

        Raises:
            OSError: the disk takes nothing.
        """
        if yes:
            self._forgotten.touch(mode=0o600)
        else:
            self._forgotten.unlink(missing_ok=True)

    @property
    def freed(self) -> frozenset[str]:
        """Hosts on which somebody has had deleted what they held of the run."""
        try:
            return frozenset(self._freed.read_text(encoding="utf-8").splitlines())
        except (OSError, ValueError):
            return frozenset()

    def add_freed(self, hosts: Iterable[str]) -> None:
        """Writes down that hosts hold nothing of the run any more.

        Raises:
            OSError: the disk takes nothing.
        """
        lines = sorted(self.freed | set(hosts))
        self._freed.write_text("".join(f"{host}\n" for host in lines), encoding="utf-8")

    def launcher_pid(self) -> int | None:
        """The pid of the run's launcher process, or None where it has none.

        Raises:
            LockError: it cannot be seen whether it has one.
        """
        return launcher_pid(self.path)


@frozen
class UnreadableRun:
    """Something among the runs that could not be looked at, and why."""

    run_id: str
    reason: str


def _problem(path: Path) -> str | None:
    """Reason for which this is not the folder of a run; empty if nothing was ever launched from
    it."""
    try:
        if not stat.S_ISDIR(path.stat().st_mode):
            return "not a directory"
        if stat.S_ISREG((path / "cluster.toml").stat().st_mode):
            return None
        return "its cluster.toml is not a regular file"
    except FileNotFoundError:
        with suppress(OSError):
            # A run's folder is made before its files: it may be about to get them.
            return "it has no cluster.toml" if os.listdir(path) else ""
        return "a dangling symbolic link" if path.is_symlink() else ""
    except OSError as error:
        return error.strerror or str(error)


_FIRST_FILES = frozenset({"cluster.toml", "origin", "launcher.lock", "launcher.log"})
"""Files of a run that exist before its first record."""


def _never_began(path: Path) -> bool:
    """Whether a folder is what a launch has left that was ended, or met a full disk, before it had
    written the cluster file: no record, no log, and no file to launch. A launch may be writing it
    just now."""
    try:
        if path.is_symlink():
            return False
        with os.scandir(path) as entries:
            if not all(map(_is_first, entries)):
                return False
        raw = tomllib.loads((path / "cluster.toml").read_text(encoding="utf-8-sig"))
        return "jobs" not in raw
    except (FileNotFoundError, ValueError, RecursionError):
        return True
    except OSError:
        return False


def _is_first(entry: os.DirEntry[str]) -> bool:
    """Whether a file exists before a run's first record; logs and records do, empty."""
    if entry.name in _FIRST_FILES:
        return True
    return entry.name.endswith((".jsonl", ".log")) and entry.is_file() and not entry.stat().st_size


def _remove_old(path: Path) -> None:
    with suppress(OSError, LockError):
        if time.time() - path.stat().st_mtime > _PARTIAL_SECONDS and launcher_pid(path) is None:
            shutil.rmtree(path, ignore_errors=True)


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def socket_path(run_id: str) -> Path:
    """The control socket of a run. It is in a host-local folder, since the run's own may be on a
    disk that does not answer, and its path longer than a socket's may be."""
    digest = hashlib.sha256(run_id.encode()).hexdigest()[:24]
    return Path(local_folder()) / f"{digest}.control"
