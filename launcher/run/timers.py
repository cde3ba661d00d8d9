"""Timers of a run: the shell sends `TimerFired` with the same value when the time has come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from ..ids import TaskId
from . import fields


@dataclass(frozen=True)
class ReadyTimeout:
    """An attempt that is not ready by then has failed."""

    task: TaskId
    attempt: fields.Attempt
    kind: Literal["ready_timeout"] = "ready_timeout"


@dataclass(frozen=True)
class ReadyDelay:
    """An attempt is ready by then (`ready = { after = … }`)."""

    task: TaskId
    attempt: fields.Attempt
    kind: Literal["ready_delay"] = "ready_delay"


@dataclass(frozen=True)
class RestartDelay:
    """The pause after a failed attempt; the next one starts then."""

    task: TaskId
    attempt: fields.Attempt
    kind: Literal["restart_delay"] = "restart_delay"


@dataclass(frozen=True)
class RestartTimeout:
    """Hosts that can be reached have said by then that nothing of a run's attempt is left."""

    attempt: fields.Attempt
    kind: Literal["restart_timeout"] = "restart_timeout"


@dataclass(frozen=True)
class LeaseEnd:
    """The lease of a lost host has ended."""

    host: str
    kind: Literal["lease_end"] = "lease_end"


@dataclass(frozen=True)
class ShutdownTimeout:
    """Receipts that have not come by then are given up."""

    kind: Literal["shutdown_timeout"] = "shutdown_timeout"


Timer = Annotated[
    ReadyTimeout | ReadyDelay | RestartDelay | RestartTimeout | LeaseEnd | ShutdownTimeout,
    Field(discriminator="kind"),
]
