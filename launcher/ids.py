"""Names of things: a task of the cluster, a run, a process of a run."""

from __future__ import annotations

import re
import secrets
import time
from dataclasses import dataclass
from typing import Any

from pydantic_core import CoreSchema, core_schema

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
        """The name of the task's files (`worker-0`): a colon is no good in a file name."""
        return f"{self.job}-{self.index}"

    @classmethod
    def parse(cls, text: str) -> TaskId:
        """Reads `worker:0`.

        Raises:
            ValueError: the text is no `job:index`.
        """
        job, colon, index = text.rpartition(":")
        if not colon or not job or not index.isdecimal():
            raise ValueError(f"{text!r} is not a task: write job:index, such as worker:0")
        return cls(job, int(index))

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> CoreSchema:
        """Stored and sent as text, also where it is the key of a table."""
        return core_schema.no_info_plain_validator_function(
            _task_id, serialization=core_schema.to_string_ser_schema()
        )


def _task_id(value: object) -> TaskId:
    if isinstance(value, TaskId):
        return value
    if isinstance(value, str):
        return TaskId.parse(value)
    raise ValueError("not a task: text such as worker:0 is needed")


def new_run_id(name: str, now: float | None = None) -> str:
    """A run's id: the cluster's name, the time to the second, and four random hex digits.

    Two launches of one file in the same second must not share a folder, hence the digits.
    """
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now))
    safe = _RUN_NAME.sub("-", name).strip("-.") or "run"
    return f"{safe}-{stamp}-{secrets.token_hex(2)}"


def tag(run_id: str, task: TaskId, attempt: int) -> str:
    """The value of `TFMUX_TASK` that every process of a task carries.

    It ends in a semicolon so that it can be matched whole: `worker:1` must never hit `worker:10`.
    """
    return f"{run_id}/{task}/{attempt};"
