"""Lock of a run's launcher process: `launcher.lock` in the run's folder, held while it lives.

Whoever starts a launcher process takes the lock and hands the descriptor over, so there is no
moment without one; it goes with the process, and nothing stale is left after a crash.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .disk import Disk

_NAME = "launcher.lock"
_RETRY_SECONDS = 0.2
_PID_WIDTH = 10


def acquire(folder: Path) -> int | None:
    """Takes the lock of a run; returns its descriptor, or None where a launcher holds it.

    Raises:
        OSError: the file cannot be opened.
    """
    path = folder / _NAME
    create = 0 if path.exists() else os.O_CREAT  # a disk that does not answer may still be read
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | create, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def launcher_pid(folder: Path) -> int | None:
    """The pid of the process that holds the lock (0 where it has not written it), or None."""
    try:
        with (folder / _NAME).open("r+") as file:
            try:  # a shared lock: of two that looked at once, each took the other for a launcher
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return int(file.read(20) or 0)
    except (OSError, ValueError):
        return None
    return None


def is_abandoned(folder: Path) -> bool:
    """A launcher process has held the lock, and none does."""
    return (folder / _NAME).exists() and launcher_pid(folder) is None


@contextmanager
def held(folder: Path, fd: int | None, disk: Disk) -> Iterator[None]:
    """Holds the lock in the launcher process; `fd` holds it already.

    A launcher that takes over from one which stands still begins without the lock, and takes it
    when that one has ended.
    """
    over = threading.Event()
    descriptors = [] if fd is None else [fd]

    def release() -> None:
        with suppress(IndexError):
            os.close(descriptors.pop())

    def hold() -> None:
        while not over.is_set():
            with suppress(OSError):
                if not descriptors and (taken := acquire(folder)) is not None:
                    descriptors.append(taken)
                if descriptors:
                    disk.write(folder / _NAME, f"{os.getpid():<{_PID_WIDTH}}".encode(), 0)
                    break
            over.wait(_RETRY_SECONDS)
        if over.is_set():
            release()

    threading.Thread(target=hold, name="lock", daemon=True).start()
    try:
        yield
    finally:
        over.set()  # a thread that waits for the disk is not waited for
        release()
