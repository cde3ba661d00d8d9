"""Answers of an agent to the questions of a launcher (`requests`, `probes`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Mapping

from .fields import (
    COUNT,
    FLAG,
    PID,
    PORT,
    SIGNED,
    TEXT,
    TEXTS,
    Record,
    figure_rule,
    items,
    meta,
    optional,
    port_rule,
    raw_text,
    record,
    row,
    signed_rule,
    table,
    task_rule,
)
from .task_id import TaskId


class Answer(Record):
    """Base of all answers."""


class Done(Answer):
    """It has been done, and there is nothing to say about it."""


@dataclass(frozen=True)
class PortOwner(Record):
    """A process that listens on a port: pid 0 where we may not see whose it is. `task` is the
    tag of a run's process."""

    port: int = field(metadata=PORT)
    pid: int = field(metadata=PID)
    command: str = field(metadata=TEXT)
    task: str = field(default="", metadata=TEXT)


@dataclass(frozen=True)
class PortsAnswer(Answer):
    """Free ports that were picked, and who listens on those that were checked."""

    picked: tuple[int, ...] = field(metadata=meta(items(port_rule)))
    owners: tuple[PortOwner, ...] = field(metadata=meta(items(record(PortOwner))))


@dataclass(frozen=True)
class StatsAnswer(Answer):
    """CPU (0–1), memory and GPUs of the host, and of each task its cores and bytes."""

    cpu: float | None = field(metadata=meta(optional(figure_rule)))
    memory_total: int = field(metadata=SIGNED)
    memory_used: int = field(metadata=SIGNED)
    gpus: tuple[str, ...] = field(metadata=TEXTS)
    tasks: Mapping[TaskId, tuple[float, int]] = field(
        metadata=meta(table(task_rule, row(figure_rule, signed_rule)))
    )


@dataclass(frozen=True)
class StageAnswer(Answer):
    """Contents that the host lacks; nothing was missing and the trees are `built`."""

    missing: tuple[str, ...] = field(metadata=meta(items(raw_text(128))))
    built: bool = field(metadata=FLAG)


@dataclass(frozen=True)
class ArchiveAnswer(Answer):
    """How many bytes of results wait, how many files and links, and which paths are not there."""

    size: int = field(metadata=COUNT)
    files: int = field(metadata=COUNT)
    links: int = field(metadata=COUNT)
    absent: tuple[str, ...] = field(metadata=TEXTS)


@dataclass(frozen=True)
class CollectedAnswer(Answer):
    """What could not be read of the results."""

    problems: tuple[str, ...] = field(metadata=TEXTS)
