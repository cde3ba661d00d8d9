"""Threads that do what may hang (a disk, a name server), so that the agent's loop never does; and
the lines of the agent and its watchdog in `agent.log`, which lies on such a disk.
"""

from __future__ import annotations

import errno
import os
import queue
import threading
import time
from collections import deque
from contextlib import suppress
from typing import Callable

Later = Callable[[Callable[[], None]], None]
"""Runs something in the agent's loop; called by threads."""
_MOST_WAITING = 1000


def start_thread(work: Callable[[], None], name: str) -> threading.Thread:
    """Starts a thread that does not keep the agent from ending.

    Raises:
        OSError: the limit of processes and threads is reached (`ulimit -u`, or `pids.max` of a
            container).
    """
    thread = threading.Thread(target=work, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        text = "no more processes and threads may be started here (ulimit -u, pids.max)"
        raise OSError(errno.EAGAIN, text) from error
    return thread


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

    @property
    def work_waits(self) -> bool:
        """Threads have left work that has not been done."""
        return bool(self._later)

    def work(self, seconds: float) -> None:
        """Does what threads have left for the loop, until so much time has passed: the forks of
        hundreds of tasks take longer than anybody waits for a beat."""
        until = time.monotonic() + seconds
        while self._later:
            self._later.popleft()()
            if time.monotonic() >= until:
                return


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


_writer: WorkerThread | None = None
_waiting: deque[str] = deque()


def write_lines_by(thread: WorkerThread) -> None:
    """From now on lines are written by a thread: `agent.log` may lie on a disk that hangs."""
    global _writer
    _writer = thread


def log_line(text: str) -> None:
    """Writes a line; on a full disk it is lost, and whoever said it goes on."""
    if _writer is None:
        _print(text)
    elif len(_waiting) < _MOST_WAITING:  # else the disk has been hanging for long
        _waiting.append(text)
        _writer.do(lambda: _print(_waiting.popleft()))


def log_traceback() -> None:
    """Writes the exception that is being handled, and waits a little until it is written."""
    import traceback  # here and not above: most agents never need it

    log_line(traceback.format_exc())
    if _writer is not None:
        _writer.do(lambda: None).wait(1.0)


def error_text(error: Exception) -> str:
    """An error in a few words."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__


def _print(text: str) -> None:
    with suppress(OSError):  # agent.log lies on the disk that is full
        print(text, flush=True)
