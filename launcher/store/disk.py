"""Files of a run on this machine that are being written, and a thread that does what may wait for
their disk, so that whoever asks for it never waits."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

MOST_OPEN = 200
"""Files that stay open: a process may have 1,024 by default, and a run has two for each task."""
Path = bytes | os.PathLike[str]
Job = Callable[[], None]


class Files:
    """Files that one thread writes; those written last stay open."""

    def __init__(self) -> None:
        self._open: dict[tuple[Path, bool], int] = {}

    def write(self, path: Path, data: bytes | memoryview, offset: int = -1) -> int:
        """Writes at an offset, or (-1) at the end; returns how many bytes were written.

        Raises:
            OSError: the disk is full or gone.
        """
        file = self._descriptor(path, append=offset < 0)
        return os.write(file, data) if offset < 0 else os.pwrite(file, data, offset)

    def sync(self, path: Path) -> None:
        """Has what was appended to a file outlive a power failure, where its disk does that."""
        with suppress(OSError):
            os.fsync(self._descriptor(path, append=True))

    def read_end(self, path: Path, most: int) -> bytes:
        """The last `most` bytes of a file.

        Raises:
            OSError: it is not there, or its disk does not give it.
        """
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(file, "rb") as opened:
            opened.seek(max(0, os.fstat(file).st_size - most))
            return opened.read(most)

    def replace(self, path: Path, data: bytes) -> None:
        """Puts a file in the place of another one: whatever happens meanwhile, one of them is
        there, whole.

        Raises:
            OSError: the disk is full or gone; the old file is there.
        """
        new = os.fsencode(path) + b".new"
        with suppress(FileNotFoundError):
            os.unlink(new)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            with open(os.open(new, flags, 0o600), "wb") as opened:
                opened.write(data)
                opened.flush()
                os.fsync(opened.fileno())
            os.replace(new, path)
        except OSError:
            with suppress(OSError):
                os.unlink(new)
            raise
        for append in (True, False):
            if (file := self._open.pop((path, append), -1)) >= 0:
                os.close(file)

    def close(self) -> None:
        while self._open:
            os.close(self._open.popitem()[1])

    def _descriptor(self, path: Path, *, append: bool) -> int:
        key = (path, append)
        file = self._open.pop(key, -1)
        if file < 0:
            if len(self._open) >= MOST_OPEN:
                os.close(self._open.pop(next(iter(self._open))))
            flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            file = os.open(path, flags | (os.O_APPEND if append else 0), 0o600)
        self._open[key] = file
        return file


class DiskThread:
    """Does jobs one after the other, in the order in which they were given.

    A daemon thread: one that sleeps in the kernel, on a disk that does not answer, must not hold
    up the end of the process.
    """

    def __init__(self, name: str, failed: Callable[[BaseException], None]) -> None:
        """`failed` gets what a job raises, on the worker's thread; the next job follows."""
        self._failed = failed
        self._jobs: deque[Job] = deque()
        self._news = threading.Condition()
        self._job: Job | None = None
        self._asked: float | None = None
        """Time at which the present job has asked the disk for something; None: it has answered."""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def put(self, job: Job) -> None:
        """Adds a job. Returns at once; after `stop` nothing is added."""
        with self._news:
            if not self._stopped.is_set():
                self._jobs.append(job)
                self._news.notify()
                if self._thread.ident is None:
                    self._thread.start()

    def drop(self, unwanted: Callable[[Job], bool]) -> None:
        """Takes jobs out that have not begun."""
        with self._news:
            self._jobs = deque(job for job in self._jobs if not unwanted(job))

    def jobs(self) -> list[Job]:
        """Jobs that are not done yet, the present one first."""
        with self._news:
            return [job for job in (self._job, *self._jobs) if job is not None]

    @contextmanager
    def asking(self) -> Iterator[None]:
        """For a job: the disk is asked for one read or write, again and again where it is full."""
        self._asked = time.monotonic()
        try:
            yield
        finally:
            self._asked = None

    @property
    def stalled(self) -> float:
        """Seconds for which the disk has not answered; 0 while nothing is asked of it."""
        asked = self._asked
        return 0.0 if asked is None else time.monotonic() - asked

    @property
    def idle(self) -> bool:
        """All jobs have been done."""
        with self._news:
            return self._job is None and not self._jobs

    def pause(self, seconds: float) -> bool:
        """For a job that tries again: waits, and says whether it still should."""
        return not self._stopped.wait(seconds)

    def stop(self) -> None:
        """Ends the thread after the jobs that it has; one that only waits to try again gives
        up."""
        with self._news:
            self._stopped.set()
            self._news.notify()

    def _run(self) -> None:
        while True:
            with self._news:
                self._job = None
                while not self._jobs:
                    if self._stopped.is_set():
                        return
                    self._news.wait()
                job = self._job = self._jobs.popleft()
            try:
                job()
            except BaseException as error:
                self._failed(error)
