"""Identifiers of tasks, of runs, and of the processes of a run."""

from __future__ import annotations

import os
import re
import time
from typing import Any

from .agent.task_id import TaskId

__all__ = ["TaskId", "is_run_id", "new_run_id", "tag"]


def _task_id(value: object) -> TaskId:
    if isinstance(value, TaskId):
        return value
    if isinstance(value, str):
        return TaskId.parse(value)
    raise ValueError("not a task: text such as worker:0 is needed")


def _schema(cls: type[TaskId], source: Any, handler: Any) -> Any:
    # Imported when a model needs it: the first frame of the UI has none.
    from pydantic_core import core_schema

    return core_schema.no_info_plain_validator_function(
        _task_id, serialization=core_schema.to_string_ser_schema()
    )


# Stored and sent as text, also as the key of a table. The class is the agent's, which has no
# pydantic.
TaskId.__get_pydantic_core_schema__ = classmethod(_schema)  # type: ignore[attr-defined]

_RUN_NAME = re.compile(r"[^A-Za-z0-9._-]+")
_STAMP = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-f]{4}")


def new_run_id(name: str) -> str:
    """Makes a run's id: the cluster's name, the time to the second, and four random hex digits.

    Two launches of one file in the same second must not share a folder, hence the digits.
    """
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime())
    return f"{_safe(name)}-{stamp}-{os.urandom(2).hex()}"


def is_run_id(text: str, name: str) -> bool:
    """Whether `new_run_id` makes such an id for the cluster `name`."""
    start = f"{_safe(name)}-"
    return text.startswith(start) and _STAMP.fullmatch(text, len(start)) is not None


def _safe(name: str) -> str:
    return _RUN_NAME.sub("-", name).strip("-.") or "run"


def tag(run_id: str, task: TaskId, attempt: int) -> str:
    """Makes the value of `TFMUX_TASK` in the environment of every process of a task.

    It ends in a semicolon so that it can be matched whole: `worker:1` must not match `worker:10`.
    """
    return f"{run_id}/{task}/{attempt};"
