"""Signals before the end of a job, such as by `--signal=B:USR1@120`: they come to `tfmux up` alone
where it has taken the place of a batch script's shell, and are for the tasks.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable

from launcher.client.run_client import RunClient

_NUMBERS = (signal.SIGUSR1, signal.SIGUSR2)
_SECONDS = 60.0


def pass_on_signals(client: Callable[[], RunClient | None]) -> None:
    """From now on this process does not end by USR1 and USR2. Where the run's nodes are those of
    the job in which this process is, they go to the job's steps, whose agents hand them to the
    tasks; elsewhere nothing happens."""

    def handle(number: int, frame: object) -> None:
        # Not in here: what this interrupts may hold the locks of a pipe or a process.
        threading.Thread(target=_pass_on, args=(number, client()), daemon=True).start()

    for number in _NUMBERS:
        signal.signal(number, handle)


def _pass_on(number: int, client: RunClient | None) -> None:
    allocation = client.snapshot().allocation if client is not None else None
    if allocation is None:
        return
    from launcher.slurm.salloc import element_of, job_of  # few need its 20 ms

    job = job_of(os.environ)
    if not job or allocation.job != job:
        return
    quiet = subprocess.DEVNULL
    words = ["scancel", f"--signal={number}", element_of(os.environ)]
    try:
        subprocess.run(words, stdin=quiet, stdout=quiet, stderr=quiet, timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return  # nobody else could be told, either
