"""A double for the launcher: starts trainer tasks, reads their logs, ends them."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from tests.support import launches
from tests.support.budgets import budget
from tests.support.forked import ForkServer, Process
from tests.support.paths import REPOSITORY
from tests.support.ports import free_ports

DEADLINE = 600.0
"""Seconds; nothing is asserted by it. A training beside other work takes minutes."""
PROGRESS = re.compile(
    r"^After (?P<local>\d+) training steps \((?P<step>\d+) global steps\), "
    r"loss on training batch is (?P<loss>\d+\.\d{4})"
    r"(\.  \(\d+\.\d{3} sec/batch\).*|; [\d.]+ ms(, .*)?)$",
    re.MULTILINE,
)
NICENESS = 5
"""Trainings take the time that tests beside them, of which some measure times, leave."""
STEPS, ACCURATE = budget((200, 0.9), (500, 0.95))
"""Steps of 100 examples of a training that learns digits, and the accuracy that it reaches."""
ACCURACY = re.compile(r"^Done: .*test accuracy (\d\.\d+)", re.MULTILINE)
OWN_DISKS = sys.platform == "linux" and os.geteuid() == 0
"""Only root may mount a disk for a process."""
STARTED = re.compile(r"starts at global step (\d+)")


@functools.cache
def server() -> ForkServer:
    """The server of this process, which has done nothing with TensorFlow when it forks."""
    return ForkServer(
        "tensorflow",
        OPENBLAS_NUM_THREADS="1",  # NumPy would start one for each processor
        PYTHONUNBUFFERED="1",
        TF_CPP_MIN_LOG_LEVEL="1",
    )


class Task:
    """One running trainer process and what it has printed."""

    def __init__(self, process: subprocess.Popen[bytes] | Process, log: pathlib.Path) -> None:
        self.process = process
        self._log = log

    @property
    def text(self) -> str:
        """Everything printed so far, stdout and stderr."""
        return self._log.read_text(errors="replace")

    def until(self, condition: Callable[[str], object], seconds: float = DEADLINE) -> str:
        """Waits until `condition` holds for the task's output; returns that output."""
        deadline = time.monotonic() + seconds
        while not condition(text := self.text):
            status = self.process.poll()
            assert status is None or condition(self.text), f"ended with {status}:\n{self.text}"
            assert time.monotonic() < deadline, f"not within {seconds} s:\n{self.text}"
            time.sleep(0.05)
        return text

    def says(self, pattern: str, seconds: float = DEADLINE, after: int = 0) -> str:
        """Waits until a line of the output, from character `after` on, matches `pattern`."""
        return self.until(lambda text: re.search(pattern, text[after:], re.MULTILINE), seconds)

    def wait(self, seconds: float = DEADLINE) -> int:
        """The exit status, when the task has ended."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {seconds} s:\n{self.text}") from None

    def signal(self, number: signal.Signals) -> None:
        """Sends `number` to the process."""
        self.process.send_signal(number)

    @property
    def steps(self) -> list[int]:
        """The global steps of all progress lines so far."""
        return [int(match["step"]) for match in PROGRESS.finditer(self.text)]

    @property
    def complaint(self) -> str:
        """The last words of the trainer's own, which say why it ended. TensorFlow's threads may
        write behind them until the process has gone, and leave half a line before them."""
        said: list[str] = re.findall("trainer: .*", self.text)
        assert said, self.text
        return said[-1]

    @property
    def accuracy(self) -> float:
        """The test accuracy of the last line."""
        match = ACCURACY.search(self.text)
        assert match, self.text
        return float(match[1])


class Tasks:
    """Starts trainer tasks with logs in `directory`."""

    def __init__(self, directory: pathlib.Path) -> None:
        self._directory = directory
        self._started: list[Task] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for task in self._started:
            with contextlib.suppress(ProcessLookupError):
                task.process.kill()
            task.process.wait()

    def run(
        self,
        *arguments: object,
        env: Mapping[str, str] | None = None,
        module: str = "trainer",
        hidden: str = "",
    ) -> Task:
        """Starts `python -m trainer` with `arguments`, by way of the `module`, which runs the
        trainer; without the files of the folder `hidden`.

        A process of its own where there are variables that TensorFlow reads while it is imported;
        else it is forked from one that has imported TensorFlow.
        """
        log = self._directory / f"task-{len(self._started)}.log"
        words = [*map(str, arguments)]
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("TF")},
            "PYTHONUNBUFFERED": "1",
            "TF_CPP_MIN_LOG_LEVEL": "1",
            **(env or {}),
        }
        argv = [sys.executable, "-m", module, *words]
        how: dict[str, Any] = {"env": environment, "cwd": REPOSITORY}
        process: subprocess.Popen[bytes] | Process
        with log.open("wb") as output:
            reads = any(name.startswith("TF_") and name != "TF_CONFIG" for name in env or {})
            if reads:
                launches.note(module)
                process = subprocess.Popen(
                    argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, **how
                )
            else:
                number = output.fileno()
                process = server().start(
                    argv, stdout=number, stderr=number, niceness=NICENESS, hidden=hidden, **how
                )
        task = Task(process, log)
        self._started.append(task)
        return task


class Cluster:
    """A cluster spec on free loopback ports whose tasks are started one by one."""

    def __init__(
        self, tasks: Tasks, mode: str, *flags: object, run_id: str = "test-run", **jobs: int
    ) -> None:
        self._tasks = tasks
        self._mode = mode.split()
        self._flags = flags
        self._run_id = run_id
        ports = iter(free_ports(sum(jobs.values())))
        self.spec = {
            job: [f"localhost:{next(ports)}" for _ in range(count)] for job, count in jobs.items()
        }

    def start(
        self,
        job: str,
        index: int = 0,
        *flags: object,
        env: Mapping[str, str] | None = None,
        module: str = "trainer",
    ) -> Task:
        """Starts one task, with the classic flags. A ps has another disk than the chief, which
        saves on its own."""
        hosts = [f"--{name}_hosts={','.join(tasks)}" for name, tasks in self.spec.items()]
        role = [f"--job_name={job}", f"--task_index={index}", *hosts]
        environment = {"TFMUX_RUN_ID": self._run_id, **(env or {})}
        words = [*map(str, (*self._flags, *flags))]
        hidden = _log_directory(words) if job == "ps" and OWN_DISKS else ""
        return self._tasks.run(
            *self._mode, *role, *words, env=environment, module=module, hidden=hidden
        )

    def start_by_tf_config(
        self, job: str, index: int = 0, *flags: object, env: Mapping[str, str] | None = None
    ) -> Task:
        """Starts one task, its role in TF_CONFIG."""
        config = json.dumps({"cluster": self.spec, "task": {"type": job, "index": index}})
        environment = {"TFMUX_RUN_ID": self._run_id, "TF_CONFIG": config, **(env or {})}
        return self._tasks.run(*self._mode, *self._flags, *flags, env=environment)


def _log_directory(words: Sequence[str]) -> str:
    """The folder in which checkpoints are saved, which is made; empty where none are."""
    found = [word.partition("=")[2] for word in words if word.startswith("--logdir=")]
    if not found:
        return ""
    os.makedirs(found[-1], exist_ok=True)
    return found[-1]


def listens(address: str) -> bool:
    """Whether somebody accepts connections at `address`."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError:
        return False
    return True
