"""Events of a run: everything that changes its state (`machine.RunStateMachine.handle`).

They are plain values. Every event carries `time` in seconds since the epoch on the launching
machine, so the run needs no clock. For a timer the shell sends `TimerFired` with the same value
when the time has come.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..frozen import frozen
from ..ids import TaskId
from ..plan.facts import HostFacts
from .background import LeftProcesses
from .cause import Verdict
from .fields import Attempt, Count, Seconds, Status, Time
from .snapshot import AllocatedNode, HangView, HostReceipt, KeptResults
from .states import Halt, Purpose, StoppedBy


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


@frozen
class LookTimeout:
    """A run whose failed task is a victim is ended by then, whether or not the others have been
    looked at."""

    task: TaskId


Timer = (
    ReadyTimeout
    | ReadyDelay
    | RestartDelay
    | RestartTimeout
    | LeaseEnd
    | ShutdownTimeout
    | LookTimeout
)


@frozen
class Event:
    """Something that happened at `time`."""

    time: Time


@frozen
class Begin(Event):
    """The run is launched."""


@frozen
class Attached(Event):
    """Another launcher supervises the run from now on. Unless its record is `complete`, up to its
    end, every host may hold something of it."""

    complete: bool = True


@frozen
class Queued(Event):
    """The request for nodes stands so in the engine's queue."""

    job: str
    state: str = ""
    reason: str = ""
    expected: Time | None = None
    advice: str = ""
    """Why it will never start, and what to change."""


@frozen
class Allocated(Event):
    """The engine has given nodes: the run's hosts, by their names in the cluster file."""

    nodes: Mapping[str, AllocatedNode]


@frozen
class AllocationEnded(Event):
    """The engine has refused the request, or the job has ended although the run has not."""

    reason: str
    state: str = ""


@frozen
class EngineWord:
    """Statement of an engine about a node after the job: whether nothing of it is left there."""

    gone: bool
    text: str
    final: bool = True
    """The watchdog will not say more when it is asked again."""


@frozen
class AllocationReleased(Event):
    """The engine has been told that the nodes are not needed any more."""

    text: str
    words: Mapping[str, EngineWord]
    """What it says of the hosts."""
    state: str = ""
    reason: str = ""
    """How the job has ended, in the end, and the same as a sentence."""


@frozen
class HeldTask:
    """An attempt of a task that an agent knows."""

    task: TaskId
    attempt: Attempt
    gated: bool = False
    """Its program has not been started: it waits at its gate."""


@frozen
class HostUp(Event):
    """A host's agent greeted us; `tasks` is what it holds (empty for a fresh one)."""

    host: str
    tasks: tuple[HeldTask, ...] = ()
    previous_agent_exit: str = ""
    """End of an earlier agent of this run that ended by itself."""


@frozen
class HostRefused(Event):
    """A host cannot be used: no login, no interpreter, a port in use. `code` is the kind of that as
    `tfmux check` has it; it may be empty."""

    host: str
    reason: str
    code: str = ""


@frozen
class HostLost(Event):
    """The link is cut; the host's agent acts by its lease until `lease_until`."""

    host: str
    reason: str
    lease_until: Time
    agent_gone: bool = False
    """No agent is there any more, and none will come: an engine starts it only once."""


@frozen
class Background(Event):
    """The run goes on without a screen from now on, or (not `on`) has one again."""

    on: bool


@frozen
class LeaseConfirmed(Event):
    """A host's agent holds the lease that it was asked for."""

    host: str
    lease: Seconds


@frozen
class AgentSilent(Event):
    """A host can be reached, and its agent does not answer."""

    host: str


@frozen
class Superseded(Event):
    """A launcher elsewhere has taken a host over, for what it says."""

    host: str
    by: str
    purpose: Purpose


@frozen
class LauncherFailed(Event):
    """Launchers of the run have died, again and again: this one does nothing but end it."""

    reason: str


@frozen
class HostsChecked(Event):
    """All hosts passed the blocking checks; the plan is made again with these facts."""

    facts: Mapping[str, HostFacts]


@frozen
class PortsPicked(Event):
    """The ports of all tasks that start again are free; these are new."""

    ports: Mapping[TaskId, int]


@frozen
class Staged(Event):
    """A host has all files."""

    host: str


@frozen
class TaskStarted(Event):
    """A task's process runs, or could not be started (`error`)."""

    task: TaskId
    attempt: Attempt
    pid: Count
    log_start: Count = 0
    """The byte of the log where this attempt begins."""
    error: str = ""
    port_holder: str = ""
    """Holder of the task's port, if there is one."""
    refused: bool = False
    """Its host has been told that the run ends, by whomever."""
    agent_ends: str = ""
    """Why its host's agent was ending everything by itself, and did not start it."""


