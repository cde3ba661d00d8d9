"""What a preflight says: findings about hosts, and how each pair of host and task fares."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ..ids import TaskId
from ..printable import printable

OK = "ok"
"""The code of a finding that nothing is wrong with."""


class Severity(StrEnum):
    """How bad it is. Only an error stands in the way of a launch."""

    OK = "ok"
    WARN = "warn"
    ERROR = "error"

    @property
    def rank(self) -> int:
        """The worse, the higher."""
        return (Severity.OK, Severity.WARN, Severity.ERROR).index(self)


class Check(StrEnum):
    """What is looked at, in the order in which it can be."""

    NAME = "name"
    TCP = "tcp"
    SSH = "ssh"
    KEY = "key"
    LOGIN = "login"
    SHELL = "shell"
    AGENT = "agent"
    PYTHON = "python"
    TENSORFLOW = "tensorflow"
    GPUS = "gpus"
    DISK = "disk"
    MEMORY = "memory"
    CLOCK = "clock"
    PORTS = "ports"
    LEFTOVERS = "leftovers"
    PROXY = "proxy"
    LOGDIR = "logdir"
    ADDRESS = "address"
    REACH = "reach"


CHECKS = tuple(Check)
LOGIN_CHECKS = (Check.NAME, Check.TCP, Check.SSH, Check.KEY, Check.LOGIN)
"""Those that this machine itself does not need."""


@dataclass(frozen=True)
class Finding:
    """One thing that was found on one host.

    `code` names its kind for programs (`ok` where nothing is wrong), `brief` is for a table's
    cell, `sentence` says it in full, `todo` what to do about it (empty where nothing is to do).
    """

    severity: Severity
    check: Check
    code: str
    host: str
    brief: str
    sentence: str
    todo: str = ""
    run: str = ""
    """The dead run whose leftovers it is about."""
    pair: Pair | None = None
    """The connection that it is about."""

    def __post_init__(self) -> None:
        """Words of hosts and of programs there reach no terminal as they are."""
        for name in ("brief", "sentence", "todo"):
            object.__setattr__(self, name, printable(getattr(self, name)))


class Reach(StrEnum):
    """How a connection from a host to a task's address went."""

    OK = "ok"
    SLOW = "slow"
    REFUSED = "refused"
    UNRESOLVED = "unresolved"
    FILTERED = "filtered"
    NO_ROUTE = "no-route"
    STRANGER = "stranger"
    FAILED = "failed"
    UNKNOWN = "unknown"
    """Not tried: one of the two has no agent, or the port cannot be listened on."""


@dataclass(frozen=True)
class Pair:
    """One connection that the cluster needs, tried by the name and port of its spec.

    `source` is the host that connects, `target` the one that runs `task`; `resolved` is the
    address that the name led to there, `seconds` what name and connection took together.
    """

    source: str
    task: TaskId
    target: str
    address: str
    reach: Reach
    seconds: float = 0.0
    resolved: str = ""

    @property
    def by_name(self) -> bool:
        """The outcome is that of the target's name: the same for all tasks there."""
        return self.reach in (Reach.UNRESOLVED, Reach.NO_ROUTE)


Result = Finding | Pair


def passed(check: Check, host: str, brief: str, sentence: str = "") -> Finding:
    """A check that found nothing wrong."""
    return Finding(Severity.OK, check, OK, host, brief, sentence or f"{check}: {brief}")


def warning(
    check: Check, code: str, host: str, brief: str, sentence: str, todo: str = ""
) -> Finding:
    """Something that a person should know and that stops nothing."""
    return Finding(Severity.WARN, check, code, host, brief, sentence, todo)


def blocking(
    check: Check, code: str, host: str, brief: str, sentence: str, todo: str = ""
) -> Finding:
    """Something with which a launch would fail."""
    return Finding(Severity.ERROR, check, code, host, brief, sentence, todo)
