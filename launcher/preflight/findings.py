"""Results of a preflight: findings about hosts, and whether each host reaches each task."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from ..ids import TaskId
from ..printable import printable

OK = "ok"
"""The code of a finding that nothing is wrong with."""


class Severity(StrEnum):
    """Severity of a finding. Only an error stops a launch."""

    OK = "ok"
    WARN = "warn"
    ERROR = "error"

    @property
    def rank(self) -> int:
        """A number that grows with the severity."""
        return (Severity.OK, Severity.WARN, Severity.ERROR).index(self)


class Check(StrEnum):
    """The checks, in the order in which they can be made; each is a row of the table."""

    QUEUE = "queue"
    LIMITS = "limits"
    NAME = "name"
    TCP = "tcp"
    SSH = "ssh"
    KEY = "key"
    LOGIN = "login"
    SHELL = "shell"
    AGENT = "agent"
    FILES = "files"
    PYTHON = "python"
    TENSORFLOW = "tensorflow"
    COMMAND = "command"
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


ENGINE_CHECKS = (Check.QUEUE, Check.LIMITS, Check.FILES, Check.PYTHON)
"""The checks of an engine, before it has given any host."""
CHECKS = tuple(check for check in Check if check not in (Check.QUEUE, Check.LIMITS))
"""The checks of a host."""
LOGIN_CHECKS = (Check.NAME, Check.TCP, Check.SSH, Check.KEY, Check.LOGIN)
"""Checks of the way to a host, which this machine itself does not need."""


@dataclass(frozen=True)
class Finding:
    """Result of one check on one host, passed or not.

    `host` and `check` name its cell in the table of checks. `code` names its kind for programs
    (`ok` where nothing is wrong), `brief` is for the cell, `sentence` says it in full, `todo` what
    to do about it (empty where nothing is to do).
    """

    severity: Severity
    check: Check
    code: str
    host: str
    brief: str
    sentence: str
    todo: str = ""
    task: TaskId | None = None
    """The task that it is about; None: no single one."""
    other: str = ""
    """The host at the other end of a connection from `host`. Without a `task`, the finding is
    about the connections to all tasks of that host."""
    run: str = ""
    """The dead run whose leftovers it is about."""
    offer: str = ""
    """Path of an interpreter on the host that would do, where the host's Python does not."""

    def __post_init__(self) -> None:
        # Text of hosts and of programs there must not act on the terminal.
        for name in ("brief", "sentence", "todo", "offer"):
            object.__setattr__(self, name, printable(getattr(self, name)))


class Reach(StrEnum):
    """Outcome of a connection from a host to a task's address."""

    OK = "ok"
    SLOW = "slow"
    REFUSED = "refused"
    UNRESOLVED = "unresolved"
    FILTERED = "filtered"
    NO_ROUTE = "no-route"
    STRANGER = "stranger"
    FAILED = "failed"
    UNKNOWN = "unknown"
    """Not tried: one of the hosts has no agent, or the port cannot be listened on."""

    @property
    def by_name(self) -> bool:
        """The outcome depends on the host's name alone, so it is the same for all its tasks."""
        return self in (Reach.UNRESOLVED, Reach.NO_ROUTE)


@dataclass(frozen=True)
class Reachability:
    """Whether a host reaches a task, by the name and port of the cluster spec.

    `source` is the host that connects, `target` the host of `task`; `resolved` is the address
    that the name resolved to there, `seconds` the time for name and connection together.
    """

    source: str
    task: TaskId
    target: str
    address: str
    reach: Reach
    seconds: float = 0.0
    resolved: str = ""

    def explained_by(self, finding: Finding) -> bool:
        """The finding is about this connection, alone or with others."""
        if finding.check is not Check.REACH or finding.host != self.source:
            return False
        if finding.task is not None:
            return finding.task == self.task
        return finding.other == self.target and self.reach.by_name


Result = Finding | Reachability


def passed(check: Check, host: str, brief: str, sentence: str = "") -> Finding:
    """Makes the finding of a check that found nothing wrong."""
    return Finding(Severity.OK, check, OK, host, brief, sentence or f"{check}: {brief}")


warning = partial(Finding, Severity.WARN)
"""Makes a finding that does not stop a launch."""
blocking = partial(Finding, Severity.ERROR)
"""Makes a finding that stops a launch."""
HOST_FAILURES = {
    "name-unresolved": (Check.NAME, "unresolved"),
    "tcp-refused": (Check.TCP, "refused"),
    "tcp-timeout": (Check.TCP, "timed out"),
    "tcp-no-route": (Check.TCP, "no route"),
    "tcp-failed": (Check.TCP, "failed"),
    "jump-failed": (Check.TCP, "failed"),
    "ssh-config": (Check.SSH, "failed"),
    "ssh-silent": (Check.SSH, "silent"),
    "ssh-dropped": (Check.SSH, "dropped"),
    "ssh-failed": (Check.SSH, "failed"),
    "not-ssh": (Check.SSH, "not SSH"),
    "key-unknown": (Check.KEY, "unknown"),
    "key-changed": (Check.KEY, "CHANGED"),
    "key-refused": (Check.KEY, "refused"),
    "key-not-stored": (Check.KEY, "not stored"),
    "known-hosts-broken": (Check.KEY, "failed"),
    "key-file": (Check.LOGIN, "key file"),
    "login-refused": (Check.LOGIN, "refused"),
    "login-timeout": (Check.LOGIN, "timed out"),
    "no-session": (Check.LOGIN, "no session"),
    "via-missing": (Check.LOGIN, "missing"),
    "via-failed": (Check.LOGIN, "failed"),
    "via-ended": (Check.LOGIN, "ended"),
    "via-silent": (Check.LOGIN, "silent"),
    "via-noisy": (Check.LOGIN, "prints text"),
    "via-terminal": (Check.LOGIN, "terminal"),
    "via-buffered": (Check.LOGIN, "buffers"),
    "via-altered": (Check.LOGIN, "alters bytes"),
    "via-input": (Check.LOGIN, "no input"),
    "shell-blocked": (Check.SHELL, "blocks"),
    "python-missing": (Check.PYTHON, "missing"),
    "python-old": (Check.PYTHON, "too old"),
}
"""For each code of a `HostError` the check that it belongs to, and the text for its cell."""
