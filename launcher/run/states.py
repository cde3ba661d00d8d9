"""The words for what a task, a host and a run can be."""

from __future__ import annotations

from enum import StrEnum


class TaskState(StrEnum):
    """A task's state; `contract.md` names them and users see these words."""

    PENDING = "pending"
    STAGING = "staging"
    STARTING = "starting"
    READY = "ready"
    RUNNING = "running"
    BACKOFF = "backoff"
    LOST = "lost"
    EXITED = "exited"
    FAILED = "failed"
    STOPPED = "stopped"
    KILLED = "killed"

    @property
    def live(self) -> bool:
        """A process of the task may exist."""
        return self in _LIVE

    @property
    def ended(self) -> bool:
        """The task has ended and no restart is on its way."""
        return self in _ENDED


_LIVE = frozenset({TaskState.STARTING, TaskState.READY, TaskState.RUNNING, TaskState.LOST})
_ENDED = frozenset({TaskState.EXITED, TaskState.FAILED, TaskState.STOPPED, TaskState.KILLED})


class HostState(StrEnum):
    """What the launcher knows of a host's link."""

    CONNECTING = "connecting"
    UP = "up"
    LOST = "lost"
    REFUSED = "refused"
    CLOSED = "closed"


class RunState(StrEnum):
    """The phases of a run, in order; it may go to `killing` from any before it."""

    CONNECTING = "connecting"
    STAGING = "staging"
    STARTING = "starting"
    RUNNING = "running"
    FINISHING = "finishing"
    KILLING = "killing"
    ENDED = "ended"


class Outcome(StrEnum):
    """How a run ended."""

    SUCCESS = "success"
    FAILED = "failed"
    KILLED = "killed"
    TERMINATED = "terminated"
    DETACHED = "detached"
    PREFLIGHT = "preflight"
