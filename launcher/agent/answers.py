"""Answers of an agent to the questions of a launcher (`requests`, `probes`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Mapping

from .fields import (
    COUNT,
    FLAG,
    PID,
    PORT,
    SECONDS,
    TEXT,
    TEXTS,
    Record,
    choice,
    items,
    meta,
    number,
    optional,
    pid_rule,
    port_rule,
    port_text_rule,
    raw_text,
    record,
    row,
    shown_text,
    table,
    task_rule,
    whole,
)
from .task_id import TaskId

_figure = number(-1e18, 1e18)
_whole = whole(-(1 << 62), 1 << 62)
_FIGURE = meta(_figure)
_WHOLE = meta(_whole)
_PATH = meta(raw_text(1 << 16))


class Answer(Record):
    """Base of all answers."""


@dataclass(frozen=True)
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

    picked: tuple[int, ...] = field(metadata=meta(items(whole(1, 65535))))
    owners: tuple[PortOwner, ...] = field(metadata=meta(items(record(PortOwner))))


@dataclass(frozen=True)
class StatsAnswer(Answer):
    """CPU (0–1), memory and GPUs of the host, and of each task its cores and bytes."""

    cpu: float | None = field(metadata=meta(optional(_figure)))
    memory_total: int = field(metadata=_WHOLE)
    memory_used: int = field(metadata=_WHOLE)
    gpus: tuple[str, ...] = field(metadata=TEXTS)
    tasks: Mapping[TaskId, tuple[float, int]] = field(
        metadata=meta(table(task_rule, row(_figure, _whole)))
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


# --- answers to probes --------------------------------------------------------------------


@dataclass(frozen=True)
class ClockAnswer(Answer):
    """The host's time."""

    time: float = field(metadata=_FIGURE)


@dataclass(frozen=True)
class AccountAnswer(Answer):
    """The user, the login shell, proxies of the environment, and the agent's Python."""

    user: str = field(metadata=TEXT)
    shell: str = field(metadata=TEXT)
    proxies: Mapping[str, str] = field(metadata=meta(table(shown_text(), shown_text())))
    python: str = field(metadata=TEXT)
    executable: str = field(metadata=TEXT)


@dataclass(frozen=True)
class PythonAnswer(Answer):
    """`failed` says why nothing is known; else the rest is known."""

    failed: str | None = field(default=None, metadata=meta(optional(shown_text())))
    version: str = field(default="", metadata=TEXT)
    executable: str = field(default="", metadata=TEXT)
    tensorflow: str = field(default="", metadata=TEXT)
    there: bool = field(default=False, metadata=FLAG)

    def problem(self) -> str:
        return "no version" if self.failed is None and not self.version else ""


@dataclass(frozen=True)
class GpusAnswer(Answer):
    """Of each GPU index, name, driver and memory, as nvidia-smi prints them; `why` says why
    nvidia-smi lists none."""

    gpus: tuple[tuple[str, str, str, str], ...] = field(
        metadata=meta(items(row(shown_text(), shown_text(), shown_text(), shown_text())))
    )
    why: str = field(default="", metadata=TEXT)


@dataclass(frozen=True)
class DiskSpaceAnswer(Answer):
    """Of each place what it is for, its path, its free bytes and its device; free and total
    memory."""

    disks: tuple[tuple[str, str, int, int], ...] = field(
        metadata=meta(items(row(shown_text(), shown_text(), _whole, _whole), fewest=1))
    )
    memory: tuple[int, int] = field(metadata=meta(row(_whole, _whole)))


@dataclass(frozen=True)
class LogdirAnswer(Answer):
    """The log directory, and the folder that exists so many levels `above` it; `why` says why
    it cannot be written; the newest checkpoint (`old`) and its age in seconds."""

    path: str = field(metadata=_PATH)
    base: str = field(metadata=_PATH)
    above: int = field(metadata=meta(whole(0, 4096)))
    why: str = field(metadata=TEXT)
    old: tuple[str, float] | None = field(metadata=meta(optional(row(shown_text(), _figure))))


@dataclass(frozen=True)
class PathAnswer(Answer):
    """Whether a path exists."""

    exists: bool = field(metadata=FLAG)


@dataclass(frozen=True)
class LeftoversAnswer(Answer):
    """Of each process left over its run, task, pid and command line."""

    found: tuple[tuple[str, str, int, str], ...] = field(
        metadata=meta(items(row(shown_text(), shown_text(), pid_rule, shown_text())))
    )


@dataclass(frozen=True)
class ListenAnswer(Answer):
    """Ports on which it cannot listen, and why; those which only root may use."""

    failed: Mapping[str, str] = field(metadata=meta(table(port_text_rule, shown_text())))
    forbidden: tuple[int, ...] = field(metadata=meta(items(port_rule)))


@dataclass(frozen=True)
class ConnectAnswer(Answer):
    """How a connection went, to which address, and how long the name and the connection took."""

    outcome: str = field(
        metadata=meta(
            choice("ok", "refused", "filtered", "no-route", "failed", "stranger", "unresolved")
        )
    )
    text: str = field(metadata=TEXT)
    address: str = field(metadata=TEXT)
    resolved: float = field(metadata=SECONDS)
    connected: float = field(default=0.0, metadata=SECONDS)
