"""Errors whose text is a sentence for the person at the terminal.

TfmuxError                 str() is ready to be shown
├── ClusterFileError       the cluster file is wrong (exit 2); holds all its problems
├── RunNotFoundError       no run of that name
├── TaskNotFoundError      the run has no such task
├── RunEndedError          the run has ended, or is being ended
├── LauncherError          the run's launcher process could not begin, or none stays alive
├── LockError              nobody can see whether a run has a launcher process
└── HostError              one host failed; names it and says why
    ├── UnreachableError   no answer, no route, no such name
    ├── HostKeyError       the host's key is unknown or has changed
    ├── AuthError          every key or password was refused
    └── AgentError         the agent did not start, or its answer is not an agent's
        └── ProtocolError  the agent broke a rule of the protocol
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field

from .frozen import frozen
from .printable import printable


class TfmuxError(Exception):
    """Base of all errors that are meant for a person."""


@frozen
class Problem:
    """One thing that is wrong in a cluster file.

    `key` is the place for people (`jobs.ps.tasks[0]`, empty for the file as a whole), `line`
    counts from 1 and is None where no line can be named, `found` is the value there (shortened,
    control characters escaped), `message` says what to write instead. `path` is the place for
    programs: the keys and indices, then `host` or `port` for one half of a task's address.
    """

    key: str
    line: int | None
    found: str
    message: str
    path: tuple[str | int, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        found = f" (found {self.found})" if self.found else ""
        return f"{self.key}: {self.message}{found}" if self.key else f"{self.message}{found}"


class LockError(TfmuxError):
    """The lock of a run's launcher process cannot be used on this file system."""


class ClusterFileError(TfmuxError):
    """The cluster file is not valid; `problems` are in the order of the file's lines."""

    def __init__(self, source: str, problems: Sequence[Problem]) -> None:
        self.source = source
        self.problems = tuple(problems)
        super().__init__("\n".join(f"{self._place(p)}: {p}" for p in self.problems))

    def _place(self, problem: Problem) -> str:
        return self.source if problem.line is None else f"{self.source}:{problem.line}"


class RunNotFoundError(TfmuxError):
    """No run has that id."""


class TaskNotFoundError(TfmuxError):
    """The run has no such task."""

    def __init__(self, task: str, tasks: Iterable[object]) -> None:
        """`tasks` are those that it has."""
        super().__init__(f"the run has no task {task!r}; it has {', '.join(map(str, tasks))}")


class RunEndedError(TfmuxError):
    """The run has ended, or is being ended: its tasks take no commands any more."""


class LauncherError(TfmuxError):
    """The launcher process of a run could not begin, or none stays alive."""


class HostError(TfmuxError):
    """One host failed.

    `what` says what is wrong, `todo` what to do where that is known, `reason` is both. `code` names
    the kind for programs, as `tfmux check` lists it (`docs/preflight.md`).
    """

    code = "host-failed"

    def __init__(self, host: str, what: str, *, code: str = "", todo: str = "") -> None:
        self.host = host
        self.what = what = printable(what)  # it may have text of the host in it
        self.todo = todo = printable(todo)
        self.reason = f"{what}; {todo}" if todo else what
        self.code = code or self.code
        super().__init__(f"{host}: {self.reason}")


class UnreachableError(HostError):
    """The host cannot be reached: no route, refused, unresolved, silent, or no SSH server."""

    code = "unreachable"


class HostKeyError(HostError):
    """The host's key is unknown, or differs from the known one."""

    code = "key-unknown"


class AuthError(HostError):
    """The host refused every key and password."""

    code = "login-refused"


class AgentError(HostError):
    """The agent did not start on the host, or what answered is not an agent."""

    code = "agent-failed"


class AnswerError(AgentError):
    """A program on the host says why it could not do what it was asked for."""


class ProtocolError(AgentError):
    """The agent broke a rule of the protocol. The host is not connected to again, and nothing
    that it sent later is used."""

    def __init__(self, host: str, rule: str) -> None:
        todo = "not connecting to it again"
        super().__init__(host, f"{host} broke the protocol: {printable(rule, 300)}", todo=todo)
