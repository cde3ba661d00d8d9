"""A debugger that holds a process: no CONT makes it go on."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.testbed import proc

PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_DETACH, WALL = 0x4206, 0x4207, 17, 0x40000000


@contextmanager
def held_by_a_debugger(process: proc.Process) -> Iterator[None]:
    """Stops a process that lives below this one; CONT does not make it go on meanwhile."""
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    assert ptrace(PTRACE_SEIZE, process.pid, None, None) == 0, os.strerror(ctypes.get_errno())
    assert ptrace(PTRACE_INTERRUPT, process.pid, None, None) == 0
    os.waitpid(process.pid, WALL)
    try:
        yield
    finally:
        if ptrace(PTRACE_DETACH, process.pid, None, None) != 0:
            with suppress(ChildProcessError):  # somebody waits for it already
                os.waitpid(process.pid, WALL)  # it was killed
