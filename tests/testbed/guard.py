"""Finds processes of runs that a test left behind, without ever taking somebody else's for them.

A process belongs to these tests when it carries the session's mark, which everything started on
this machine inherits, or when it lives in a host of the test's own testbed. Another test run, or a
person's own `tfmux`, is not looked at.
"""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections.abc import Callable, Iterable

from tests.support.patience import PATIENCE, pauses
from tests.testbed import proc
from tests.testbed.proc import Process

MARK = "TFMUX_TEST_SESSION"
SETTLE = PATIENCE
"""Seconds until a process counts as left behind: an agent that has confirmed its kill, or a
screen whose terminal was closed, still has to end itself."""
PROGRAMS = {"tui.main", "launcher.process.entry"}


def mark_session() -> None:
    """Mark this process, and with it all that it will start, as this test session's."""
    os.environ[MARK] = uuid.uuid4().hex


def tagged_here() -> list[Process]:
    """Return this session's living processes on this machine that carry a run's tag."""
    return [each for each in all_here() if each.tag is not None]


def tasks_here() -> list[Process]:
    """Return this session's living processes of tasks on this machine; an agent may need a moment
    to end after its last task."""
    return [each for each in tagged_here() if "/" in (each.tag or "")]


def first_pids() -> dict[str, int]:
    """Return the lowest process id of each task that has processes on this machine."""
    found: dict[str, int] = {}
    for process in tasks_here():
        task = (process.tag or "").split("/")[1]
        found[task] = min(process.pid, found.get(task, process.pid))
    return found


def programs_here() -> list[Process]:
    """Return this session's living `tfmux` processes on this machine: screens and launchers."""
    return [each for each in all_here() if each.tag is None]


def screens_here() -> list[Process]:
    """Return this session's living `tfmux` commands on this machine."""
    return [each for each in programs_here() if "tui.main" in each.argv]


def all_here() -> list[Process]:
    """Return both."""
    return [each for each in proc.scan(having=f"{MARK}={os.environ[MARK]}") if _of_a_run(each)]


def leaks(look: Callable[[], Iterable[Process]], since: float = 0.0) -> list[Process]:
    """Return the processes that `look` still finds after a moment's grace, and kill them.

    Args:
        look: returns the processes to judge; called until it finds nothing new.
        since: what `proc.next_tick()` returned when the test began; earlier ones are passed over.
    """
    found: list[Process] = []
    for seconds in pauses(0.05, SETTLE):
        found = [each for each in look() if _of_a_run(each) and each.started >= since]
        if not found:
            break
        time.sleep(seconds)
    for each in found:
        proc.signal_process(each, signal.SIGKILL)
    return found


def describe(processes: Iterable[Process]) -> str:
    """Return one line a process, for the message of a failed test."""
    return "\n".join(
        f"  pid {each.pid} {each.state} {each.tag} {' '.join(each.argv)[:120]}"
        for each in processes
    )


def _of_a_run(process: Process) -> bool:
    return process.alive and (process.tag is not None or not PROGRAMS.isdisjoint(process.argv))
