"""Ends the processes and testbeds that a run of the tests has left behind, however the run ended.

A Ctrl-C, a TERM or a KILL of pytest may reach it in the middle of a test. So each run starts a
process in a session of its own, which waits for the end of pytest itself, by a pidfd, and then
looks for everything that carries the run's mark in its environment.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
import uuid

from tests.support.paths import REPOSITORY
from tests.testbed import namespaces, proc
from tests.testbed.proc import Process

MARK = "TFMUX_TEST_SUITE"
_SETTLE = 5.0
"""Seconds in which workers of pytest-xdist may end, and take down their testbeds, by themselves."""
_AGENTS = 20.0
"""Seconds in which an agent that has lost its launcher ends its tasks: it finds daemons with an
empty environment, too."""


def watch() -> subprocess.Popen[bytes]:
    """Mark this process's children, and start the process that waits for this one's end."""
    os.environ[MARK] = uuid.uuid4().hex
    return subprocess.Popen(
        [sys.executable, "-m", "tests.testbed.sweeper", str(os.getpid()), os.environ[MARK]],
        cwd=REPOSITORY,
        env={name: value for name, value in os.environ.items() if name != MARK},
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,  # whoever reads the run's output sees its end
        stderr=subprocess.DEVNULL,
    )


def sweep(suite: str) -> None:
    """End all processes with this mark, launchers and screens first, and testbeds without owner."""
    _wait(suite, _SETTLE)
    _end([each for each in _marked(suite) if each.tag is None])
    _wait(suite, _AGENTS)
    while found := _marked(suite):
        _end(found)
    if namespaces.missing() is None:
        namespaces.clear_stale()


def _marked(suite: str) -> list[Process]:
    return [each for each in proc.scan(having=f"{MARK}={suite}") if each.alive]


def _wait(suite: str, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while _marked(suite) and time.monotonic() < deadline:
        time.sleep(0.2)


def _end(processes: list[Process]) -> None:
    for process in processes:
        proc.signal_process(process, signal.SIGKILL)
    for process in processes:
        proc.wait_gone(process)


def main(pid: int, suite: str) -> None:
    """Wait for the end of the process `pid`, this one's parent."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:  # it has ended and was reaped
        pass
    else:
        if os.getppid() == pid:
            select.select([descriptor], [], [])
        os.close(descriptor)
    sweep(suite)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
