"""Lock of a run's launcher process: `launcher.lock` in the run's folder, held while it lives.

Whoever starts a launcher process takes the lock and hands the descriptor over, so there is no
moment without one; it goes with the process, and nothing stale is left after a crash.
"""

from __future__ import annotations

import fcntl
import os
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from .disk import Disk, OwnDisk

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
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return int(file.read(20) or 0)
    except (OSError, ValueError):
        return None
    return None


class LauncherLock:
    """The lock in the launcher process; entered for its life.

    A launcher that takes over from one which stands still begins without the lock, and takes it
    when that one has ended.
    """

    def __init__(self, folder: Path, fd: int | None = None, disk: Disk | None = None) -> None:
        """`fd` holds the lock already."""
        self._folder = folder
        self._fd = fd
        self._disk = disk or OwnDisk()
        self._over = threading.Event()

    def __enter__(self) -> Self:
        threading.Thread(target=self._take, name="lock", daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()  # a thread that waits for the disk is not waited for
        self._release()

    def _take(self) -> None:
        while not self._over.is_set():
            with suppress(OSError):
                if self._fd is None:
                    self._fd = acquire(self._folder)
                if self._fd is not None:
                    pid = f"{os.getpid():<{_PID_WIDTH}}".encode()
                    self._disk.write(self._folder / _NAME, pid, 0)
                    break
            self._over.wait(_RETRY_SECONDS)
        if self._over.is_set():
            self._release()

    def _release(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)