@frozen
class TaskReady(Event):
    """The readiness condition of a task holds."""

    task: TaskId
    attempt: Attempt


@frozen
class ListensOnLoopback(Event):
    """A task listens on its port, on an address that only its own host reaches."""

    task: TaskId
    attempt: Attempt
    address: str


@frozen
class TaskExited(Event):
    """A task's process has ended and its output up to then is on disk."""

    task: TaskId
    attempt: Attempt
    status: Status | None
    signal: str | None
    port_holder: str = ""
    tail: tuple[str, ...] = ()
    stopped_by: StoppedBy = StoppedBy.NOBODY
    stopped_why: str = ""
    left: LeftProcesses | None = None
    """Living processes that it left when it ended with status 0."""
    ended: Time | None = None
    """When its process ended, as its host has seen it; its last output may have come later."""
    out_of_memory: bool = False
    """The kernel has killed it for lack of memory."""
    misses_peer: bool = False
    """Its last lines say that another task is at fault."""
    start_problem: str = ""
    """The program that its shell could not start, and why; empty where that is not known."""
    full: tuple[str, ...] = ()
    """Directories of its host whose disks were full when it had failed, and how."""


@frozen
class MetricsSeen(Event):
    """The log of a task that is ready has metric lines; they may name the total of steps."""

    task: TaskId
    total_steps: Count | None = None


@frozen
class TasksStalled(Event):
    """The next metric lines of tasks are long overdue."""

    since: Mapping[TaskId, Time]
    """When the last ones came."""


@frozen
class TaskGoesOn(Event):
    """A metric line of a stalled task has come."""

    task: TaskId


@frozen
class TaskHalted(Event):
    """A task's processes are stopped, or wait in the kernel; or go on again."""

    task: TaskId
    halt: Halt
    since: Time | None


@frozen
class Forwarded(Event):
    """A port of this machine leads to a task; `url` is empty where it cannot."""

    task: TaskId
    url: str


@frozen
class ClockSet(Event):
    """The clock of this machine has been set, forward by so many seconds."""

    by: float


@frozen
class OutputStalled(Event):
    """A watched task has written nothing for so many seconds, or only that it waits for another.
    `serves`: its stack says that it has no work of its own left, and answers others."""

    task: TaskId
    seconds: Seconds
    awaits: TaskId | None = None
    serves: bool = False


@frozen
class HangsInExit(Event):
    """A task has printed the traceback of an exception, its interpreter is ending, and it has been
    silent for so many seconds."""

    task: TaskId
    attempt: Attempt
    exception: str
    seconds: Seconds


@frozen
class TimerFired(Event):
    """The time of a timer that the run asked for has come."""

    timer: Timer


@frozen
class ReceiptReceived(Event):
    """A host's agent looked after a kill."""

    receipt: HostReceipt
    tasks: tuple[TaskId, ...] | None
    """None: everything of the run."""
    asked: bool = False
    """A kill has asked for it; else the agent has acted by itself."""


@frozen
class KillAll(Event):
    """A person (or TERM) wants everything ended: with the grace, however often this is said, unless
    it is `force`."""

    by_person: bool = True
    force: bool = False
    """KILL now, and nothing else is waited for."""


@frozen
class Restart(Event):
    """A person wants a task started again."""

    task: TaskId
    hard: bool = False


@frozen
class SignalTask(Event):
    """A person sends TERM or KILL to a task."""

    task: TaskId
    name: str


@frozen
class NoteAdded(Event):
    """A message for people, such as that a disk is full."""

    text: str


@frozen
class ResultsMissing(Event):
    """A host's results were not brought, or not all of them; `paths` stay there."""

    host: str
    reason: str
    paths: tuple[str, ...]


@frozen
class LookedAt(Event):
    """The stacks of the tasks that a failed one had waited for have been taken, or could not be."""

    task: TaskId


@frozen
class Judged(Event):
    """The cause of the run's failure has been found."""

    verdict: Verdict


@frozen
class HangJudged(Event):
    """The cause of a hang has been found, or nothing points to one, or the run goes on."""

    verdict: Verdict | None
    hang: HangView | None = None
    """How the run hangs, where a look has just found that."""


@frozen
class ResultsKept(Event):
    """What a run's tasks have left in the workdir of a host was looked for."""

    kept: KeptResults
