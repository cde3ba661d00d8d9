"""Folders of runs on this machine: what a run leaves here, and which launcher supervises it.

`$XDG_DATA_HOME/tfmux/runs/RUN_ID/` holds `launch.json` (the run's id, and the machine that launched
it), `cluster.toml` (as run), `events.jsonl`, `metrics.jsonl`, and the logs. A folder may be renamed
and copied: the run's id is in its files, and the lock of its launcher (`launcher_lock`) goes by
the id.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import stat
import time
import tomllib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..agent.folders import FolderError, private, remove_tree
from ..errors import LockError, RunNotFoundError, TfmuxError
from ..frozen import frozen
from ..ids import run_name, split_run_id
from ..paths import read_small, runs_home
from ..printable import printable
from .launch_machine import Machine
from .launcher_lock import acquire, launcher_pid
from .living_runs import RUN_ID, entries, local_path, read_entry, remove_entry

if TYPE_CHECKING:
    from ..cluster.file_model import ClusterModel

_PARTIAL = ".new-"
"""Beginning of the names of folders that are not whole: they are being made, or removed."""
_PARTIAL_SECONDS = 600.0
"""Age from which on nobody is at work on one any more."""
_LARGEST_CLUSTER = 16 << 20
_LONGEST_LAUNCH = 4096
_MOST_BESIDE = 3
"""Active runs of one file that are named."""
_LONGEST_PATH = 4096
_LONGEST_FREED = 1 << 20
_MOST_NAMED = 5
_HEAD = 1 << 14
"""Bytes at the beginning of a stream: the first record of a run has a tenth of that."""
SLOW_DISK_SECONDS = 1.0
"""A write that lasts longer is not waited for: the disk is full, or does not answer."""


class RunFolder:
    """One run's folder on this machine."""

    def __init__(self, path: Path, run_id: str | None = None) -> None:
        """`run_id` is the run's id, where it is known without a look at the files."""
        self.path = path
        self._known_id = run_id
        self.cluster_file = path / "cluster.toml"
        """The cluster file as run."""
        self.events = path / "events.jsonl"
        """Records of the run (`stream`)."""
        self.metrics = path / "metrics.jsonl"
        self._launch = path / "launch.json"
        self._origin = path / "origin"
        self._forgotten = path / "forgotten"
        self._freed = path / "freed"

    @cached_property
    def run_id(self) -> str:
        """The run's id, as the folder's files have it: whatever the folder is called now. Without
        any it is the folder's name."""
        return self._known_id or self._launched_id or _first_id(self.events) or self.path.name

    @cached_property
    def _launch_facts(self) -> dict[str, Any]:
        with suppress(OSError, ValueError, RecursionError):
            facts = json.loads(read_small(self._launch, _LONGEST_LAUNCH))
            return facts if isinstance(facts, dict) else {}
        return {}

    @property
    def _launched_id(self) -> str | None:
        return _run_id(self._launch_facts.get("run"))

    @property
    def launched_on(self) -> str:
        """Name of the machine that has launched the run, and on which its tasks of `localhost`
        are; empty where that is this machine, or an earlier version has launched it."""
        if "machine" not in self._launch_facts:
            return ""
        machine = Machine.parse(self._launch_facts["machine"])
        return "" if machine.is_here else machine.name

    @classmethod
    def create(
        cls, run_id: str, text: str, cluster: ClusterModel, machine: Machine | None = None
    ) -> RunFolder:
        """Makes the folder of a new run, mode 0700; `text` is the cluster's file as it stands.
        `machine` has launched the run, where that is not this one.

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
            facts = {"run": run_id, "machine": (machine or Machine.this()).record()}
            (new / "launch.json").write_text(json.dumps(facts) + "\n", encoding="utf-8")
            new.rename(path)  # whole: half a run would be one that cannot be read
        except OSError as error:
            shutil.rmtree(new, ignore_errors=True)
            raise TfmuxError(f"{path} cannot be written: {error.strerror}") from error
        return cls(path, run_id)

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
    def find(cls, name: str, *, removed: bool = False) -> RunFolder:
        """The folder of a run: named by its whole id, or by the folder's name. With `removed` also
        one that is not there any more, where the run's launcher process lives.

        Raises:
            RunNotFoundError: no run.
        """
        named = None
        if name and "/" not in name and _problem(runs_home() / name) is None:
            named = cls(runs_home() / name)
            if named.run_id == name:
                return named
        found = [folder for folder in cls.all() if name and folder.run_id == name]
        if found:
            return one_of_copies(found)
        return cls._in_index(name, removed=removed) if named is None else named

    @classmethod
    def _in_index(cls, name: str, *, removed: bool) -> RunFolder:
        """The folder of a run that is only in the index: in another data home, or removed.

        Raises:
            RunNotFoundError: no run.
        """
        try:
            entry = read_entry(name) if name else None
        except OSError as error:
            raise RunNotFoundError(f"no run {printable(name)!r} here; {error.strerror}") from error
        if entry is None or entry.run_id != name:
            raise RunNotFoundError(
                f"no run {printable(name)!r} here; `tfmux ps` lists the active runs, `tfmux` all"
            )
        folder = cls(entry.folder, entry.run_id)
        if _problem(folder.path) is None and cls(folder.path).run_id == entry.run_id:
            return folder
        if entry.living and removed:
            return folder
        raise RunNotFoundError(removed_text(entry.run_id, entry.hosts, living=entry.living))

    def opened(self) -> RunFolder:
        """This folder by a path that leads to it until this process ends, whatever somebody calls
        it meanwhile; the same path where the system has none such."""
        with suppress(OSError):
            path = Path(f"/proc/self/fd/{os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)}")
            if path.samefile(self.path):
                return RunFolder(path, self.run_id)
        return self

    @property
    def is_there(self) -> bool:
        """Nobody has removed it."""
        return self.path.is_dir()

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
                folder = cls(path)
                found.append((folder.launched, folder))
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
    def written(self) -> float:
        """When its stream was written last; 0 where that cannot be seen."""
        with suppress(OSError):
            return self.events.stat().st_mtime
        return 0.0

    @property
    def origin(self) -> Path:
        """Folder from which the cluster file's relative paths start."""
        with suppress(OSError, ValueError):
            path = Path(os.fsdecode(read_small(self._origin, _LONGEST_PATH)))
            if path.is_absolute() and "\0" not in str(path):
                return path
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
        partial = runs_home() / f"{_PARTIAL}{self.path.name}"
        try:
            if self.path.parent != runs_home() or not stat.S_ISDIR(self.path.lstat().st_mode):
                raise TfmuxError(f"{self.path} is not the folder of a run: it is left alone")
            if (owner := self.path.lstat().st_uid) != os.getuid():
                raise TfmuxError(f"{self.path} belongs to {_user(owner)}: it is left alone")
            if (lock := self.take_lock()) is None:
                raise TfmuxError(f"{self.run_id} is active: `tfmux kill {self.run_id}` ends it")
            try:
                remove_tree(str(partial))  # of an earlier run of this name that was interrupted
                self.path.rename(partial)
                if not remove_tree(str(partial)):
                    raise TfmuxError(f"{partial}: some files in it could not be removed")
            finally:
                remove_entry(self.run_id, lock)
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
            return frozenset(read_small(self._freed, _LONGEST_FREED).decode().splitlines())
        except (OSError, ValueError):
            return frozenset()

    def add_freed(self, hosts: Iterable[str]) -> None:
        """Writes down that hosts hold nothing of the run any more.

        Raises:
            OSError: the disk takes nothing.
        """
        lines = sorted(self.freed | set(hosts))
        new = self.path / "freed.new"
        new.write_text("".join(f"{host}\n" for host in lines), encoding="utf-8")
        new.replace(self._freed)

    def launcher_pid(self) -> int | None:
        """The pid of the run's launcher process, or None where it has none.

        Raises:
            LockError: it cannot be seen whether it has one.
        """
        return launcher_pid(self.path, self.run_id)

    def take_lock(self, *, new: bool = False) -> int | None:
        """Takes the lock of the run's launcher; see `launcher_lock.acquire`.

        Raises:
            LockError: it cannot be seen whether a launcher holds it.
        """
        return acquire(self.path, self.run_id, new=new)


