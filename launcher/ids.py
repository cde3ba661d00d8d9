"""Identifiers of tasks, of runs, and of the processes of a run."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from .agent.wire import TASK_NAME
from .frozen import frozen


class TaskId(NamedTuple):
    """One task of a job, `worker:0`, as TensorFlow writes it. Stored and sent as text, also as the
    key of a table."""

    job: str
    index: int  # type: ignore[assignment]  # hides the method of tuples

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
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        # Imported when a model needs it: the first frame of the UI has none.
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(
            _task_id, serialization=core_schema.to_string_ser_schema()
        )


def _task_id(value: object) -> TaskId:
    """The task that a frame or a record names in the one accepted form: it becomes the name of a
    file."""
    if isinstance(value, TaskId):
        return value
    if isinstance(value, str) and TASK_NAME.fullmatch(value):
        return TaskId.parse(value)
    raise ValueError("not the name of a task")


_MOST_RANGES = 12
"""Ranges of tasks that a sentence names."""


def named_tasks(tasks: Iterable[TaskId], most: int = _MOST_RANGES) -> str:
    """Names of tasks in short: `ps:0, worker:0–2, 4–11`."""
    jobs: dict[str, list[int]] = {}
    for task in tasks:
        jobs.setdefault(task.job, []).append(task.index)
    words = []
    for job, numbers in jobs.items():
        prefix = f"{job}:"
        for first, last in _ranges(sorted(numbers)):
            words.append(f"{prefix}{first}" if first == last else f"{prefix}{first}–{last}")
            prefix = ""
    return ", ".join(words if len(words) <= most else [*words[:most], "…"])


def _ranges(numbers: list[int]) -> list[tuple[int, int]]:
    """First and last of the numbers that follow each other; `numbers` are in their order."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and number <= found[-1][1] + 1:
            found[-1] = found[-1][0], number
        else:
            found.append((number, number))
    return found


@frozen
class TaskRank:
    """One of the ranks that a task has started, as torchrun, mpirun and `mp.spawn` do."""

    task: TaskId
    """The task that has started it."""
    rank: int
    """Its number among all ranks of the run; where it is not `told`, its place in the order in
    which the task has started them."""
    pid: int = 0
    """Its process."""
    told: bool = True
    """The environment of its process says the number: else it is probably its local rank."""

    @property
    def name(self) -> str:
        """The rank without its task."""
        if self.told:
            return f"rank {self.rank}"
        return f"process {self.pid} (probably local rank {self.rank})"


def named_ranks(those: Iterable[TaskId | TaskRank]) -> str:
    """Names of tasks, and of ranks of tasks, in short: `ps:0, worker:1 ranks 4, 6–7`."""
    tasks, ranks = list[TaskId](), dict[tuple[TaskId, bool], list[TaskRank]]()
    for one in those:
        if isinstance(one, TaskRank):
            ranks.setdefault((one.task, one.told), []).append(one)
        else:
            tasks.append(one)
    words = [named_tasks(tasks)] if tasks else []
    for (task, told), some in ranks.items():
        if len(some) == 1:
            words.append(f"{task} {some[0].name}")
            continue
        numbers = _ranges(sorted(one.rank for one in some))
        shown = ", ".join(f"{a}" if a == b else f"{a}–{b}" for a, b in numbers[:_MOST_RANGES])
        more = ", …" if len(numbers) > _MOST_RANGES else ""
        words.append(f"{task} ranks {shown}{more}" if told else f"{task} local ranks {shown}{more}")
    return ", ".join(words if len(words) <= _MOST_RANGES else [*words[:_MOST_RANGES], "…"])


_RUN_NAME = re.compile(r"[^A-Za-z0-9._-]+")
_STAMP = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-f]{4}")
_RUN_ID = re.compile(f"(.+)-({_STAMP.pattern})", re.DOTALL)


def new_run_id(name: str) -> str:
    """Makes a run's id: the cluster's name, the time to the second, and four random hex digits.

    Two launches of one file in the same second must not share a folder, hence the digits.
    """
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime())
    return f"{run_name(name)}-{stamp}-{os.urandom(2).hex()}"


def is_run_id(text: str, name: str) -> bool:
    """Whether `new_run_id` makes such an id for the cluster `name`."""
    start = f"{run_name(name)}-"
    return text.startswith(start) and _STAMP.fullmatch(text, len(start)) is not None


def split_run_id(run_id: str) -> tuple[str, str]:
    """Splits a run's id into the cluster's name and what `new_run_id` puts behind it, which is
    empty where the id has another form."""
    match = _RUN_ID.fullmatch(run_id)
    return (match[1], match[2]) if match is not None else (run_id, "")


def run_name(name: str) -> str:
    """Makes of a cluster's name what the ids of its runs begin with."""
    return _RUN_NAME.sub("-", name).strip("-.") or "run"


def tag(run_id: str, task: TaskId, attempt: int) -> str:
    """Makes the value of `TFMUX_TASK` in the environment of every process of a task.

    It ends in a semicolon so that it can be matched whole: `worker:1` must not match `worker:10`.
    """
    return f"{run_id}/{task}/{attempt};"
