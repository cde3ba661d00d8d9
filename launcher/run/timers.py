"""Timers of a run: the shell sends `TimerFired` with the same value when the time has come."""

from __future__ import annotations

from ..frozen import frozen
from ..ids import TaskId


@frozen
class ReadyTimeout:
    """An attempt that is not ready by then has failed."""

    task: TaskId
    attempt: int


@frozen
class ReadyDelay:
    """An attempt is ready by then (`ready = { after = … }`)."""

    task: TaskId
    attempt: int


@frozen
class RestartDelay:
    """The pause after a failed attempt; the next one starts then."""

    task: TaskId
    attempt: int


@frozen
class RestartTimeout:
    """Hosts that can be reached have said by then that nothing of a run's attempt is left."""

    attempt: int


@frozen
class LeaseEnd:
    """The lease of a lost host has ended."""

    host: str


@frozen
class ShutdownTimeout:
    """Receipts that have not come by then are given up."""


Timer = ReadyTimeout | ReadyDelay | RestartDelay | RestartTimeout | LeaseEnd | ShutdownTimeout
