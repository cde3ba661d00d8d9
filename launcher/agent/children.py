"""The children of this process: whether it has any, and killing all of them.

A process that forks and exits without end is never there when a look at `/proc` has found it.
But its father is known: as a child-subreaper we become the parent of each next one at the moment
at which its parent ends. A child that has not been reaped keeps its pid, so it may be signalled
without a second look; and by ECHILD of `waitpid` the kernel confirms that none is left.

All calls are about the calling thread's children only: orphans fall to the main thread, while
programs that other threads run (`nvidia-smi`) stay those threads' own.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from typing import Iterable

from .proc import read_process

_WNOTHREAD = 0x20000000
_AHEAD = 32
_WINDOW = 2048
_SCAN_SECONDS = 0.02
_SCAN_SECONDS_MOST = 0.3


def reap() -> tuple[list[tuple[int, int]], bool]:
    """Reaps the children that have ended: pids with wait statuses, and whether the kernel says
    that no child at all is left."""
    ended: list[tuple[int, int]] = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG | _WNOTHREAD)
        except ChildProcessError:
            return ended, True
        if pid == 0:
            return ended, False
        ended.append((pid, status))


def is_child(pid: int) -> bool:
    """It is a child of ours that nobody has reaped. One system call, no look at `/proc`."""
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT | _WNOTHREAD)
    except ChildProcessError:
        return False
    return True


class Killer:
    """Kills the children of the calling thread, those included that are yet to become ours.

    Call `step` whenever a child has ended and every few milliseconds, until `reap` says that
    none is left.
    """

    def __init__(self) -> None:
        self._pause = _SCAN_SECONDS
        self._next_scan = 0.0

    def step(self, reaped: Iterable[tuple[int, int]] = ()) -> None:
        """One round. The next of a chain of forks has a pid soon after that of the one that has
        just been reaped, so those are tried at once; now and then the whole table is read."""
        ended = [pid for pid, _ in reaped]
        if ended:
            first = min(ended) + 1
            last = max(max(ended) + _AHEAD, _newest_pid())
            self._kill(range(first, min(last, first + _WINDOW) + 1))
            self._pause = _SCAN_SECONDS
        now = time.monotonic()
        if now >= self._next_scan:
            with suppress(OSError):  # no descriptor is left on the whole machine
                self._kill(_children())
            self._next_scan = time.monotonic() + self._pause
            self._pause = min(self._pause * 1.5, _SCAN_SECONDS_MOST)  # they cannot be killed

    @staticmethod
    def _kill(pids: Iterable[int]) -> None:
        for pid in pids:
            if is_child(pid):
                with suppress(PermissionError):  # it has become another user's
                    os.kill(pid, signal.SIGKILL)


def _newest_pid() -> int:
    """The pid that was given last, as far as this is known."""
    try:
        with open("/proc/loadavg", "rb") as file:
            return int(file.read().split()[-1])
    except (OSError, ValueError):
        return 0  # a container that shows figures of its own


def _children() -> list[int]:
    """Pids that are, or were a moment ago, our children."""
    me = os.getpid()
    try:
        with open(f"/proc/{me}/task/{me}/children", "rb") as file:
            return [int(word) for word in file.read().split()]
    except OSError:  # a kernel without CONFIG_PROC_CHILDREN
        pids = (int(name) for name in os.listdir("/proc") if name.isdigit())
        found = (read_process(pid) for pid in pids)
        return [process.pid for process in found if process is not None and process.ppid == me]
