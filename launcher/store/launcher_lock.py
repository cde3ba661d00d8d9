"""Lock of a run's launcher process: `launcher.lock` in the run's folder, held while it lives.

Whoever starts a launcher process takes the lock and hands the descriptor over, so there is no
moment without one; it goes with the process, and nothing stale is left after a crash.

A home may lie on a file system whose locks fail (NFS without its lock service) or never answer:
then nobody knows whether a launcher holds the lock, and everybody here says so (`LockError`).
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import LockError
from .disk import Disk

_NAME = "launcher.lock"
_RETRY_SECONDS = 0.2
_PID_WIDTH = 10
_ANSWER_SECONDS = 5.0
"""Longest wait for the lock service of a file system, which answers in milliseconds."""
_REMEDY = "have XDG_DATA_HOME name a folder on a file system with locks, such as a local disk"
_hanging: set[Path] = set()
"""Lock files for which a thread hangs: no other one is sent after it."""
_guard = threading.Lock()
"""Guards `_hanging`, and the moment in which a thread is given up."""


def acquire(folder: Path) -> int | None:
    """Takes the lock of a run; returns its descriptor, or None where a launcher holds it.

    Raises:
        LockError: the file cannot be opened, or its lock not be taken.
    """
    path = folder / _NAME

    def take() -> int | None:
        create = 0 if path.exists() else os.O_CREAT  # a disk that does not answer may be read
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | create, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException as error:
            os.close(fd)
            if isinstance(error, BlockingIOError):
                return None
            raise
        return fd

    return _answer(path, take, os.close)


def launcher_pid(folder: Path) -> int | None:
    """The pid of the process that holds the lock (0 where it has not written it), or None.

    Raises:
        LockError: it cannot be seen whether somebody holds the lock.
    """
    path = folder / _NAME

    def look() -> int | None:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:  # a shared lock: of two that looked at once, each took the other for a launcher
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            with suppress(ValueError):
                return int(os.pread(fd, _PID_WIDTH, 0) or 0)
            return 0
        finally:
            os.close(fd)
        return None

    return _answer(path, look)


def is_abandoned(folder: Path) -> bool:
    """A launcher process has held the lock, and none does, as far as this can be seen."""
    try:
        return (folder / _NAME).exists() and launcher_pid(folder) is None
    except LockError:
        return False


def _answer(
    path: Path, work: Callable[[], int | None], give_back: Callable[[int], None] | None = None
) -> int | None:
    """What `work` returns, on a thread that is left behind when it hangs; what that returns when
    nobody waits any more goes to `give_back`.

    Raises:
        LockError: it failed, or hangs.
    """
    found: list[int | None] = []
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


@contextmanager
def held(folder: Path, fd: int | None, disk: Disk, failed: Callable[[str], None]) -> Iterator[None]:
    """Holds the lock in the launcher process; `fd` holds it already.

    A launcher that takes over from one which stands still begins without the lock, and takes it
    when that one has ended. `failed` hears once, on a thread, why that does not succeed.
    """
    over = threading.Event()
    descriptors = [] if fd is None else [fd]

    def release() -> None:
        with suppress(IndexError):
            os.close(descriptors.pop())

    def hold() -> None:
        told = False
        while not over.is_set():
            try:
                if not descriptors and (taken := acquire(folder)) is not None:
                    descriptors.append(taken)
                if descriptors:
                    disk.write(folder / _NAME, f"{os.getpid():<{_PID_WIDTH}}".encode(), 0)
                    break
            except (LockError, OSError) as error:
                if not told:
                    failed(f"this launcher is not known to others: {error}")
                told = True
            over.wait(_RETRY_SECONDS)
        if over.is_set():
            release()

    threading.Thread(target=hold, name="lock", daemon=True).start()
    try:
        yield
    finally:
        over.set()  # a thread that waits for the disk is not waited for
        release()
