"""Frames of a launcher: what it may ask of an agent.

Whoever speaks on a channel may do with this account what it likes. But a frame that is wrong by
mistake or on purpose must not bring the agent into a state from which its tasks do not come
back: it costs the channel on which it came and nothing else.
"""

from __future__ import annotations

from typing import Any, ClassVar, Generic, Mapping, Tuple, TypeVar, Union, get_args

from . import messages, wire
from .config import Rules
from .fields import (
    Annotated,
    AttemptNumber,
    Clean,
    FieldError,
    LogNumber,
    Number,
    Port,
    RawText,
    Record,
    ShortRawText,
    Size,
    Version,
    field,
    items,
    number,
    raw_text,
    table,
    whole,
)
from .task_id import TaskId

A = TypeVar("A", bound=messages.Answer)

AnswerId = Annotated[int, whole(1, 1 << 62)]
Grace = Annotated[float, number(-1e9, 1e9)]
Names = Annotated[Tuple[str, ...], items(ShortRawText, 100)]
MOST_TEXTS = 32
"""Shared texts of a channel; each has at most a million characters."""
TextNumber = Annotated[int, whole(0, MOST_TEXTS - 1)]


def _read_part(value: Any, clean: Clean) -> Any:
    return _NUMBER(value, clean) if type(value) is int else _RAW(value, clean)


def _read_composed(value: Any, clean: Clean) -> Any:
    return _PARTS(value, clean) if isinstance(value, list) else _RAW(value, clean)


_RAW, _NUMBER = raw_text(), whole(0, MOST_TEXTS - 1)
_PARTS = items(_read_part, 100)
Composed = Union[str, Tuple[Union[str, int], ...]]
"""A text, or its parts: a number stands for the shared text that has it."""
Words = Annotated[Tuple[Composed, ...], items(_read_composed, fewest=1)]
ComposedVariables = Annotated[Mapping[str, Composed], table(RawText, _read_composed)]
Token = Annotated[str, raw_text(100)]
PortCount = Annotated[int, whole(0, 4096)]
CheckedPorts = Annotated[Tuple[int, ...], items(Port, 4096)]

REQUESTS: dict[int, type[Request]] = {}


class Request(Record):
    """Base of all frames of a launcher."""

    TYPE: ClassVar[int]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "TYPE" in vars(cls):
            REQUESTS[cls.TYPE] = cls

    def encode(self) -> bytes:
        """The request as a frame, ready to be sent."""
        return wire.encode(self.TYPE, self.to_json())


class Question(Request, Generic[A]):
    """A frame that gets an `ANSWER`. Without an `id` nobody waits for it, and none is sent."""

    ANSWER: ClassVar[type[Any]]
    id: AnswerId | None = field(default=None, kw_only=True)

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        (cls.ANSWER,) = get_args(vars(cls)["__orig_bases__"][0])

    def accepts(self, answer: A) -> bool:
        """The answer is one to this question."""
        return True


def parse_request(frame: wire.Frame) -> Request:
    """The request in a launcher's frame.

    Raises:
        WireError: no launcher sends such a frame.
        VersionError: it is of a launcher of another version.
    """
    name = wire.NAMES[frame.type]
    if frame.type not in REQUESTS:
        raise wire.WireError(f"unexpected {name}")
    body = frame.json()
    if frame.type == wire.HELLO and body.get("version") != wire.VERSION:
        version = str(body.get("version"))[:20]
        raise wire.VersionError(
            f"its agent is of another version of tfmux (protocol {wire.VERSION}; this launcher "
            f"speaks {version})"
        )
    try:
        return REQUESTS[frame.type].from_json(body)
    except FieldError as error:
        raise wire.WireError(f"{name}: {error}") from None


# --- the run ------------------------------------------------------------------------------


class Hello(Request):
    """The first frame of a channel. Without `rules` it is a query: the launcher that is there is
    not replaced, and no lease is renewed. `launcher` names the launcher, for the one that is
    replaced; `variables` are those of the host whose values the welcome shall hold."""

    TYPE = wire.HELLO
    version: Version
    token: Token
    launcher: ShortRawText
    variables: Names
    rules: Rules | None = None


class Start(Request):
    """Starts an attempt of a task. A `gated` one has as its input a pipe, from which it reads a
    byte when it is released; then its program begins (`on_host/warm.py`). A word or the
    value of a variable is a text or a list of its parts, in which a number stands for a shared
    text; with these put in, a frame has at most 4 MiB."""

    TYPE = wire.START
    task: TaskId
    attempt: AttemptNumber
    argv: Words
    env: ComposedVariables
    cwd: RawText
    log_limit: Size
    port: Port | None = None
    pty: bool = False
    gated: bool = False

    def problem(self) -> str:
        return "a terminal has no gate" if self.pty and self.gated else ""

    def program(self, texts: Mapping[int, str]) -> tuple[tuple[str, ...], dict[str, str]]:
        """The command and the variables, with shared texts put in.

        Raises:
            WireError: one of these was not sent, or it is too much in all.
        """
        size = 0

        def write(text: Composed) -> str:
            nonlocal size
            parts = [text] if isinstance(text, str) else text
            found = [texts[part] if isinstance(part, int) else part for part in parts]
            size += sum(map(len, found))
            if size > wire.MAX_BODY:  # before it is made: few bytes may name a text often
                raise wire.WireError(f"START of {size} characters")
            return "".join(found)

        try:
            argv = tuple(map(write, self.argv))
            return argv, {name: write(value) for name, value in self.env.items()}
        except KeyError as error:
            raise wire.WireError(f"START: text {error} was not sent") from None


class ShareText(Request):
    """Sends a text of many tasks, to which later starts of this channel refer by its number."""

    TYPE = wire.SHARE_TEXT
    number: TextNumber
    text: RawText


class Release(Request):
    """Lets a gated attempt begin."""

    TYPE = wire.RELEASE
    task: TaskId
    attempt: AttemptNumber


class Beat(Request):
    """The launcher lives; the agent answers with a pong."""

    TYPE = wire.BEAT


class Kill(Request):
    """Ends some tasks, or everything (`tasks` is None). The receipt names the `id`."""

    TYPE = wire.KILL
    id: Number
    tasks: tuple[TaskId, ...] | None
    grace: Grace


class Leave(Request):
    """The launcher leaves: the run is over, and its folder is removed or not."""

    TYPE = wire.LEAVE
    remove: bool = False


# --- logs ---------------------------------------------------------------------------------


class ReadLog(Request):
    """Sends a task's log from a byte on, under a number; `log_limit` as in `Start`."""

    TYPE = wire.READ_LOG
    task: TaskId
    number: LogNumber
    offset: Size
    log_limit: Size = 1 << 62


class Credit(Request):
    """So many bytes of logs and results in all may be sent on this channel."""

    TYPE = wire.CREDIT
    up_to: Size


# --- the host -----------------------------------------------------------------------------


class Ports(Question[messages.PortsAnswer]):
    """Request for the owners of these ports, and for `pick` free ones, none of `avoid`."""

    TYPE = wire.PORTS
    check: CheckedPorts
    pick: PortCount
    avoid: tuple[Port, ...]

    def accepts(self, answer: messages.PortsAnswer) -> bool:
        picked = set(answer.picked)
        return (
            len(answer.picked) == len(picked) == self.pick
            and picked.isdisjoint(self.avoid)
            and {owner.port for owner in answer.owners} <= set(self.check)
        )


class Stats(Question[messages.StatsAnswer]):
    """CPU, memory and GPUs, of the host and of each task."""

    TYPE = wire.STATS
