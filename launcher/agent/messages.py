"""Frames of an agent: what it says to a launcher, but for bytes of logs.

The launcher checks besides whether a host may say what it says at this time
(`hosts.frame_checks`).
"""

from __future__ import annotations

from enum import Enum
from typing import ClassVar, Mapping, Tuple

from . import wire
from .fields import (
    AbsolutePath,
    Annotated,
    AnyNumber,
    AttemptNumber,
    Figure,
    Number,
    OwnVariables,
    Pid,
    Port,
    Record,
    Seconds,
    Size,
    Text,
    Version,
    display_text,
    items,
    pattern,
    row,
    table,
    whole,
)
from .task_id import TaskId

Line = Annotated[str, display_text(1000)]
Shares = Annotated[Mapping[TaskId, Tuple[float, int]], table(TaskId, row(Figure, AnyNumber))]
ErrorCode = Annotated[str, display_text(40)]
ExitStatus = Annotated[int, whole(0, 255)]
Signal = Annotated[str, pattern("[A-Z0-9]{1,16}", "not the name of a signal")]

MESSAGES: dict[int, type[Message]] = {}


class Message(Record):
    """Base of all of them."""

    TYPE: ClassVar[int]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "TYPE" in vars(cls):
            MESSAGES[cls.TYPE] = cls

    def encode(self) -> bytes:
        """The message as a frame, ready to be sent."""
        return wire.encode(self.TYPE, self.to_json())


class ExitReason(Enum):
    """Reason for which an agent ends."""

    LAUNCHER_LEFT = "launcher_left"
    LAUNCHER_DIED = "launcher_died"
    LEASE_EXPIRED = "lease_expired"
    TERMINATED = "terminated"
    NOTHING_STARTED = "nothing_started"
    TASKS_ENDED = "tasks_ended"
    DIED = "died"
    """It was killed, or crashed; its successor says so."""


class AgentExit(Record):
    """The end of an agent: why, and the same in words."""

    reason: ExitReason
    text: Text


class PortOwner(Record):
    """A process that listens on a port: pid 0 where we may not see whose it is. `task` is the
    tag of a run's process."""

    port: Port
    pid: Pid
    command: Text
    task: Text = ""


class TaskFacts(Message):
    """Facts that an agent knows of one attempt of a task."""

    task: TaskId
    attempt: AttemptNumber
    pid: Pid
    error: Text
    ended: bool
    status: ExitStatus | None
    signal: Signal | None
    listening: bool
    size: Size
    began_at: Size
    eof: bool
    lost: Number
    cut: Number
    port_owner: PortOwner | None = None
    gated: bool = False


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


class Welcome(Message):
    """The answer to a hello: what the agent holds, and how an earlier agent of the run ended."""

    TYPE = wire.WELCOME
    version: Version
    pid: Pid
    home: AbsolutePath
    stage: AbsolutePath
    environ: OwnVariables
    tasks: tuple[TaskFacts, ...]
    previous_exit: AgentExit | None = None


class LogSize(Message):
    """Size in bytes of a log that lies on the launching machine."""

    TYPE = wire.LOG_SIZE
    task: TaskId
    size: Size


class Pong(Message):
    """The answer to a beat."""

    TYPE = wire.PONG


class UnendedProcess(Record):
    """A process that could not be ended."""

    pid: Pid
    command: Text
    state: Text


MOST_SURVIVORS = 100
Survivors = Annotated[Tuple[UnendedProcess, ...], items(UnendedProcess, MOST_SURVIVORS)]


class KillReceipt(Message):
    """Result of a kill of some tasks, or of everything (`tasks` is None). Without `ids`
    nobody asked: the agent has acted by itself. `confirmed` is the kernel's word, which there is
    of everything only: some tasks without survivors and `doubt` are seen gone. `unlisted` is the
    number of survivors beyond those listed. `doubt` says why nothing was found and yet something
    may be left."""

    TYPE = wire.RECEIPT
    ids: tuple[Number, ...]
    tasks: tuple[TaskId, ...] | None
    signalled: Number
    survivors: Survivors
    seconds: Seconds
    confirmed: bool
    doubt: Text = ""
    unlisted: Number = 0

    def problem(self) -> str:
        if self.confirmed and (self.tasks is not None or self.doubt):
            return "confirmed, and yet of some tasks only, or with a doubt"
        return "unlisted survivors and none listed" if self.unlisted and not self.survivors else ""


class Note(Message):
    """A sentence for the person at the terminal."""

    TYPE = wire.NOTE
    text: Text


class Refusal(Message):
    """The agent, or its bridge, cannot go on; `code` is that of the launcher's `HostError`."""

    TYPE = wire.ERROR
    text: Text
    code: ErrorCode = ""


class Gone(Message):
    """The agent lets go of a launcher: because that asked (`by` is empty), or another one came.

    A bridge that found no agent names in `left` the tasks of processes that live all the same,
    None for one that cannot be named.
    """

    TYPE = wire.GONE
    by: Text
    left: tuple[TaskId | None, ...] = ()


# --- answers to questions (`requests`, `probes`) --------------------------------------------


class Answer(Record):
    """Base of the answers to questions of the launcher."""


class Done(Answer):
    """It has been done, and there is nothing to say about it."""


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
