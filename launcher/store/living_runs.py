"""Index of living runs: an entry for each run of this user that a launcher process of this machine
supervises, by the run's id.

The entries are in the user's host-local folder, as the sockets are. A launcher holds a lock on its
entry as long as it lives, and removes the entry at the end: one without the lock is of a launcher
that was killed. Copies of a run's folder have the same id, and so the same entry; a run whose
folder was removed is found by it. Cleaners of `/tmp` may remove an entry: its launcher makes it
again (`launcher_lock`).
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import stat
import subprocess
import threading
import time
from collections.abc import Container, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ..agent.folders import FolderError, boot_id, local_folder
from ..frozen import frozen
from ..printable import printable

RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
"""Form of a run's id: the name of a folder."""
_SUFFIX = ".launcher"
_LONGEST = 1 << 20
"""Bytes of an entry: the names of 1,024 hosts have a tenth of that."""
_MOST_HOSTS = 1024
_LONGEST_NAME = 300
_ANSWER_SECONDS = 5.0
"""Longest wait for the index, which is on this machine and answers at once."""
_STALE_SECONDS = 30 * 86_400.0
"""Age from which on the entry of a launcher that was killed is removed."""


@frozen
class Holder:
    """The launcher process that holds a lock, by its own words; empty until it has said them."""

    pid: int = 0
    machine: str = ""
    """This boot of the machine that the process runs on."""
    started: str = ""

    @classmethod
    def this_process(cls) -> Holder:
        return cls(os.getpid(), this_boot(), start_of(os.getpid()))

    @property
    def is_here(self) -> bool:
        """The holder is another process of this machine, and its pid has not been reused."""
        mine = bool(self.started) and self.machine == this_boot() and self.pid != os.getpid()
        return mine and start_of(self.pid) == self.started

    @classmethod
    def parse(cls, line: bytes) -> Holder:
        """Reads the line of a lock file; nobody where it names nobody."""
        words = line.decode(errors="replace").strip().split(" ", 2)
        if not re.fullmatch("[0-9]{1,10}", words[0], re.ASCII):
            return cls()
        return cls(int(words[0]), *words[1:])

    def line(self) -> bytes:
        return f"{self.pid} {self.machine} {self.started}".encode()


@frozen
class LivingRun:
    """What the index says of a run."""

    run_id: str
    folder: Path
    """The run's folder, as its launcher has seen it last."""
    hosts: tuple[str, ...]
    """Its hosts, by their names in the cluster file."""
    holder: Holder
    home: str
    """The home directory of the launcher process."""
    living: bool
    """The launcher process lives."""

    @classmethod
    def parse(cls, line: bytes, *, living: bool) -> LivingRun | None:
        """Reads an entry; None where it is not whole, or was damaged."""
        try:
            values = json.loads(line)
            run_id, folder, hosts = values["run"], values["folder"], values["hosts"]
            texts = (run_id, folder, *hosts[:_MOST_HOSTS])
            if not all(isinstance(text, str) for text in texts) or "\0" in folder:
                return None
            holder = Holder.parse(str(values["launcher"]).encode(errors="replace"))
        except (ValueError, KeyError, TypeError, RecursionError):
            return None
        if not RUN_ID.fullmatch(run_id) or not os.path.isabs(folder):
            return None
        names = tuple(printable(name, _LONGEST_NAME) for name in hosts[:_MOST_HOSTS])
        return cls(run_id, Path(folder), names, holder, str(values.get("home", "")), living)

    def line(self) -> bytes:
        values: dict[str, Any] = {
            "run": self.run_id,
            "folder": str(self.folder),
            "launcher": self.holder.line().decode(),
            "home": self.home,
            "hosts": self.hosts[:_MOST_HOSTS],
        }
        return json.dumps(values).encode() + b"\n"


def local_path(run_id: str, suffix: str) -> Path:
    """Path of a run's file in the user's host-local folder.

    Raises:
        FolderError: that folder cannot be used.
    """
    digest = hashlib.sha256(run_id.encode(errors="surrogateescape")).hexdigest()[:24]
    return Path(local_folder()) / f"{digest}{suffix}"


def entry_path(run_id: str) -> Path:
    """Path of a run's entry.

    Raises:
        FolderError: the user's host-local folder cannot be used.
    """
    return local_path(run_id, _SUFFIX)


