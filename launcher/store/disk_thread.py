"""A thread that does what may wait for a disk, so that whoever asks for it never waits."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

Job = Callable[[], None]


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
        self._since = 0.0
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
        """Those that are not done yet, the present one first."""
        with self._news:
            return [job for job in (self._job, *self._jobs) if job is not None]

    def answered(self) -> None:
        """For a job of many reads or writes: the disk has done one more of them."""
        self._since = time.monotonic()

    @property
    def stalled(self) -> float:
        """Seconds since the present job began, or the disk last answered it; 0 between jobs."""
        with self._news:
            return time.monotonic() - self._since if self._job is not None else 0.0

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
                self._since = time.monotonic()
            try:
                job()
            except BaseException as error:
                self._failed(error)
