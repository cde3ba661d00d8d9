"""Answers of an agent to the questions of a launcher (`requests`, `probes`)."""

from __future__ import annotations

from typing import Mapping, Tuple

from .fields import (
    Annotated,
    AnyNumber,
    Figure,
    Number,
    Pid,
    Port,
    Record,
    Text,
    raw_text,
    row,
    shown_text,
    table,
)
from .task_id import TaskId

Line = Annotated[str, shown_text(1000)]
ContentHash = Annotated[str, raw_text(128)]
Shares = Annotated[Mapping[TaskId, Tuple[float, int]], table(TaskId, row(Figure, AnyNumber))]


class Answer(Record):
    """Base of all answers."""


class Done(Answer):
    """It has been done, and there is nothing to say about it."""


class PortOwner(Record):
    """A process that listens on a port: pid 0 where we may not see whose it is. `task` is the
    tag of a run's process."""

    port: Port
    pid: Pid
    command: Text
    task: Text = ""


class PortsAnswer(Answer):
    """Free ports that were picked, and who listens on those that were checked."""

    picked: tuple[Port, ...]
    owners: tuple[PortOwner, ...]


class StatsAnswer(Answer):
    """CPU (0–1), memory and GPUs of the host, and of each task its cores and bytes."""

    cpu: Figure | None
    memory_total: AnyNumber
    memory_used: AnyNumber
    gpus: tuple[Line, ...]
    tasks: Shares


class StageAnswer(Answer):
    """Contents that the host lacks; nothing was missing and the trees are `built`."""

    missing: tuple[ContentHash, ...]
    built: bool


class ArchiveAnswer(Answer):
    """How many bytes of results wait, how many files and links, and which paths are not there."""

    size: Number
    files: Number
    links: Number
    absent: tuple[Line, ...]


class CollectedAnswer(Answer):
    """What could not be read of the results."""

    problems: tuple[Line, ...]
