"""Programs on two hosts of the testbed, forked on each from one process that has imported
TensorFlow there."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self

from tests.support import forked
from tests.support.paths import REPOSITORY
from tests.support.trainer_tasks import NICENESS, Task
from tests.testbed import disk
from tests.testbed.host import Host

FOLDER = "/job"
"""Directory of the programs on the host's disk, with the trainer in it."""
_ENV = {
    "HOME": disk.ROOT.home,
    "PATH": "/usr/bin:/bin",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONUNBUFFERED": "1",
    "TF_CPP_MIN_LOG_LEVEL": "1",
}


class HostForks:
    """Server of forked processes in the network and on the disk of a host.

    Their process ids, and /proc, are this machine's: they can be ended from here.
    """

    def __init__(self, host: Host, *programs: Path) -> None:
        self.host = host
        folder = disk.inside(host.disk, FOLDER)
        folder.mkdir()
        shutil.copytree(REPOSITORY / "trainer", folder / "trainer")
        for program in (Path(forked.__file__), *programs):
            shutil.copy(program, folder)
        enter = ["nsenter", f"--target={host.pid}", "--mount", "--net", "--uts", "--wdns=/"]
        enter += ["unshare", "--mount", "sh", "-c", 'mount -t proc proc /proc && exec "$@"', "sh"]
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [*enter, host.python, f"{FOLDER}/forked.py"]
        with theirs:
            self._server = forked.start_server(command, theirs, ["tensorflow"], _ENV)
        self._forks = forked.Forks(ours)

    def start(self, log: Path, *words: str) -> Task:
        """Start `python -m trainer` with these words on the host; its output goes to `log`."""
        with log.open("wb") as output:
            process = self._forks.start(
                [self.host.python, "-m", "trainer", *words],
                env={**_ENV, "TFMUX_RUN_ID": "test-run"},
                cwd=Path(FOLDER),
                stdout=output.fileno(),
                stderr=output.fileno(),
                niceness=NICENESS,
            )
        return Task(process, log)

    def files(self, place: str) -> set[str]:
        """Return the names of the files in a directory on the host's disk."""
        folder = disk.inside(self.host.disk, place)
        return set(os.listdir(folder)) if folder.is_dir() else set()

    def close(self) -> None:
        """End the server."""
        self._forks.close()
        self._server.wait()


class TwoHosts:
    """The first host has each ps, the second one the workers."""

    def __init__(self, first: Host, second: Host, logs: Path, *programs: Path) -> None:
        self._logs = logs
        self._tasks: list[Task] = []
        self._stack = ExitStack()
        self.ps = HostForks(first, *programs)
        self._stack.callback(self.ps.close)
        self.workers = HostForks(second, *programs)
        self._stack.callback(self.workers.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._stack:
            self.end()

    def start(self, where: HostForks, *words: str) -> Task:
        """Start a task on one of them."""
        task = where.start(self._logs / f"task-{len(self._tasks)}.log", *words)
        self._tasks.append(task)
        return task

    def end(self, tasks: Sequence[Task] | None = None) -> None:
        """End these tasks, or all."""
        for task in self._tasks if tasks is None else tasks:
            with suppress(ProcessLookupError):
                task.process.kill()
            task.process.wait()
