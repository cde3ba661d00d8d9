"""Lock of a run's launcher process: `launcher.lock` in the run's folder, held while it lives.

Whoever starts a launcher process takes the lock and hands the descriptor over, so there is no
moment without one; it goes with the process, and nothing stale is left after a crash. The file
names the holder by machine, pid and start time: whoever takes the run over from a launcher that
stands still ends that process first, and no other one.

A home may lie on a file system whose locks fail (NFS without its lock service) or never answer:
then nobody knows whether a launcher holds the lock, and everybody here says so (`LockError`).
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from ..agent.folders import boot_id
from ..errors import LockError
from ..frozen import frozen

_NAME = "launcher.lock"
_RETRY_SECONDS = 0.2
_LONGEST = 200
"""Bytes of the line that names the holder; blanks overwrite what an earlier one has left."""
_ANSWER_SECONDS = 5.0
"""Longest wait for the lock service of a file system, which answers in milliseconds."""
_END_SECONDS = 2.0
"""Longest wait for the end of a launcher that was killed: one that sleeps in the kernel, on a disk
that does not answer, keeps its lock until the disk does."""
_REMEDY = "have XDG_DATA_HOME name a folder on a file system with locks, such as a local disk"
_hanging: set[Path] = set()
"""Lock files for which a thread hangs: no other one is sent after it."""
_guard = threading.Lock()
"""Guards `_hanging`, and the moment in which a thread is given up."""
_Found = TypeVar("_Found")


@frozen
class Holder:
    """The launcher process that holds a lock, by its own words; empty until it has said them."""

    pid: int = 0
    machine: str = ""
    """This boot of the machine that the process runs on."""
    started: str = ""

    @classmethod
    def this_process(cls) -> Holder:
        return cls(os.getpid(), _machine(), _start_of(os.getpid()))

    @property
    def is_here(self) -> bool:
        """The holder is another process of this machine, and its pid has not been reused."""
        mine = bool(self.started) and self.machine == _machine() and self.pid != os.getpid()
        return mine and _start_of(self.pid) == self.started

    @classmethod
    def parse(cls, line: bytes) -> Holder:
        """Reads the line of a lock file; nobody where it names nobody."""
        words = line.decode(errors="replace").strip().split(" ", 2)
        if not words[0].isdigit():
            return cls()
        return cls(int(words[0]), *words[1:])

    def line(self) -> bytes:
        return f"{self.pid} {self.machine} {self.started}".ljust(_LONGEST).encode()


def acquire(folder: Path) -> int | None:
    """Takes the lock of a run; returns its descriptor, or None where a launcher holds it.

    Raises:
        LockError: the file cannot be opened, or its lock not be taken.
    """
    path = folder / _NAME

    def take() -> int | None:
        create = 0 if path.exists() else os.O_CREAT  # a disk that does not answer may be read
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | create, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException as error:
            os.close(fd)
            if isinstance(error, BlockingIOError):
                return None
            raise
        return fd

    return _answer(path, take, os.close)


def holder_of(folder: Path) -> Holder | None:
    """The launcher that holds the lock of a run; None: nobody does.

    Raises:
        LockError: it cannot be seen whether somebody holds the lock.
    """
    path = folder / _NAME

    def look() -> Holder | None:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:  # a shared lock: of two that looked at once, each took the other for a launcher
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return Holder.parse(os.pread(fd, _LONGEST, 0))
        finally:
            os.close(fd)
        return None

    return _answer(path, look)


def launcher_pid(folder: Path) -> int | None:
    """The pid of the process that holds the lock (0 where it has not written it), or None.

    Raises:
        LockError: it cannot be seen whether somebody holds the lock.
    """
    holder = holder_of(folder)
    return None if holder is None else holder.pid


class FollowedError(Exception):
    """Another launcher has the lock of the one that was killed."""


def take_over(folder: Path) -> int | None:
    """The lock of a run whose launcher does not answer: that process is killed first, so that
    there are never two. None where it cannot be: another machine's, or one that has not said who
    it is, or sleeps in the kernel.

    Raises:
        FollowedError: somebody else, who follows the run, was quicker to take it.
        LockError: the lock cannot be used.
    """
    deadline = time.monotonic() + _END_SECONDS
    killed: Holder | None = None
    while (fd := acquire(folder)) is None:
        holder = holder_of(folder)
        if holder is not None:
            # The next one has written another line, or not yet its own over that of the dead one.
            if killed is not None and (holder != killed or not holder.is_here):
                raise FollowedError
            if not holder.is_here or time.monotonic() > deadline:
                return None
            _kill(holder)
            killed = holder
        time.sleep(_RETRY_SECONDS / 10)
    return fd


def is_abandoned(folder: Path) -> bool:
    """A launcher process has held the lock, and none does, as far as this can be seen."""
    try:
        return (folder / _NAME).exists() and launcher_pid(folder) is None
    except LockError:
        return False


@contextmanager
def held(folder: Path, fd: int | None) -> Iterator[None]:
    """Holds the lock in the launcher process, and says there who it is; `fd` holds it already. None
    where a launcher on another machine keeps it, from which this one takes the hosts."""
    if fd is not None:
        # On a thread: a disk that does not answer must not hold up a kill.
        threading.Thread(target=_sign, args=(folder / _NAME,), name="lock", daemon=True).start()
    try:
        yield
    finally:
        if fd is not None:
            os.close(fd)


def _sign(path: Path) -> None:
    with suppress(OSError), open(path, "r+b", buffering=0) as file:
        file.write(Holder.this_process().line())


def _kill(holder: Holder) -> None:
    """Kills the process of a holder, and no other that has got its pid."""
    from ..agent import processes  # which a list of runs does not need

    process = processes.read_process(holder.pid)
    with suppress(ProcessLookupError):
        if process is None:  # no /proc
            os.kill(holder.pid, signal.SIGKILL)
        elif str(process.start) == holder.started:
            processes.send(process, [signal.SIGKILL])


def _machine() -> str:
    try:
        return boot_id()
    except OSError:
        return os.uname().nodename.replace(" ", "-")


def _start_of(pid: int) -> str:
    """When a process began, as its kernel counts; empty where there is none."""
    from ..agent import processes

    if (process := processes.read_process(pid)) is not None:
        return str(process.start)
    if os.path.exists("/proc/self/stat"):
        return ""
    words = ["ps", "-o", "lstart=", "-p", str(pid)]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()


def _answer(
    path: Path, work: Callable[[], _Found], give_back: Callable[[Any], None] | None = None
) -> _Found:
    """What `work` returns, on a thread that is left behind when it hangs; what that returns when
    nobody waits any more goes to `give_back`.

    Raises:
        LockError: it failed, or hangs.
    """
    found: list[_Found] = []
    failed: list[OSError] = []
    done = threading.Event()

    def run() -> None:
        try:
            found.append(work())
        except OSError as error:
            failed.append(error)
        with _guard:
            done.set()
            if path in _hanging:
                _hanging.remove(path)
                if found and found[0] is not None and give_back is not None:
                    give_back(found[0])

    with _guard:
        hangs = path in _hanging
    if not hangs:
        threading.Thread(target=run, name="file lock", daemon=True).start()
        done.wait(_ANSWER_SECONDS if not _hanging else _RETRY_SECONDS)
        with _guard:
            hangs = not done.is_set()
            if hangs:
                _hanging.add(path)
    if hangs:
        reason = "its file system does not answer"
        raise LockError(f"the lock {path} cannot be used: {reason}; {_REMEDY}")
    if failed:
        reason = failed[0].strerror or str(failed[0])
        raise LockError(f"the lock {path} cannot be used: {reason}; {_REMEDY}") from failed[0]
    return found[0]
