"""A thread that does what may wait for a disk, so that whoever asks for it never waits."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

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
        """Those that are not done yet, the present one first."""
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
