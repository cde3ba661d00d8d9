"""Whether a process has taken a signal and lives on, as `/proc` shows it: what its task starts from
then on belongs to the clean-up, and a stop signal spares that."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from launcher.agent import processes
from tests.support.patience import wait_until

ENDS = """\
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [15])
memory = b"x" * (256 << 20)
print("up", flush=True)
input()
signal.pthread_sigmask(signal.SIG_UNBLOCK, [15])
"""
LIVES = """\
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [15])
print("up", flush=True)
signal.sigwait([15])
input()
"""


@contextmanager
def python(script: str) -> Iterator[subprocess.Popen[bytes]]:
    """A program that has said that it is up, and goes on when it gets a line."""
    argv = [sys.executable, "-c", script]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        yield process
        process.kill()


def test_a_process_that_the_signal_ends_never_seems_to_live_on() -> None:
    """Given a process with much memory that takes a signal which was pending, when that ends it,
    then no look while its memory is freed takes it for one that lives on."""
    with python(ENDS) as process:
        process.send_signal(signal.SIGTERM)
        assert not processes.took(process.pid, signal.SIGTERM)
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
        seen = []
        while (found := processes.read_process(process.pid)) is not None and not found.dead:
            seen.append(processes.took(process.pid, signal.SIGTERM))
        assert seen and not any(seen)
        assert process.wait() == -signal.SIGTERM


def test_a_process_that_waits_for_its_signal_lives_on() -> None:
    """Given a process without a handler that waits for the signal, when it has it, then it is seen
    to live on."""
    with python(LIVES) as process:
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: processes.took(process.pid, signal.SIGTERM), "it has taken its signal")