def beside_notes(cluster: ClusterModel) -> list[str]:
    """Sentences about runs of the same cluster file whose launcher processes live: a launch starts
    another one beside them. Hosts are not asked. Blocking."""
    with suppress(OSError):
        return [
            f"{printable(entry.run_id)}, a run of this file, is still active: this one runs beside "
            f"it (tfmux attach {printable(entry.run_id)}, tfmux kill {printable(entry.run_id)})"
            for entry in entries()
            if entry.living and split_run_id(entry.run_id)[0] == run_name(cluster.name)
            if RunFolder(entry.folder, entry.run_id).origin == cluster.base
        ][:_MOST_BESIDE]
    return []


def one_of_copies(folders: Sequence[RunFolder]) -> RunFolder:
    """The one of several folders of the same run in which its launcher writes, else the one that
    was written last."""
    if len(folders) == 1:
        return folders[0]
    with suppress(OSError):
        entry = read_entry(folders[0].run_id)
        for folder in folders:
            if entry is not None and os.path.samefile(folder.path, entry.folder):
                return folder
    return max(folders, key=lambda folder: folder.written)


def removed_text(run_id: str, hosts: Sequence[str], *, living: bool) -> str:
    """Says that the folder of a run has been removed, and how the run is ended."""
    if living:
        what = "is still active, but its folder has been removed"
        return f"{run_id} {what}: `tfmux kill {run_id}` ends it"
    names = f"{', '.join(hosts[:_MOST_NAMED])}{', …' if len(hosts) > _MOST_NAMED else ''}"
    what = "its folder has been removed, and its launcher process has ended without a receipt"
    return (
        f"{run_id}: {what}; {names or 'its hosts'} may have processes of it: "
        f"`tfmux kill {run_id} --file FILE` ends them, with its cluster file"
    )


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


_FIRST_FILES = frozenset({"launch.json", "cluster.toml", "origin", "launcher.lock", "launcher.log"})
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
        data = read_small(path / "cluster.toml", _LARGEST_CLUSTER)
        return "jobs" not in tomllib.loads(data.decode("utf-8-sig"))
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
        old = time.time() - path.stat().st_mtime > _PARTIAL_SECONDS
        if old and RunFolder(path).launcher_pid() is None:
            shutil.rmtree(path, ignore_errors=True)


def _run_id(value: object) -> str | None:
    """The id of a run that a file names; None where it is none."""
    return value if isinstance(value, str) and RUN_ID.fullmatch(value) else None


def _first_id(events: Path) -> str | None:
    """The id in the first record of a run in its stream: earlier versions wrote no
    `launch.json`."""
    with suppress(OSError):
        fd = os.open(events, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return None
            lines = file.read(_HEAD).split(b"\n")
        for line in lines:
            with suppress(ValueError, RecursionError):
                record = json.loads(line)
                if isinstance(record, dict) and record.get("event") == "run":
                    return _run_id(record.get("run"))
    return None


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def socket_path(run_id: str) -> Path:
    """The control socket of a run. It is in a host-local folder, since the run's own may be on a
    disk that does not answer, and its path longer than a socket's may be."""
    return local_path(run_id, ".control")
