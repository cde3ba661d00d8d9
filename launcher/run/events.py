"""What happens to a run, and what it answers.

Events go in, instructions come out (`run.Run.handle`); both are plain values. Every event
carries `time` in seconds since the epoch on the launching machine, so the run needs no clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..ids import TaskId
from ..plan.plan import Plan, TaskPlan
from .snapshot import HostReceipt, Receipt
from .states import Outcome


@dataclass(frozen=True)
class Event:
    """Something that happened at `time`."""

    time: float


@dataclass(frozen=True)
class Begin(Event):
    """The run is to be launched."""


@dataclass(frozen=True)
class HostUp(Event):
    """A host's agent greeted us; `tasks` is what it holds (empty for a fresh one)."""

    host: str
    tasks: tuple[Mapping[str, Any], ...] = ()
    was: str = ""
    """How an earlier agent of this run ended by itself, if one did."""


@dataclass(frozen=True)
class HostRefused(Event):
    """A host cannot be used: no login, no interpreter, a port in use."""

    host: str
    reason: str


@dataclass(frozen=True)
class HostLost(Event):
    """The link is cut; the host's agent acts by its lease from `last_heard` on."""

    host: str
    reason: str
    lease_until: float


@dataclass(frozen=True)
class Superseded(Event):
    """Another launcher has taken a host over."""

    host: str
    by: str


@dataclass(frozen=True)
class LookedElsewhere(Event):
    """What became of the run under the launcher that took it over; `outcome` is None while it
    goes on there."""

    by: str
    outcome: Outcome | None = None
    exit_code: int = 0
    receipt: Receipt | None = None


@dataclass(frozen=True)
class LauncherFailed(Event):
    """Something in the launcher itself is broken."""

    reason: str


@dataclass(frozen=True)
class Checked(Event):
    """All hosts passed the blocking checks; `plan` is the final one, with its ports."""

    plan: Plan


@dataclass(frozen=True)
class StageProgress(Event):
    """So many bytes and files, of so many that it lacks, have gone to a host."""

    host: str
    done: int
    total: int
    files: int = 0
    total_files: int = 0


@dataclass(frozen=True)
class CollectProgress(Event):
    """So many bytes of a host's results, of so many, have come back; the run has ended."""

    host: str
    done: int
    total: int


@dataclass(frozen=True)
class Staged(Event):
    """A host has all files."""

    host: str


@dataclass(frozen=True)
class TaskStarted(Event):
    """A task's process runs, or could not be started (`error`)."""

    task: TaskId
    attempt: int
    pid: int
    log_start: int = 0
    """The byte of the log where this attempt begins."""
    error: str = ""
    held: str = ""
    """Who holds the task's port, if somebody does."""


@dataclass(frozen=True)
class TaskReady(Event):
    """The readiness condition holds."""

    task: TaskId
    attempt: int


@dataclass(frozen=True)
class TaskExited(Event):
    """A task's process has ended and its output up to then is on disk."""

    task: TaskId
    attempt: int
    status: int | None
    signal: str | None
    held: str = ""
    tail: tuple[str, ...] = ()


@dataclass(frozen=True)
class MetricSeen(Event):
    """A metric line of a task."""

    task: TaskId
    values: Mapping[str, float]
    rate: float | None


@dataclass(frozen=True)
class Silent(Event):
    """A watched task has written nothing for so many seconds."""

    task: TaskId
    seconds: float


@dataclass(frozen=True)
class Timer(Event):
    """A timer that the run asked for."""

    name: str


@dataclass(frozen=True)
class Receipted(Event):
    """A host's agent looked after a kill."""

    receipt: HostReceipt
    tasks: tuple[TaskId, ...] | None
    """None: everything of the run."""


@dataclass(frozen=True)
class KillAll(Event):
    """A person (or TERM) wants everything ended; the second time at once."""

    by_person: bool = True


@dataclass(frozen=True)
class Restart(Event):
    """A person wants a task started again."""

    task: TaskId
    hard: bool = False


@dataclass(frozen=True)
class SignalTask(Event):
    """A person sends TERM or KILL to a task."""

    task: TaskId
    name: str


@dataclass(frozen=True)
class Detach(Event):
    """Another launcher, without a screen, is to go on."""


@dataclass(frozen=True)
class Noted(Event):
    """Something to say once, such as a full disk."""

    text: str


@dataclass(frozen=True)
class ResultsMissing(Event):
    """A host's results were not brought, or not all of them; `paths` stay there."""

    host: str
    reason: str
    paths: tuple[str, ...]


@dataclass(frozen=True)
class Instruction:
    """Something that the launcher's shell shall do."""


@dataclass(frozen=True)
class CheckHosts(Instruction):
    """All agents are up: look at ports (not when attaching: they are ours), learn facts, make
    the final plan."""

    ports: bool = True


@dataclass(frozen=True)
class StageHost(Instruction):
    """Bring the files to a host."""

    host: str


@dataclass(frozen=True)
class StartTask(Instruction):
    """Start an attempt."""

    task: TaskPlan
    attempt: int


@dataclass(frozen=True)
class KillHost(Instruction):
    """TERM, grace (seconds), KILL to some tasks of a host or to all that is the run's."""

    host: str
    tasks: tuple[TaskId, ...] | None
    grace: float


@dataclass(frozen=True)
class SetTimer(Instruction):
    """Send `Timer(name)` after so many seconds; a second one of a name replaces the first."""

    name: str
    seconds: float


@dataclass(frozen=True)
class WatchSilence(Instruction):
    """Send `Silent` when the task writes nothing for so many seconds."""

    task: TaskId
    seconds: float


@dataclass(frozen=True)
class LeaveHost(Instruction):
    """The run is over there: collect what is left of its logs, then remove its folder."""

    host: str


@dataclass(frozen=True)
class LookElsewhere(Instruction):
    """Another launcher has all that is ours: send `LookedElsewhere`."""

    by: str


@dataclass(frozen=True)
class End(Instruction):
    """The run is over."""

    outcome: Outcome
    exit_code: int
