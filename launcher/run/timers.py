"""Timers of a run: the shell sends `TimerFired` with the same value when the time has come."""

from __future__ import annotations

from dataclasses import dataclass

from ..ids import TaskId


@dataclass(frozen=True)
class ReadyTimeout:
    """An attempt that is not ready by then has failed."""

    task: TaskId
    attempt: int


@dataclass(frozen=True)
class ReadyDelay:
    """An attempt is ready by then (`ready = { after = … }`)."""

    task: TaskId
    attempt: int


@dataclass(frozen=True)
class RestartDelay:
    """The pause after a failed attempt; the next one starts then."""

    task: TaskId
    attempt: int


@dataclass(frozen=True)
class RestartTimeout:
    """Hosts that can be reached have said by then that nothing of a run's attempt is left."""

    attempt: int


@dataclass(frozen=True)
class LeaseEnd:
    """The lease of a lost host has ended."""

    host: str


@dataclass(frozen=True)
class ShutdownTimeout:
    """Receipts that have not come by then are given up."""


Timer = ReadyTimeout | ReadyDelay | RestartDelay | RestartTimeout | LeaseEnd | ShutdownTimeout
