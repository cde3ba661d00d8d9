"""Frames of an agent as typed messages: types, ranges and sizes are checked here, and text is
made printable. Whether a host may say what it says at this time is `frame_checks`' business.

A host is believed about itself: `context` holds the names of its tasks, and any other task's
name makes a message invalid.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    StringConstraints,
    ValidationInfo,
)
from pydantic_core import PydanticCustomError

from ..agent import wire
from ..ids import TaskId
from ..plan.environment import EXTENDED
from ..printable import printable

FOREIGN = "foreign_task"
"""The kind of pydantic error for a task that is not the host's."""
_LONGEST = 1 << 16
_MOST = 1 << 16
"""Items of a list: a frame has at most 4 MiB anyway."""


def _own_task(value: object, info: ValidationInfo) -> TaskId:
    own: Mapping[str, TaskId] = (info.context or {}).get("tasks", {})
    if not isinstance(value, str):
        raise PydanticCustomError("task_type", "a task must be text")
    if value not in own:
        raise PydanticCustomError(
            FOREIGN, "{task}, which is not one of its tasks", {"task": printable(value, 100)}
        )
    return own[value]


def _own_shares(value: object, info: ValidationInfo) -> object:
    """Two host names may be one machine: another's task is left out, and is no lie."""
    own: Mapping[str, TaskId] = (info.context or {}).get("tasks", {})
    if not isinstance(value, dict):
        return value
    return {own[name]: share for name, share in value.items() if name in own}


def _known_tasks(value: object, info: ValidationInfo) -> object:
    own: Mapping[str, TaskId] = (info.context or {}).get("tasks", {})
    if not isinstance(value, list):
        return value
    return [own.get(name) if isinstance(name, str) else name for name in value]


def _absolute(path: str) -> str:
    if not path.startswith("/") or any(ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 for c in path):
        raise PydanticCustomError("path", "not an absolute path in plain characters")
    return path


def _extended(environ: dict[str, str]) -> dict[str, str]:
    if not environ.keys() <= set(EXTENDED):
        raise PydanticCustomError("environ", "variables that nobody asked for")
    return environ


