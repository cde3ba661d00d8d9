"""Values of a cluster file that the rest of tfmux decides by: when a task is ready, and the rules
of a run."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

from pydantic import PlainSerializer

from .fields import REGEX, SECONDS, Rule, nearest, pattern, wrong


class Success(StrEnum):
    """Tasks whose exit with status 0 makes a run a success."""

    CHIEF = "chief"
    ALL = "all"


class OnFailure(StrEnum):
    """Effect of a task's failure on the run."""

    STOP = "stop"
    KEEP = "keep"
    RESTART = "restart"


class OnDisconnect(StrEnum):
    """Whether a host stops its tasks when its lease has ended without a launcher."""

    STOP = "stop"
    KEEP = "keep"


class OnHangup(StrEnum):
    """Effect on the run when the program that launched it disappears without detaching: its
    terminal was closed, or it was killed."""

    KILL = "kill"
    DETACH = "detach"


class Shell(StrEnum):
    """Shell through which a task is started."""

    NONE = "none"
    LOGIN = "login"


@dataclass(frozen=True)
class PortListens:
    """Ready when the task's own process tree listens on its port."""


@dataclass(frozen=True)
class ProcessStarted:
    """Ready as soon as the process has been started."""


@dataclass(frozen=True)
class LogMatches:
    """Ready when a line of the log matches the regular expression (over bytes)."""

    pattern: str


@dataclass(frozen=True)
class After:
    """Ready a number of seconds after the start."""

    seconds: float


AUTO_SECONDS = 5.0


@dataclass(frozen=True)
class Auto:
    """Ready when it listens on its port, has printed a metric line, or has lived for
    `AUTO_SECONDS`: for programs of which nothing is known."""


@dataclass(frozen=True)
class Finished:
    """Ready when it has exited with status 0. For `prepare` lines only, not in cluster files."""


Readiness = PortListens | ProcessStarted | LogMatches | After | Auto | Finished


_WORDS: dict[str, Readiness] = {
    "listening": PortListens(),
    "started": ProcessStarted(),
    "auto": Auto(),
}


def _ready(value: Any) -> Readiness:
    if isinstance(value, PortListens | ProcessStarted | LogMatches | After | Auto):
        return value
    if isinstance(value, str) and value in _WORDS:
        return _WORDS[value]
    if isinstance(value, dict) and set(value) == {"log"}:
        return LogMatches(pattern(value["log"]))
    if isinstance(value, dict) and set(value) == {"after"}:
        return After(SECONDS.check(value["after"]))
    hint = nearest(value, _WORDS) if isinstance(value, str) else ""
    forms = 'write "listening", "started", "auto", { log = "regex" } or { after = 5.0 }'
    raise wrong(forms + (f"; {hint}" if hint else ""))


def ready_value(ready: Readiness) -> str | dict[str, str | float]:
    """Returns a readiness as a cluster file's value."""
    match ready:
        case PortListens():
            return "listening"
        case ProcessStarted():
            return "started"
        case Auto():
            return "auto"
        case LogMatches(regex):
            return {"log": regex}
        case After(delay):
            return {"after": delay}
        case Finished():
            return "finished"


def _one_key(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name: schema},
        "required": [name],
        "additionalProperties": False,
    }


Ready = Annotated[
    Readiness,
    Rule(
        _ready,
        {
            "oneOf": [
                {"enum": list(_WORDS)},
                _one_key("log", REGEX),
                _one_key("after", {"type": "number", "minimum": 0}),
            ]
        },
    ),
    PlainSerializer(ready_value),
]
