"""What can go wrong, as sentences for the person at the terminal.

TfmuxError                 str() is ready to be shown
├── ClusterFileError       the cluster file is wrong (exit 2); holds all its problems
├── RunNotFoundError       no run of that name
└── HostError              something about one host; names it and says why
    ├── UnreachableError   no answer, no route, no such name
    ├── HostKeyError       the host's key is unknown or has changed
    ├── AuthError          every key or password was refused
    ├── InterpreterError   no usable Python there
    └── AgentError         the agent did not start, or speaks another language
        └── ProtocolError  the agent said what no agent may say
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from .printable import printable


class TfmuxError(Exception):
    """The base of all errors that are meant for a person; its text is a whole sentence."""


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong in a cluster file.

    `key` is the place as one would say it (`jobs.ps.tasks[0]`, empty for the file as a whole),
    `line` counts from 1 and is None where no line can be named, `found` is what stands there
    (control characters escaped, shortened), `message` is what to write instead. `path` is the
    key again, for programs.
    """

    key: str
    line: int | None
    found: str
    message: str
    path: tuple[str | int, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        found = f" (found {self.found})" if self.found else ""
        return f"{self.key}: {self.message}{found}" if self.key else f"{self.message}{found}"


class ClusterFileError(TfmuxError):
    """The cluster file cannot be used; `problems` are in the order of the file's lines."""

    def __init__(self, source: str, problems: Sequence[Problem]) -> None:
        self.source = source
        self.problems = tuple(problems)
        super().__init__("\n".join(f"{self._place(p)}: {p}" for p in self.problems))

    def _place(self, problem: Problem) -> str:
        return self.source if problem.line is None else f"{self.source}:{problem.line}"


class RunNotFoundError(TfmuxError):
    """No run of that id is known here."""


class HostError(TfmuxError):
    """Something is wrong with one host.

    `reason` says what is wrong and, after a semicolon, what to do where that is known (`todo`
    alone; `what` is the part before it). `code` names the kind for programs, as `tfmux check`
    lists it (`docs/preflight.md`).
    """

    code = "host-failed"

    def __init__(self, host: str, what: str, *, code: str = "", todo: str = "") -> None:
        self.host = host
        self.what = what = printable(what)  # hosts and their programs have a say in it
        self.todo = todo
        self.reason = f"{what}; {todo}" if todo else what
        self.code = code or self.code
        super().__init__(f"{host}: {self.reason}")


class UnreachableError(HostError):
    """Nothing answers: no route, refused, unresolved, silent, or not an SSH server."""

    code = "unreachable"


class HostKeyError(HostError):
    """The host's key is unknown here, or is not the one that is known."""

    code = "key-unknown"


class AuthError(HostError):
    """The host let nobody in with what was offered."""

    code = "login-refused"


class InterpreterError(HostError):
    """The host has no usable Python where the cluster file says."""

    code = "python-missing"


class AgentError(HostError):
    """The agent did not come up on the host, or what came back was not an agent's."""

    code = "agent-failed"


class ProtocolError(AgentError):
    """The agent broke a rule of the protocol. A host that lies is not connected to again, and
    nothing of what it says is believed any more."""

    def __init__(self, host: str, rule: str) -> None:
        todo = "not connecting to it again"
        super().__init__(host, f"{host} broke the protocol: {printable(rule, 300)}", todo=todo)