def _lines(texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(printable(text, 1000) for text in texts)


Task = Annotated[TaskId, PlainValidator(_own_task)]
RawText = Annotated[str, Field(max_length=_LONGEST)]
"""Text that goes back to the host as it is, and is never shown so."""
Text = Annotated[str, AfterValidator(printable)]
Path = Annotated[RawText, AfterValidator(_absolute)]
Count = Annotated[int, Field(ge=0, le=1 << 62)]
Pid = Annotated[int, Field(ge=0, le=1 << 22)]
Port = Annotated[int, Field(ge=1, le=65535)]
Number = Annotated[int, Field(ge=-(1 << 31), lt=1 << 31)]
Seconds = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
Figure = Annotated[float, Field(ge=-1e18, le=1e18, allow_inf_nan=False)]
Whole = Annotated[int, Field(ge=-(1 << 62), le=1 << 62)]
Listed = Field(max_length=_MOST, strict=False)
Texts = Annotated[tuple[str, ...], Listed, AfterValidator(_lines)]


class Message(BaseModel):
    """Something that an agent says; what this version does not know is left out."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")


class PortHolder(Message):
    """A process that holds a port: pid 0 where we may not see whose it is. `task` is the tag of
    a run's process."""

    port: Port
    pid: Pid
    command: Text
    task: Text = ""


class TaskFacts(Message):
    """What an agent knows of one attempt of a task."""

    task: Task
    attempt: Annotated[int, Field(ge=1, lt=1 << 31)]
    pid: Pid
    error: Text
    ended: bool
    status: Annotated[int, Field(ge=0, le=255)] | None
    signal: Annotated[str, StringConstraints(pattern=r"^[A-Z0-9]{1,16}$")] | None
    listening: bool
    size: Count
    began_at: Count
    eof: bool
    lost: Count
    cut: Count
    held: PortHolder | None = None


class Welcome(Message):
    """The greeting: what the agent holds, and how an earlier one of the run ended (`was`)."""

    version: int
    home: Path
    stage: Path
    environ: Annotated[dict[str, RawText], AfterValidator(_extended)]
    was: Text
    tasks: Annotated[tuple[TaskFacts, ...], Listed]


class Started(TaskFacts):
    """A task's process runs, or could not be started (`error`)."""


class Listening(TaskFacts):
    """A task listens on its port."""


class Exited(TaskFacts):
    """A task's process has ended, and what it had written by then is in its log."""

    ended: Literal[True]


class OutputEnded(TaskFacts):
    """Nobody will write to the log of this attempt any more."""


class LogSize(Message):
    """How far a log has grown that lies on the launching machine."""

    task: Task
    size: Count


class Survivor(Message):
    """A process that could not be ended."""

    pid: Pid
    command: Text
    state: Text


class KillReceipt(Message):
    """What a kill of some tasks, or of everything (`tasks` is None), has come to. Without `ids`
    nobody asked: the agent has acted by itself."""

    ids: Annotated[tuple[Number, ...], Listed]
    tasks: Annotated[tuple[Task, ...], Listed] | None
    signalled: Count
    survivors: Annotated[tuple[Survivor, ...], Listed]
    seconds: Seconds
    confirmed: bool = True
    doubt: Text = ""
    """Why nothing was found and yet something may be left."""


class Note(Message):
    """A sentence for the person at the terminal."""

    text: Text


class Pong(Message):
    """The answer to a beat."""


class Refusal(Message):
    """The agent, or its bridge, cannot go on; `code` is that of `HostError`."""

    text: Text
    code: Annotated[Text, Field(max_length=40)] = ""


class Gone(Message):
    """The agent lets go of us: because we asked (`by` is empty), or another launcher came.

    A bridge that found no agent names in `left` the tasks of processes that live all the same,
    None for one that it or we cannot name.
    """

    by: Text
    left: Annotated[tuple[TaskId | None, ...], Listed, BeforeValidator(_known_tasks)] = ()


@dataclass(frozen=True)
class LogBytes:
    """Bytes of a log, or of the results, that stand at `offset`."""

    number: int
    offset: int
    chunk: bytes


MESSAGES: dict[int, type[Message]] = {
    wire.WELCOME: Welcome,
    wire.STARTED: Started,
    wire.LISTENING: Listening,
    wire.EXITED: Exited,
    wire.EOF: OutputEnded,
    wire.SIZE: LogSize,
    wire.PONG: Pong,
    wire.RECEIPT: KillReceipt,
    wire.NOTE: Note,
    wire.ERROR: Refusal,
    wire.GONE: Gone,
}


# --- answers ------------------------------------------------------------------------------


class Answer(Message):
    """The body of a `REPLY`, by the question."""

    def fits(self, question: Mapping[str, Any]) -> bool:
        """It answers what was asked."""
        return True


class PortsAnswer(Answer):
    """Free ports that were picked, and who holds those that were looked at."""

    picked: Annotated[tuple[Port, ...], Listed]
    held: Annotated[tuple[PortHolder, ...], Listed]

    def fits(self, question: Mapping[str, Any]) -> bool:
        picked = set(self.picked)
        return (
            len(self.picked) == len(picked) == question["pick"]
            and picked.isdisjoint(question["avoid"])
            and {holder.port for holder in self.held} <= set(question["look"])
        )


class StatsAnswer(Answer):
    """CPU, memory and GPUs of the host, and of each task its cores and bytes."""

    cpu: Figure | None
    memory_total: Whole
    memory_used: Whole
    gpus: Texts
    tasks: Annotated[
        dict[TaskId, Annotated[tuple[Figure, Whole], Field(strict=False)]],
        BeforeValidator(_own_shares),
    ]


class MissingAnswer(Answer):
    """Contents that the host lacks; nothing was missing and the trees are `built`."""

    missing: Annotated[tuple[Annotated[str, Field(max_length=128)], ...], Listed]
    built: bool


class BuiltAnswer(Answer):
    """The trees are built."""


class ArchiveAnswer(Answer):
    """How many bytes of results wait, how many files and links, and which paths are not there."""

    size: Count
    files: Count
    links: Count
    absent: Texts


class CollectedAnswer(Answer):
    """What could not be read of the results."""

    problems: Texts


class ClockAnswer(Answer):
    time: Figure


class AccountAnswer(Answer):
    shell: Text
    proxies: dict[Text, Text]
    user: Text
    python: Text
    executable: Text


class PythonAnswer(Answer):
    """`failed` says why nothing is known; else the rest is there."""

    failed: Text = ""
    version: Text = ""
    executable: Text = ""
    tensorflow: Text = ""
    there: bool = False

    def fits(self, question: Mapping[str, Any]) -> bool:
        return bool("failed" in self.model_fields_set or self.version)


class GpusAnswer(Answer):
    """Of each GPU index, name, driver and memory, as nvidia-smi prints them."""

    gpus: Annotated[
        tuple[Annotated[tuple[Text, Text, Text, Text], Field(strict=False)], ...], Listed
    ]
    why: Text


class RoomAnswer(Answer):
    """Of each place what it is for, its path, its free bytes and its device; free and total
    memory."""

    disks: Annotated[
        tuple[Annotated[tuple[Text, Text, Whole, Whole], Field(strict=False)], ...],
        Field(min_length=1, max_length=_MOST, strict=False),
    ]
    memory: Annotated[tuple[Whole, Whole], Field(strict=False)]


class LogdirAnswer(Answer):
    path: RawText
    base: RawText
    above: Annotated[int, Field(ge=0, le=4096)]
    why: Text
    old: (
        Annotated[tuple[()], Field(strict=False)]
        | Annotated[tuple[Text, Figure], Field(strict=False)]
    )


class SeenAnswer(Answer):
    seen: bool


class LeftoversAnswer(Answer):
    """Of each process left over its run, task, pid and command line."""

    found: Annotated[
        tuple[Annotated[tuple[Text, Text, Pid, Text], Field(strict=False)], ...], Listed
    ]


class ListenAnswer(Answer):
    """Ports on which it cannot listen, and why."""

    failed: dict[Annotated[str, StringConstraints(pattern=r"^[0-9]{1,5}$")], Text]


class ConnectAnswer(Answer):
    outcome: Literal["ok", "refused", "filtered", "no-route", "failed", "stranger", "unresolved"]
    text: Text
    address: Text
    resolved: Seconds
    connected: Seconds = 0.0


PROBES: dict[str, type[Answer]] = {
    "clock": ClockAnswer,
    "account": AccountAnswer,
    "python": PythonAnswer,
    "gpus": GpusAnswer,
    "room": RoomAnswer,
    "logdir": LogdirAnswer,
    "seen": SeenAnswer,
    "leftovers": LeftoversAnswer,
    "listen": ListenAnswer,
    "connect": ConnectAnswer,
}


@dataclass(frozen=True)
class Reply:
    """The reply to one question: its answer, or the `error` that stands in its place. `id` is
    None for an error that staged contents met."""

    id: int | None
    answer: Answer | None = None
    error: str = ""
