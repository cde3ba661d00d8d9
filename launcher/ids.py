"""Identifiers of tasks, of runs, and of the processes of a run."""

from __future__ import annotations

import re
import secrets
import time
from dataclasses import dataclass

_RUN_NAME = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, order=True)
class TaskId:
    """One task of a job, `worker:0`, as TensorFlow writes it."""

    job: str
    index: int

    def __str__(self) -> str:
        return f"{self.job}:{self.index}"

    @property
    def stem(self) -> str:
        """The stem of the task's file names, without a colon: `worker-0`."""
        return f"{self.job}-{self.index}"

    @classmethod
    def parse(cls, text: str) -> TaskId:
        """Parses `worker:0`.

        Raises:
            ValueError: the text is not `job:index`.
        """
        job, colon, index = text.rpartition(":")
        if not colon or not job or not index.isdecimal():
            raise ValueError(f"{text!r} is not a task: write job:index, such as worker:0")
        return cls(job, int(index))


def new_run_id(name: str, now: float | None = None) -> str:
    """Makes a run's id: the cluster's name, the time to the second, and four random hex digits.

    Two launches of one file in the same second must not share a folder, hence the digits.
    """
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now))
    safe = _RUN_NAME.sub("-", name).strip("-.") or "run"
    return f"{safe}-{stamp}-{secrets.token_hex(2)}"


def tag(run_id: str, task: TaskId, attempt: int) -> str:
    """Makes the value of `TFMUX_TASK` in the environment of every process of a task.

    It ends in a semicolon so that it can be matched whole: `worker:1` must not match `worker:10`.
    """
    return f"{run_id}/{task}/{attempt};"
