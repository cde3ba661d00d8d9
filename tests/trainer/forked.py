"""Trainer processes forked from a server that has imported TensorFlow, which takes seconds.

The server has done nothing with TensorFlow and has no other thread when it forks. What a process
reads while it imports TensorFlow (`TF_CPP_MIN_LOG_LEVEL`) is therefore the server's.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from unittest import mock

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tensorflow"])


NICENESS = 5
"""Trainings take the time that tests beside them, of which some measure times, leave."""


class Forked:
    """`python -m trainer`, started by the server; has the methods of `subprocess.Popen`."""

    def __init__(
        self, arguments: Sequence[str], env: Mapping[str, str], cwd: Path, output: Path
    ) -> None:
        self._process = _context.Process(target=_run, args=(arguments, env, cwd, output))
        # The server starts with the first process; with a task's variables it would pass for one.
        server = {name: value for name, value in env.items() if not name.startswith("TFMUX")}
        server["OPENBLAS_NUM_THREADS"] = "1"  # NumPy would start one for each processor
        with mock.patch.dict(os.environ, server, clear=True):
            self._process.start()

    def poll(self) -> int | None:
        """Return the exit status, negative for a signal; None while it runs."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit status, when the process has ended."""
        self._process.join(timeout)
        status = self.poll()
        if status is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired("trainer", timeout)
        return status

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            assert self._process.pid is not None
            os.kill(self._process.pid, number)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


def _run(arguments: Sequence[str], env: Mapping[str, str], cwd: Path, output: Path) -> None:
    """Become `python -m trainer`: its files, environment, directory and arguments."""
    for path, flags, descriptor in ((os.devnull, os.O_RDONLY, 0), (output, os.O_WRONLY, 1)):
        opened = os.open(path, flags)
        os.dup2(opened, descriptor)
        os.close(opened)
    os.dup2(1, 2)
    os.nice(NICENESS)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    tempfile.tempdir = None  # TMPDIR may be another
    sys.argv = ["trainer", *arguments]
    runpy.run_module("trainer", run_name="__main__", alter_sys=True)
