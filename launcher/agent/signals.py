"""Signals that are for tasks alone: no process of ours ends by them.

Slurm sends a signal to the first process of a job step, which the agent's watchdog is there; some
of its plugins send it to each process of the step. Blocked signals end nobody: they stay pending
until somebody asks for them. A fault of our own (SIGSEGV) ends a process in spite of that.
"""

from __future__ import annotations

import os
import signal
from typing import Iterable

PASSED_ON = frozenset(signal.valid_signals()) - {
    *(signal.SIGKILL, signal.SIGSTOP),  # nobody can handle them
    *(signal.SIGTERM, signal.SIGCHLD),
}
ASK_TO_END = PASSED_ON - {
    *(signal.SIGCONT, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU),
    *(signal.SIGURG, signal.SIGWINCH),
}
"""Catchable signals that end a program which does not handle them."""

_mask_of_login: set[int] = set()


def block_signals(*more: int) -> None:
    """Blocks what is passed on, and `more`, in this process and all that it forks."""
    global _mask_of_login
    _mask_of_login = set(signal.pthread_sigmask(signal.SIG_BLOCK, {*PASSED_ON, *more}))


def restore_signals(needed: Iterable[int]) -> None:
    """Restores the login's mask, without what is `needed`, in a process that becomes a task."""
    signal.pthread_sigmask(signal.SIG_SETMASK, _mask_of_login - set(needed))


def has_come(number: int) -> bool:
    """Takes a blocked signal that another process has sent to this one; False if there is none."""
    while (found := signal.sigtimedwait((number,), 0)) is not None:
        if found.si_pid != os.getpid():  # by writing to a pipe that nobody reads
            return True
    return False


def next_signal() -> int:
    """Waits for a signal that another process sends to this one."""
    while (found := signal.sigwaitinfo(PASSED_ON)).si_pid == os.getpid():
        continue
    return found.si_signo
