"""Interface of engines: request, queue, nodes, the way to a node, release, and the engine's word.

The agent, logs, order, kills and receipts are the same on an engine's nodes as on SSH hosts. An
engine starts the agents (see `agent.bridge`), and gives a command that reaches a node: it passes
stdin and stdout unharmed to a process there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from ..errors import TfmuxError
from ..run.events import EngineWord


class EngineError(TfmuxError):
    """The engine refused, or did not answer: `what` has its words, `todo` what to change."""

    def __init__(self, what: str, todo: str = "") -> None:
        self.what = what
        self.todo = todo
        super().__init__(f"{what}; {todo}" if todo else what)


class MissingProgramError(EngineError):
    """The engine's command is not there."""


class NoAnswerError(EngineError):
    """No answer has come: what the engine was told to do may be done all the same."""


@dataclass(frozen=True)
class JobState:
    """State of a job at one look."""

    state: str
    """The engine's word for it."""
    reason: str = ""
    """Why it waits."""
    expected: float | None = None
    """When the engine expects it to start, in seconds since the epoch."""
    advice: str = ""
    """Why it will never start, or why it has ended, and what to change."""
    nodes: tuple[str, ...] = ()
    """The names of its nodes; empty until it runs."""
    addresses: tuple[str, ...] = ()
    """What other nodes call them; empty: their names."""
    over: bool = False
    """It has ended, or is about to."""


class Verdict(Enum):
    """Whether a finding is about something that passed, or how bad it is."""

    PASSED = auto()
    WARNING = auto()
    BLOCKING = auto()


class Subject(Enum):
    """Part of a launch that a finding is about."""

    REQUEST = auto()
    LIMITS = auto()
    PYTHON = auto()


@dataclass(frozen=True)
class EngineFinding:
    """Result of a check of an engine before a launch; `preflight` makes a `Finding` of it."""

    verdict: Verdict
    code: str
    brief: str
    text: str
    todo: str = ""
    about: Subject = Subject.REQUEST


class Engine(Protocol):
    """One engine, for one run. Every method has a deadline of its own."""

    name: str
    owns_job: bool
    """Its jobs are made for the run. Otherwise the job was there, and stays: `release` ends what
    the run has started in it."""

    async def connect(self) -> None:
        """Logs in where the engine's commands are; asks nothing of it yet.

        Raises:
            HostError: the login failed.
        """

    async def request(self) -> str:
        """Asks for the nodes; returns the job's id.

        Raises:
            NoAnswerError: the job may still come.
            EngineError: the request was refused.
        """

    async def find(self) -> str:
        """The id of this run's job, by its name; empty where there is none.

        Raises:
            EngineError: the engine did not answer.
        """

    async def poll(self, job: str) -> JobState:
        """Asks for the state of a job.

        Raises:
            EngineError: the engine did not answer.
        """

    def reach(self, job: str, node: str) -> tuple[str, ...]:
        """The command that reaches a node; the program to run there is appended."""

    async def release(self, job: str) -> None:
        """Gives the nodes back, whatever still runs there. A job that has ended is no error.

        Raises:
            EngineError: the engine did not answer, or refused.
        """

    def cancel_command(self, job: str) -> str:
        """The command by which a person does the same; of a job without an id, by its name."""

    async def words(self, job: str, nodes: Sequence[str]) -> dict[str, EngineWord]:
        """Asks what is left on each node of a job that was released.

        Raises:
            EngineError: the engine did not answer.
        """

    async def cautions(self) -> Sequence[EngineFinding]:
        """Warnings that a run must have, too, not only `examine`: they become notes.

        Raises:
            EngineError: the engine did not answer.
        """

    def examine(self) -> AsyncIterator[EngineFinding]:
        """Checks what can be known before nodes are requested; starts nothing that stays.

        Raises:
            EngineError: the engine would refuse the request.
        """
