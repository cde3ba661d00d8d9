"""Frames of a launcher: what it may ask of an agent.

Whoever speaks on a channel may do with this account what it likes. But a frame that is wrong by
mistake or on purpose must not bring the agent into a state from which its tasks do not come
back: it costs the channel on which it came and nothing else.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Mapping, TypeVar

from . import answers, wire
from .config import Rules
from .fields import (
    ANSWER_ID,
    ATTEMPT,
    FLAG,
    LOG_NUMBER,
    RAW_TEXT,
    SIZE,
    SOME_PORT,
    SOME_TASKS,
    TASK,
    VARIABLES,
    Clean,
    FieldError,
    Record,
    Rule,
    choice,
    digest,
    file_name_rule,
    items,
    meta,
    number,
    optional,
    port_rule,
    raw_text,
    record,
    row,
    whole,
)
from .task_id import TaskId
from .tree import Entry

A = TypeVar("A", bound=answers.Answer)
Q = TypeVar("Q", bound="Question[Any]")

_MOST_PORTS = 4096
_PORTS = meta(items(port_rule, _MOST_PORTS))
_WORDS = meta(items(raw_text(), fewest=1))


class Request(Record):
    """Base of all frames of a launcher."""

    TYPE: ClassVar[int]

    def encode(self) -> bytes:
        """The frame."""
        return wire.encode(self.TYPE, self.to_json())


class Question(Request, Generic[A]):
    """A frame that gets an `ANSWER`. Without an `id` nobody waits for it, and none is sent."""

    ANSWER: ClassVar[type[Any]]
    id: int | None

    def numbered(self: Q, ident: int) -> Q:
        """The same question under a number."""
        return dataclasses.replace(self, id=ident)  # type: ignore[call-arg]

    def accepts(self, answer: A) -> bool:
        """The answer is one to this question."""
        return True


# --- the run ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Hello(Request):
    """The first frame of a channel. Without `rules` it is a query: the launcher that is there is
    not replaced, and no lease is renewed. `launcher` names who greets, for the one that is
    replaced; `variables` are those of the host whose values the welcome shall hold."""

    TYPE = wire.HELLO
    version: int = field(metadata=meta(whole(0, 1 << 31)))
    token: str = field(metadata=meta(raw_text(100)))
    launcher: str = field(metadata=meta(raw_text(1000)))
    variables: tuple[str, ...] = field(metadata=meta(items(raw_text(1000), 100)))
    rules: Rules | None = field(default=None, metadata=meta(optional(record(Rules))))


@dataclass(frozen=True)
class Start(Request):
    """Starts an attempt of a task."""

    TYPE = wire.START
    task: TaskId = field(metadata=TASK)
    attempt: int = field(metadata=ATTEMPT)
    argv: tuple[str, ...] = field(metadata=_WORDS)
    env: Mapping[str, str] = field(metadata=VARIABLES)
    cwd: str = field(metadata=RAW_TEXT)
    log_limit: int = field(metadata=SIZE)
    port: int | None = field(default=None, metadata=SOME_PORT)
    pty: bool = field(default=False, metadata=FLAG)


class Beat(Request):
    """The launcher lives; the agent answers with a pong."""

    TYPE = wire.BEAT


@dataclass(frozen=True)
class Kill(Request):
    """Ends some tasks, or everything (`tasks` is None). The receipt names the `id`."""

    TYPE = wire.KILL
    id: int = field(metadata=meta(whole(0, 1 << 62)))
    tasks: tuple[TaskId, ...] | None = field(metadata=SOME_TASKS)
    grace: float = field(metadata=meta(number(-1e9, 1e9)))


@dataclass(frozen=True)
class Leave(Request):
    """The launcher leaves: the run is over, and its folder is removed or not."""

    TYPE = wire.LEAVE
    remove: bool = field(default=False, metadata=FLAG)


# --- logs ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReadLog(Request):
    """Sends a task's log from a byte on, under a number; `log_limit` as in `Start`."""

    TYPE = wire.READ_LOG
    task: TaskId = field(metadata=TASK)
    number: int = field(metadata=LOG_NUMBER)
    offset: int = field(metadata=SIZE)
    log_limit: int = field(default=1 << 62, metadata=SIZE)


