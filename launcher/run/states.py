"""Values of which the record of a run is made: the states of tasks, hosts and runs, with the
transitions that a task may make, and text.

Screens import it for their first frame: what checks such values stands in `fields`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from ..agent import wire
from ..printable import printable

if TYPE_CHECKING:
    from ..ids import TaskId


class TaskState(StrEnum):
    """A task's state; users see these words."""

    PENDING = "pending"
    STAGING = "staging"
    WARMING = "warming"
    """Its process imports modules and waits; its program starts when its stage comes."""
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
    def up(self) -> bool:
        """The task's program runs, and is ready for the tasks of the next stage."""
        return self in _UP

    @property
    def ended(self) -> bool:
        """The task has ended and no restart is on its way."""
        return self in _ENDED


_LIVE = frozenset(
    {
        TaskState.WARMING,
        TaskState.STARTING,
        TaskState.READY,
        TaskState.RUNNING,
        TaskState.LOST,
    }
)
_UP = frozenset({TaskState.READY, TaskState.RUNNING})
_ENDED = frozenset({TaskState.EXITED, TaskState.FAILED, TaskState.STOPPED, TaskState.KILLED})


class Halt(StrEnum):
    """Why a task's processes get no further, as the kernel says."""

    NONE = ""
    STOPPED = "stopped"
    """A signal has stopped one of them: SIGSTOP, or Ctrl-Z."""
    WAITING = "waits in the kernel"
    """One waits for a disk or a device, and takes no signal until that answers."""
    INPUT = "waits for input"
    """One reads from the task's terminal, and the others do nothing."""


class HostState(StrEnum):
    """State of a host's link, as the launcher knows it."""

    CONNECTING = "connecting"
    UP = "up"
    LOST = "lost"
    REFUSED = "refused"
    CLOSED = "closed"


class RunPhase(StrEnum):
    """The phases of a run, in order; it may go to `killing` from any before it, and from
    `restarting` back to `starting`."""

    QUEUED = "queued"
    CONNECTING = "connecting"
    STAGING = "staging"
    STARTING = "starting"
    RUNNING = "running"
    FINISHING = "finishing"
    RESTARTING = "restarting"
    """All cluster tasks are being ended, and start again when nothing of them is left."""
    KILLING = "killing"
    ENDED = "ended"


CONNECT_SECONDS = 60.0
"""Further seconds of a kill for a host that is still being connected to: somebody may be typing a
password for it. Then the kill ends without it, or a link that never connects would hold it for
ever."""
AT_WORK = (RunPhase.STARTING, RunPhase.RUNNING, RunPhase.FINISHING)


class Outcome(StrEnum):
    """Way in which a run has ended."""

    SUCCESS = "success"
    FAILED = "failed"
    KILLED = "killed"
    TERMINATED = "terminated"
    TAKEN_OVER = "taken-over"
    """Another launcher supervises it: how it ends is known there."""
    DETACHED = "detached"
    """Its client has left it; its launcher goes on."""
    PREFLIGHT = "preflight"


class Purpose(StrEnum):
    """What a launcher takes a run over for, by its own word."""

    UNKNOWN = ""
    ATTACH = wire.FOR_ATTACH
    KILL = wire.FOR_KILL


class Cause(StrEnum):
    """Reason for which a run is being ended."""

    RULE = "rule"
    FAILURE = "failure"
    PREFLIGHT = "preflight"
    PERSON = "person"
    TERM = "term"
    LAUNCHER = "launcher"
    """Launchers died, again and again."""
    OUTSIDE = "outside"
    """An allocation has ended, or a host's agent has ended everything there. The run is a success
    all the same where each of its tasks had ended well by itself."""


class StoppedBy(StrEnum):
    """Who had asked a task to end before it did, as its host's agent knows it: an exit in answer to
    that is not the task's own, whatever its status is."""

    NOBODY = ""
    LAUNCHER = wire.BY_LAUNCHER
    """A launcher's kill."""
    AGENT = wire.BY_AGENT
    """The agent itself: its lease was over, or it was told to stop."""
    SIGNAL = wire.BY_SIGNAL
    """A signal to the job step, which the agent has passed on."""


class Hang(StrEnum):
    """Reason for which a run seems to hang."""

    STALLED = "stalled"
    """A task's next metric line is overdue."""
    NOT_READY = "not-ready"
    """A task is about to be called not ready in time."""
    AT_END = "at-end"
    """A task writes nothing although others have ended well."""
    IN_EXIT = "in-exit"
    """A task has raised an exception, and its interpreter does not come to its end."""
    SILENT = "silent"
    """No task has written anything for long, and all others wait for one that does nothing, or
    whose host is lost."""


class Intent(StrEnum):
    """Meaning of the next exit of a task."""

    NONE = ""
    RESTART = "restart"
    """A person wants another attempt."""
    KILL = "kill"
    """A person wants the task ended."""
    FAIL = "fail"
    """The task hangs at its end: it is ended and counts as failed."""
    RAISED = "raised"
    """The task has raised and hangs in its exit: it is ended and counts as if it had left."""
    STOP = "stop"
    """The task only served a chief that is done: the rule ends it."""


_BEGINS = frozenset({TaskState.WARMING, TaskState.STARTING})
_ENDS = _ENDED | _BEGINS | {TaskState.BACKOFF}
_AGAIN = _BEGINS | {TaskState.PENDING}
_TRANSITIONS: dict[TaskState, frozenset[TaskState]] = {
    TaskState.PENDING: _BEGINS | {TaskState.STAGING},
    TaskState.STAGING: _BEGINS | {TaskState.PENDING},
    TaskState.WARMING: _ENDS | {TaskState.LOST},
    TaskState.STARTING: _ENDS | {TaskState.READY, TaskState.LOST},
    TaskState.READY: _ENDS | {TaskState.RUNNING, TaskState.LOST},
    TaskState.RUNNING: _ENDS | {TaskState.LOST},
    TaskState.LOST: _ENDS | {TaskState.READY, TaskState.RUNNING},
    TaskState.BACKOFF: _AGAIN | {TaskState.FAILED, TaskState.STOPPED, TaskState.KILLED},
    TaskState.EXITED: _AGAIN,
    TaskState.FAILED: _AGAIN,
    TaskState.STOPPED: _AGAIN,
    TaskState.KILLED: _AGAIN,
}
"""Every state may be followed by `warming` or `starting`: that is the next attempt. One that has
ended is `pending` where its stage has to come again."""


class InvalidTransition(Exception):
    """A task cannot go from one state to the other."""

    def __init__(self, task: TaskId, before: TaskState, after: TaskState) -> None:
        super().__init__(f"{task} cannot go from {before} to {after}")


def check_transition(task: TaskId, before: TaskState, after: TaskState) -> None:
    """Checks a change of a task's state; staying as it is, is none.

    Raises:
        InvalidTransition: the table does not allow it.
    """
    if after is not before and after not in _TRANSITIONS[before]:
        raise InvalidTransition(task, before, after)


def shown(text: str, longest: int) -> str:
    """Text of a record as a person sees it: printable, and not too long."""
    fits = len(text) <= longest and text.isprintable()  # as almost all that comes
    return text if fits else printable(text, longest)
