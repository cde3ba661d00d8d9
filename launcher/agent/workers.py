"""Threads that do what may hang (a disk, a name server), so that the agent's loop never does."""

from __future__ import annotations

import os
import queue
import threading
from collections import deque
from contextlib import suppress
from typing import Callable

from .log import log_line
from .threads import start_thread

Later = Callable[[Callable[[], None]], None]
"""Runs something in the agent's loop; called by threads."""


class Wakeups:
    """Pipe that wakes the agent's loop, and what threads have it do."""

    def __init__(self) -> None:
        self.read_fd, self.write_fd = os.pipe()
        for fd in (self.read_fd, self.write_fd):
            os.set_blocking(fd, False)
        self._later: deque[Callable[[], None]] = deque()

    def wake(self) -> None:
        """Wakes the control loop from its wait; callable from any thread."""
        with suppress(BlockingIOError):  # the loop is awake already
            os.write(self.write_fd, b"\0")

    def do_later(self, work: Callable[[], None]) -> None:
        """Has the loop do it; called by threads."""
        self._later.append(work)
        self.wake()

    def drain(self) -> bytes:
        """Empties the pipe; returns the numbers of the signals that have come, and zeros."""
        data = b""
        with suppress(BlockingIOError):  # it is empty
            while more := os.read(self.read_fd, 4096):
                data += more
        return data

    def pop_results(self) -> list[Callable[[], None]]:
        """Takes the work that threads have left for the loop."""
        return [self._later.popleft() for _ in range(len(self._later))]


class WorkerThread:
    """Does one piece of work after the other, in the order in which they were given. Its thread is
    there from the beginning: tasks may use up what a user may have of them."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._work: queue.SimpleQueue[tuple[Callable[[], None], threading.Event]]
        self._work = queue.SimpleQueue()
        start_thread(self._run, name)

    def do(self, work: Callable[[], None]) -> threading.Event:
        """Does it when all that was given before is done; returns what is set when it is done
        itself."""
        done = threading.Event()
        self._work.put((work, done))
        return done

    def _run(self) -> None:
        while True:
            work, done = self._work.get()
            try:
                work()
            except Exception as error:  # its thread must go on
                log_line(f"{self._name}: {type(error).__name__}: {error}")
            done.set()