@dataclass(frozen=True)
class Credit(Request):
    """So many bytes of logs and results in all may be sent on this channel."""

    TYPE = wire.CREDIT
    up_to: int = field(metadata=SIZE)


# --- the host -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Ports(Question[answers.PortsAnswer]):
    """Who listens on these ports, and `pick` free ones, none of `avoid`."""

    TYPE = wire.PORTS
    ANSWER = answers.PortsAnswer
    check: tuple[int, ...] = field(metadata=_PORTS)
    pick: int = field(metadata=meta(whole(0, _MOST_PORTS)))
    avoid: tuple[int, ...] = field(metadata=meta(items(port_rule)))
    id: int | None = field(default=None, metadata=ANSWER_ID)

    def accepts(self, answer: answers.PortsAnswer) -> bool:
        picked = set(answer.picked)
        return (
            len(answer.picked) == len(picked) == self.pick
            and picked.isdisjoint(self.avoid)
            and {owner.port for owner in answer.owners} <= set(self.check)
        )


@dataclass(frozen=True)
class Stats(Question[answers.StatsAnswer]):
    """CPU, memory and GPUs, of the host and of each task."""

    TYPE = wire.STATS
    ANSWER = answers.StatsAnswer
    id: int | None = field(default=None, metadata=ANSWER_ID)


# --- files --------------------------------------------------------------------------------


def _read_entry(value: Any, clean: Clean) -> Entry:
    fields = _ENTRY_FIELDS.read(value, clean)
    if fields[2] == "f" and not digest(fields[5]):
        raise FieldError("not a SHA-256", 5)
    return Entry(*fields)


_ENTRY_FIELDS = row(
    raw_text(), raw_text(), choice("d", "f", "l"), whole(0, 0o7777), whole(0, 1 << 62), raw_text()
)
_ENTRY = Rule(_read_entry, list)


@dataclass(frozen=True)
class StageManifest(Question[answers.StageAnswer]):
    """Part of a list of files that the host shall have. The `first` part begins a new list, whose
    `key` names the trees that follow each other from launch to launch; the `last` one is answered
    with what is missing."""

    TYPE = wire.STAGE_MANIFEST
    ANSWER = answers.StageAnswer
    entries: tuple[Entry, ...] = field(metadata=meta(items(_ENTRY)))
    first: bool = field(default=False, metadata=FLAG)
    last: bool = field(default=False, metadata=FLAG)
    key: str = field(default="", metadata=meta(raw_text(1000)))
    id: int | None = field(default=None, metadata=ANSWER_ID)


@dataclass(frozen=True)
class StageBuild(Question[answers.Done]):
    """The missing contents have been sent: builds the trees."""

    TYPE = wire.STAGE_BUILD
    ANSWER = answers.Done
    id: int | None = field(default=None, metadata=ANSWER_ID)


@dataclass(frozen=True)
class Collect(Question[answers.ArchiveAnswer]):
    """Makes an archive of paths of the host, each under a name."""

    TYPE = wire.COLLECT
    ANSWER = answers.ArchiveAnswer
    paths: tuple[tuple[str, str], ...] = field(
        metadata=meta(items(row(file_name_rule, raw_text())))
    )
    id: int | None = field(default=None, metadata=ANSWER_ID)


@dataclass(frozen=True)
class CollectOpen(Request):
    """Sends the archive from a byte on, under a number, up to another byte."""

    TYPE = wire.COLLECT_OPEN
    number: int = field(metadata=LOG_NUMBER)
    offset: int = field(metadata=SIZE)
    up_to: int = field(metadata=SIZE)


@dataclass(frozen=True)
class CollectCredit(Request):
    """Sends more of the archive, up to a byte."""

    TYPE = wire.COLLECT_CREDIT
    up_to: int = field(metadata=SIZE)


@dataclass(frozen=True)
class CollectEnd(Question[answers.CollectedAnswer]):
    """Sends no more of the archive, and closes it."""

    TYPE = wire.COLLECT_END
    ANSWER = answers.CollectedAnswer
    id: int | None = field(default=None, metadata=ANSWER_ID)
