"""Instructions of a run: what the launcher's shell does, at once, when
`machine.RunStateMachine.handle` says so."""

from __future__ import annotations

from ..frozen import frozen
from ..ids import TaskId
from ..plan.run_plan import TaskPlan
from .events import Timer
from .states import Outcome


@frozen
class Instruction:
    """Something that the launcher's shell shall do."""


@frozen
class CheckHosts(Instruction):
    """Ask all agents for facts and send `HostsChecked`. `ports`: nothing runs yet, so the ports
    must be free."""

    ports: bool = True


@frozen
class PickPorts(Instruction):
    """Nothing of these tasks runs: pick other ports for those that may have any, see that the
    others are free, and send `PortsPicked`."""

    tasks: tuple[TaskId, ...]


@frozen
class ConnectHosts(Instruction):
    """An engine has given the hosts: connect to them."""


@frozen
class AskLeases(Instruction):
    """Ask all agents to hold the lease that the run has now, and send `LeaseConfirmed` for each
    that does."""


@frozen
class ReleaseAllocation(Instruction):
    """Give the nodes back to the engine when all hosts are released; then send
    `AllocationReleased`."""


@frozen
class StageHost(Instruction):
    """Bring the files to a host."""

    host: str


@frozen
class StartTask(Instruction):
    """Start an attempt. `gated`: its process imports modules and waits for `ReleaseTask`."""

    task: TaskPlan
    attempt: int
    gated: bool = False


@frozen
class ReleaseTask(Instruction):
    """Let the program of an attempt start that waits at its gate."""

    task: TaskPlan
    attempt: int


STARTS = StartTask | ReleaseTask | StageHost | PickPorts
"""Instructions that begin something on a host, or lead to it: none comes when the end of the run is
decided."""


@frozen
class KillHost(Instruction):
    """TERM, grace (seconds), KILL to some tasks of a host or to all that is the run's. `final`: the
    run ends, and nothing is started there any more."""

    host: str
    tasks: tuple[TaskId, ...] | None
    grace: float
    final: bool = False


@frozen
class SetTimer(Instruction):
    """Send `TimerFired(timer)` after so many seconds; an equal timer is replaced."""

    timer: Timer
    seconds: float


@frozen
class WatchSilence(Instruction):
    """Send `OutputStalled` when the task writes nothing for so many seconds."""

    task: TaskId
    seconds: float


@frozen
class LookAtOthers(Instruction):
    """Take the stacks of all tasks that live, before they are ended for the failure of `task`."""

    task: TaskId


@frozen
class ReleaseHost(Instruction):
    """Collect what is left of the host's logs and results, then remove the run's folder there; not
    beside survivors, whose agent stays."""

    host: str


@frozen
class End(Instruction):
    """End the run: nothing more will happen in it."""

    outcome: Outcome
    exit_code: int
