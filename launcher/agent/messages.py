"""Frames of an agent: what it says to a launcher, but for answers and bytes of logs.

The launcher checks besides whether a host may say what it says at this time
(`hosts.frame_checks`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar, Mapping

from . import wire
from .answers import PortOwner
from .fields import (
    ABSOLUTE_PATH,
    ATTEMPT,
    COUNT,
    EXIT_STATUS,
    FLAG,
    PID,
    SECONDS,
    SIGNAL,
    SIZE,
    SOME_TASKS,
    TASK,
    TEXT,
    VARIABLES,
    Record,
    enum_rule,
    items,
    meta,
    optional,
    record,
    shown_text,
    task_rule,
    whole,
)
from .task_id import TaskId


class Message(Record):
    """Base of all of them."""

    TYPE: ClassVar[int]

    def encode(self) -> bytes:
        """The frame."""
        return wire.encode(self.TYPE, self.to_json())


class ExitReason(Enum):
    """Why an agent ends."""

    LAUNCHER_LEFT = "launcher_left"
    LAUNCHER_DIED = "launcher_died"
    LEASE_EXPIRED = "lease_expired"
    TERMINATED = "terminated"
    NOTHING_STARTED = "nothing_started"
    TASKS_ENDED = "tasks_ended"
    DIED = "died"
    """It was killed, or crashed; its successor says so."""


@dataclass(frozen=True)
class AgentExit(Record):
    """The end of an agent: why, and the same in words."""

    reason: ExitReason = field(metadata=meta(enum_rule(ExitReason)))
    text: str = field(metadata=TEXT)


@dataclass(frozen=True)
class TaskFacts(Message):
    """What an agent knows of one attempt of a task."""

    task: TaskId = field(metadata=TASK)
    attempt: int = field(metadata=ATTEMPT)
    pid: int = field(metadata=PID)
    error: str = field(metadata=TEXT)
    ended: bool = field(metadata=FLAG)
    status: int | None = field(metadata=EXIT_STATUS)
    signal: str | None = field(metadata=SIGNAL)
    listening: bool = field(metadata=FLAG)
    size: int = field(metadata=SIZE)
    began_at: int = field(metadata=SIZE)
    eof: bool = field(metadata=FLAG)
    lost: int = field(metadata=COUNT)
    cut: int = field(metadata=COUNT)
    port_owner: PortOwner | None = field(default=None, metadata=meta(optional(record(PortOwner))))


class Started(TaskFacts):
    """A task's process runs, or could not be started (`error`)."""

    TYPE = wire.STARTED


class Listening(TaskFacts):
    """A task listens on its port."""

    TYPE = wire.LISTENING


class Exited(TaskFacts):
    """A task's process has ended, and what it had written by then is in its log."""

    TYPE = wire.EXITED

    def problem(self) -> str:
        return "" if self.ended else "an exit without an end"


class OutputEnded(TaskFacts):
    """Nobody will write to the log of this attempt any more."""

    TYPE = wire.EOF


@dataclass(frozen=True)
class Welcome(Message):
    """The answer to a hello: what the agent holds, and how an earlier agent of the run ended."""

    TYPE = wire.WELCOME
    version: int = field(metadata=meta(whole(0, 1 << 31)))
    pid: int = field(metadata=PID)
    home: str = field(metadata=ABSOLUTE_PATH)
    stage: str = field(metadata=ABSOLUTE_PATH)
    environ: Mapping[str, str] = field(metadata=VARIABLES)
    tasks: tuple[TaskFacts, ...] = field(metadata=meta(items(record(TaskFacts))))
    previous_exit: AgentExit | None = field(
        default=None, metadata=meta(optional(record(AgentExit)))
    )


@dataclass(frozen=True)
class LogSize(Message):
    """How far a log has grown that lies on the launching machine."""

    TYPE = wire.LOG_SIZE
    task: TaskId = field(metadata=TASK)
    size: int = field(metadata=SIZE)


class Pong(Message):
    """The answer to a beat."""

    TYPE = wire.PONG


@dataclass(frozen=True)
class Survivor(Record):
    """A process that could not be ended."""

    pid: int = field(metadata=PID)
    command: str = field(metadata=TEXT)
    state: str = field(metadata=TEXT)


@dataclass(frozen=True)
class KillReceipt(Message):
    """What a kill of some tasks, or of everything (`tasks` is None), has come to. Without `ids`
    nobody asked: the agent has acted by itself. `doubt` says why nothing was found and yet
    something may be left."""

    TYPE = wire.RECEIPT
    ids: tuple[int, ...] = field(metadata=meta(items(whole(0, 1 << 62))))
    tasks: tuple[TaskId, ...] | None = field(metadata=SOME_TASKS)
    signalled: int = field(metadata=COUNT)
    survivors: tuple[Survivor, ...] = field(metadata=meta(items(record(Survivor))))
    seconds: float = field(metadata=SECONDS)
    confirmed: bool = field(default=True, metadata=FLAG)
    doubt: str = field(default="", metadata=TEXT)


@dataclass(frozen=True)
class Note(Message):
    """A sentence for the person at the terminal."""

    TYPE = wire.NOTE
    text: str = field(metadata=TEXT)


@dataclass(frozen=True)
class Refusal(Message):
    """The agent, or its bridge, cannot go on; `code` is that of the launcher's `HostError`."""

    TYPE = wire.ERROR
    text: str = field(metadata=TEXT)
    code: str = field(default="", metadata=meta(shown_text(40)))


@dataclass(frozen=True)
class StageFailed(Message):
    """Staged contents could not be kept."""

    TYPE = wire.STAGE_ERROR
    text: str = field(metadata=TEXT)


@dataclass(frozen=True)
class Gone(Message):
    """The agent lets go of a launcher: because that asked (`by` is empty), or another one came.

    A bridge that found no agent names in `left` the tasks of processes that live all the same,
    None for one that cannot be named.
    """

    TYPE = wire.GONE
    by: str = field(metadata=TEXT)
    left: tuple[TaskId | None, ...] = field(default=(), metadata=meta(items(optional(task_rule))))


MESSAGES: dict[int, type[Message]] = {
    kind.TYPE: kind
    for kind in (
        Welcome,
        Started,
        Listening,
        Exited,
        OutputEnded,
        LogSize,
        Pong,
        KillReceipt,
        Note,
        Refusal,
        StageFailed,
        Gone,
    )
}
