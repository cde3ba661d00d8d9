"""Threads that do what may hang (a disk, a name server), so that the agent's loop never does; and
the lines of the agent and its watchdog in `agent.log`, which lies on such a disk.
"""

from __future__ import annotations

import errno
import os
import queue
import resource
import threading
import time
from collections import deque
from contextlib import suppress
from typing import Callable

Later = Callable[[Callable[[], None]], None]
"""Runs something in the agent's loop; called by threads."""
_MOST_WAITING = 1000
_FULL = 1 << 20
"""Bytes on a disk below which it is full, or a fiftieth of a small one."""


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
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from error
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
    """An error in a few words, and what the kernel says of the limit that was reached."""
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
        limit = _limit(error)
        return f"{text}: {limit}" if limit else text
    return str(error) or type(error).__name__


def _limit(error: OSError) -> str:
    if error.errno == errno.EAGAIN and not error.filename:
        most, _ = resource.getrlimit(resource.RLIMIT_NPROC)
        said = "" if most == resource.RLIM_INFINITY else f" is {most} here"
        return (
            "no more processes and threads may be started by this account: ulimit -u"
            f"{said}, and pids.max of its container or systemd slice counts, too"
        )
    if error.errno == errno.EMFILE:
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return f"ulimit -n is {most} here"
    if error.errno in (errno.ENOSPC, errno.EDQUOT) and isinstance(error.filename, str):
        return full_disk(error.filename) or "a quota, or what is kept for root"
    return ""


def full_disk(path: str) -> str:
    """How the disk with a path, or the place where it would be, is full; empty if it is not. May
    hang with the disk."""
    while True:
        try:
            info = os.statvfs(path or "/")
            break
        except FileNotFoundError:
            path = os.path.dirname(path)
        except OSError:
            return ""
    if info.f_files and not info.f_favail:
        return f"all {info.f_files} inodes of that disk are used (df -i)"
    if info.f_flag & os.ST_RDONLY:
        return ""  # an image of a package or a container has no room by its nature
    if info.f_blocks and info.f_bavail < min(_FULL / info.f_frsize, info.f_blocks / 50):
        free, size = (n * info.f_frsize / 2**20 for n in (info.f_bavail, info.f_blocks))
        return f"{free:.1f} of {size:.0f} MiB are free on that disk"
    return ""


def _print(text: str) -> None:
    with suppress(OSError):  # agent.log lies on the disk that is full
        print(text, flush=True)