def lock_entry(run_id: str) -> int | None:
    """Locks a run's entry, which is made if need be; returns its descriptor, or None where a
    launcher process of this machine has it.

    Raises:
        OSError, FolderError: the index cannot be used.
    """
    path = entry_path(run_id)
    while True:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        fd = os.open(path, flags, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException as error:
            os.close(fd)
            if isinstance(error, BlockingIOError):
                return None
            raise
        if is_file_of(fd, path):
            return fd
        os.close(fd)  # its launcher has removed it at its end


def remove_entry(run_id: str, fd: int) -> None:
    """Removes the entry that is locked by a descriptor."""
    with suppress(OSError, FolderError):
        path = entry_path(run_id)
        if is_file_of(fd, path):
            path.unlink()


def is_file_of(fd: int, path: Path) -> bool:
    """Whether a path leads to the file that a descriptor has open."""
    try:
        there, here = os.lstat(path), os.fstat(fd)
    except OSError:
        return False
    return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)


def read_entry(run_id: str) -> LivingRun | None:
    """The entry of a run; None without a whole one.

    Raises:
        OSError: whether its launcher lives cannot be seen.
    """
    try:
        return _read(entry_path(run_id))
    except FolderError:
        return None


def holder_of(run_id: str) -> Holder | None:
    """The launcher process that has locked a run's entry, empty where it has not said who it is;
    None: nobody has.

    Raises:
        OSError, FolderError: the index cannot be used.
    """
    with suppress(FileNotFoundError), _opened(entry_path(run_id)) as (line, locked):
        if locked:
            entry = LivingRun.parse(line, living=True)
            return Holder() if entry is None else entry.holder
    return None


def entries() -> list[LivingRun]:
    """All whole entries. Old ones of launchers that were killed are removed, and empty ones.

    Raises:
        OSError: the file system of the index does not answer.
    """
    found: list[list[LivingRun]] = []
    look = threading.Thread(target=lambda: found.append(_entries()), name="index", daemon=True)
    look.start()
    look.join(_ANSWER_SECONDS)
    if not found:
        raise OSError(
            errno.ETIMEDOUT, "the file system of the index of active runs does not answer"
        )
    return found[0]


def _entries() -> list[LivingRun]:
    found = []
    try:
        folder = Path(local_folder())
        names = sorted(name for name in os.listdir(folder) if name.endswith(_SUFFIX))
    except (FolderError, OSError):
        return []
    for name in names:
        with suppress(OSError):
            entry = _read(folder / name)
            if entry is None or not entry.living:
                _remove_stale(folder / name, whole=entry is not None)
            if entry is not None:
                found.append(entry)
    return found


def this_boot() -> str:
    """The name of this boot of this machine."""
    try:
        return boot_id()
    except OSError:
        return os.uname().nodename.replace(" ", "-")


def start_of(pid: int) -> str:
    """When a process began, as its kernel counts; empty where there is none."""
    from ..agent import processes  # which a list of runs need not always have

    if (process := processes.read_process(pid)) is not None:
        return str(process.start)
    if os.path.exists("/proc/self/stat"):
        return ""
    words = ["ps", "-o", "lstart=", "-p", str(pid)]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()


@contextmanager
def _opened(path: Path) -> Iterator[tuple[bytes, bool]]:
    """Opens an entry: its first line, and whether a launcher process has it locked."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        info, locked = os.fstat(fd), False
        if not stat.S_ISREG(info.st_mode) or info.st_uid != os.getuid():
            yield b"", False
            return
        try:  # a shared lock: of two that looked at once, each took the other for a launcher
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            locked = True
        yield os.pread(fd, _LONGEST, 0).partition(b"\n")[0], locked
    finally:
        os.close(fd)


def _read(path: Path) -> LivingRun | None:
    with suppress(FileNotFoundError), _opened(path) as (line, locked):
        return LivingRun.parse(line, living=locked)
    return None


def _remove_stale(path: Path, *, whole: bool) -> None:
    """Removes an entry of which nothing can be known any more, unless a launcher has taken it."""
    if whole and time.time() - path.lstat().st_mtime < _STALE_SECONDS:
        return
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if is_file_of(fd, path) and (whole or not os.fstat(fd).st_size):
            path.unlink()
    finally:
        os.close(fd)


def without_folder(ids: Container[str], home: Path) -> Iterator[LivingRun]:
    """Entries of runs whose folder was in a folder of runs, and that is not among `ids`.

    Raises:
        OSError: the file system of the index does not answer.
    """
    real = os.path.realpath(home)
    for entry in entries():
        if entry.run_id not in ids and os.path.realpath(entry.folder.parent) == real:
            yield entry
