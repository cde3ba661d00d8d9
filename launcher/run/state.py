"""Mutable state of a run. Only this package writes it; everyone else gets a `Snapshot`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from ..cluster.model import ClusterModel
from ..ids import TaskId
from ..plan.plan import HostFacts, Plan, Resume, Role, make_plan
from ..printable import printable
from .events import AllocatedNode
from .snapshot import AllocationView, Failure, HostReceipt, HostView, Receipt, TaskView
from .states import Cause, HostState, Intent, Outcome, RunPhase, TaskState, check_transition

_MOST_NAMES = 40
"""Hosts or tasks that are named as waited for."""
_MOST_NOTES = 100
_MOST_FAILURES = 100
"""Tasks that are named below the first failure: they are sent and stored with each state."""


@dataclass
class TaskRecord:
    """One task: what others see of it, and what is on its way."""

    view: TaskView
    intent: Intent = Intent.NONE
    kill_grace: float | None = None
    """Grace of a kill of this task alone whose receipt has not come: the next attempt waits for
    it, and a host that was cut off is asked again."""
    restart_due: bool = False
    """The next attempt waits only for that receipt."""
    silence_watched: bool = False
    decides: bool = False
    """Its end is among those that decide the outcome."""
    state_before_loss: TaskState | None = None

    @property
    def warming(self) -> bool:
        """Its program has not been started, on a host that may be lost."""
        return TaskState.WARMING in (self.view.state, self.state_before_loss)


@dataclass
class HostRecord:
    """State of one host in the run."""

    view: HostView
    contacted: bool = False
    """It may hold something of the run: its agent has greeted a launcher."""
    greeted: bool = False
    """Its agent has greeted this launcher."""
    staged: bool = False
    previous_agent_exit: str = ""
    agent_gone: bool = False
    """It is lost for good."""
    receipt: HostReceipt | None = None
    last_word: HostReceipt | None = None
    """What its agent said when it had ended everything by itself."""


@dataclass
class ShutdownRecord:
    """Progress of the run's end."""

    cause: Cause | None = None
    deadline: float | None = None
    """End of the grace."""
    asked: bool = False
    """A person has asked for it."""
    forced: bool = False
    """Nothing is waited for."""
    waited_longer: float = 0.0
    """Seconds beyond the kill's own time, for hosts that are still being connected to."""
    launcher_error: str = ""
    receipt: Receipt | None = None
    outcome: Outcome | None = None
    exit_code: int | None = None
    ended: float | None = None
    results_missing: tuple[str, ...] = ()


@dataclass
class RunData:
    """Hosts and tasks of one run; `now` is the time of the event that is being handled."""

    cluster: ClusterModel = field(repr=False)
    run_id: str
    started: float
    resume: Resume | None
    now: float = 0.0
    phase: RunPhase = RunPhase.CONNECTING
    facts: Mapping[str, HostFacts] = field(default_factory=dict)
    attaching: bool = False
    """This launcher has taken the run up; another one began it."""
    failure: Failure | None = None
    failed: set[TaskId] = field(default_factory=set)
    """Tasks that have failed, the first one among them."""
    notes: tuple[str, ...] = ()
    stage: int = -1
    stage_since: float = 0.0
    total_steps: int | None = None
    shutdown: ShutdownRecord = field(default_factory=ShutdownRecord)
    allocation: AllocationView | None = None
    nodes: Mapping[str, AllocatedNode] = field(default_factory=dict)
    """What an engine has given, by the names of the hosts."""
    plan: Plan = field(init=False)
    tasks: dict[TaskId, TaskRecord] = field(init=False)
    hosts: dict[str, HostRecord] = field(init=False)
    changed_tasks: dict[TaskId, None] = field(init=False, compare=False, repr=False)
    changed_hosts: dict[str, None] = field(init=False, compare=False, repr=False)
    """Those whose views nobody has taken since they have changed, in that order."""
    left: int = field(default=0, init=False, compare=False, repr=False)
    """Number of the tasks that decide the outcome and have not ended."""
    exited: Counter[str] = field(default_factory=Counter, init=False, compare=False, repr=False)
    """Number of those that are in the state `exited`, by their jobs."""
    ended: Counter[str] = field(default_factory=Counter, init=False, compare=False, repr=False)
    """Number of all tasks that have ended, by their jobs."""
    stopping: Counter[str] = field(default_factory=Counter, init=False, compare=False, repr=False)
    """Number of those that the rule ends or has ended, because they only served."""
    unwatched: int = field(default=0, init=False, compare=False, repr=False)
    """How many times tasks have begun whose silence is not watched."""
    _on_host: dict[str, list[TaskRecord]] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.cluster.slurm is not None:
            self.allocation = AllocationView(self.cluster.slurm.label)
            self.phase = RunPhase.QUEUED
        self.plan = make_plan(self.cluster, self.run_id, self.facts, self.resume)
        self.total_steps = self.plan.total_steps
        plan = self.plan
        self.tasks = {task.id: TaskRecord(task_view(task.id, plan)) for task in plan.tasks}
        self.hosts = {
            host.name: HostRecord(HostView(host.name, host.destination, HostState.CONNECTING))
            for host in self.plan.hosts
        }
        self.changed_tasks, self.changed_hosts = (
            dict.fromkeys(self.tasks),
            dict.fromkeys(self.hosts),
        )
        for view in self.outcome_tasks():
            self.tasks[view.id].decides = True
            self.left += 1
        self._on_host = {}
        for record in self.tasks.values():
            self._on_host.setdefault(record.view.host, []).append(record)

    def apply_nodes(self) -> None:
        """Makes the plan again with the nodes that an engine has given."""
        self.cluster = self.cluster.with_hosts(
            {name: self.cluster.node(node.name, node.via) for name, node in self.nodes.items()}
        )
        self.replan(self.facts)
        for host in self.nodes:
            if host in self.hosts:
                self.update_host(host, destination=self.plan.host(host).destination)

    def replan(self, facts: Mapping[str, HostFacts]) -> None:
        """Makes the plan again; hosts of which nothing new is known keep their facts."""
        self.facts = {**self.facts, **facts}
        self.plan = make_plan(self.cluster, self.run_id, self.facts, self.resume)
        for task in self.plan.tasks:
            if self.view(task.id).address != task.address:
                self.update_task(task.id, address=task.address)

    def view(self, task: TaskId) -> TaskView:
        """A task as it stands."""
        return self.tasks[task].view

    def update_task(self, task: TaskId, **changes: Any) -> TaskView:
        """Changes a task; returns how it stands then.

        Raises:
            InvalidTransition: its state cannot change so.
        """
        record = self.tasks[task]
        if "state" in changes:
            check_transition(task, record.view.state, changes["state"])
            self._count(record, changes["state"])
        record.view = replace(record.view, **changes)
        self.changed_tasks[task] = None
        return record.view

    def _count(self, record: TaskRecord, after: TaskState) -> None:
        job, before = record.view.id.job, record.view.state
        self.ended[job] += after.ended - before.ended
        if record.decides:
            self.left += before.ended - after.ended
            self.exited[job] += (after is TaskState.EXITED) - (before is TaskState.EXITED)

    def intend(self, record: TaskRecord, intent: Intent) -> None:
        """Changes the meaning of a task's next exit."""
        stopping = (intent is Intent.STOP) - (record.intent is Intent.STOP)
        self.stopping[record.view.id.job] += stopping
        record.intent = intent

    def update_host(self, host: str, **changes: Any) -> None:
        record = self.hosts[host]
        record.view = replace(record.view, **changes)
        self.changed_hosts[host] = None

    def lose_host(self, host: str, reason: str, lease_until: float | None = None) -> None:
        """Marks a host and its live tasks as lost."""
        self.update_host(host, state=HostState.LOST, reason=reason, lease_until=lease_until)
        for record in self.on_host(host):
            self.lose_where_host_is_lost(record.view.id)

    def lose_where_host_is_lost(self, task: TaskId) -> bool:
        """Marks a live task as lost if its host is; True if the host is."""
        record = self.tasks[task]
        lost = self.hosts[record.view.host].view.state is HostState.LOST
        if lost and record.view.state.live and record.view.state is not TaskState.LOST:
            record.state_before_loss = record.view.state
            self.update_task(task, state=TaskState.LOST)
        return lost

    def is_early(self, task: TaskId) -> bool:
        """The task's stage has not come."""
        return self.view(task).stage > self.stage

    def find_tasks(self, host: str) -> None:
        """Gives a host's lost tasks the state that they had before."""
        for record in self.on_host(host):
            if record.state_before_loss is not None:
                if record.view.state is TaskState.LOST:
                    self.update_task(record.view.id, state=record.state_before_loss)
                record.state_before_loss = None

    def note(self, text: str) -> None:
        """Adds a message for people; the latest hundred are kept."""
        self.notes = (*self.notes[1 - _MOST_NOTES :], printable(text))

    def fail(self, task: TaskId, how: str, tail: tuple[str, ...]) -> None:
        """Records a failure: the first is the headline, later ones are named or counted under
        it."""
        failure = self.failure
        if failure is None:
            self.failure = Failure(task, self.view(task).host, how, self.now, tail=tail)
        elif task in self.failed:
            return
        elif len(failure.others) < _MOST_FAILURES:
            self.failure = replace(failure, others=(*failure.others, task))
        else:
            self.failure = replace(failure, unlisted=failure.unlisted + 1)
        self.failed.add(task)

    def is_current(self, task: TaskId, attempt: int) -> bool:
        """False for an earlier attempt: what is said of it comes too late."""
        return self.view(task).attempt == attempt

    def awaits_ready(self, task: TaskId, attempt: int) -> bool:
        """This attempt is under way and not ready."""
        return self.is_current(task, attempt) and self.view(task).state is TaskState.STARTING

    def on_host(self, host: str) -> list[TaskRecord]:
        """A host's tasks, in start order."""
        return self._on_host.get(host, [])

    @property
    def contacted_hosts(self) -> list[str]:
        """Hosts that may hold something of the run."""
        return [host for host, record in self.hosts.items() if record.contacted]

    @property
    def awaits_nodes(self) -> bool:
        """An engine has not said which nodes the hosts are, and they are needed: to start the run,
        or to end what a launcher that is not known here may have started."""
        if self.allocation is None or self.nodes:
            return False
        killing = self.phase is RunPhase.KILLING and not self.allocation.releasing
        return self.phase is RunPhase.QUEUED or (killing and bool(self.contacted_hosts))

    @property
    def begun(self) -> bool:
        """An attempt of a task has been asked for."""
        return any(record.view.attempt for record in self.tasks.values())

    @property
    def begun_before(self) -> bool:
        """An earlier launcher has asked for attempts: the run goes on, and its files are there."""
        return self.attaching and self.begun

    def outcome_tasks(self) -> list[TaskView]:
        """The tasks whose end decides: those of the cluster but ps; where there are none, all
        but ps; where there is only ps, it."""
        return (
            self._with(Role.CHIEF, Role.WORKER)
            or self._with(Role.EVALUATOR, Role.HELPER)
            or [record.view for record in self.tasks.values()]
        )

    def _with(self, *roles: Role) -> list[TaskView]:
        return [self.view(task.id) for task in self.plan.tasks if task.role in roles]

    def waiting(self) -> str:
        """Hosts or tasks that the run waits for now, in words."""
        if self.phase is RunPhase.CONNECTING:
            hosts = (record.view for record in self.hosts.values())
            return named(view.name for view in hosts if view.state is HostState.CONNECTING)
        if self.phase is RunPhase.STAGING:
            return named(host for host, record in self.hosts.items() if not record.staged)
        if self.phase is RunPhase.STARTING and 0 <= self.stage < len(self.plan.stages):
            tasks = map(self.view, self.plan.stages[self.stage])
            return named(f"{view.id} on {view.address}" for view in tasks if blocks_stage(view))
        if self.phase is RunPhase.KILLING and self.allocation and self.allocation.releasing:
            return f"{self.allocation.title} to end"
        return ""

    @property
    def unstaged_hosts(self) -> list[str]:
        """Hosts that do not have all files yet."""
        return [host for host, record in self.hosts.items() if not record.staged]


def named(names: Iterable[str]) -> str:
    """A list of names; of thousands, more than fit on a screen are not even looked for."""
    first = list(islice(names, _MOST_NAMES + 1))
    rest = ["…"] if len(first) > _MOST_NAMES else []
    return ", ".join([*first[:_MOST_NAMES], *rest])


def blocks_stage(view: TaskView) -> bool:
    """The next stage waits for this task; for a lost one only where it was never started."""
    if view.state is TaskState.LOST:
        return view.pid is None
    return not view.state.ended and view.state not in (TaskState.READY, TaskState.RUNNING)


def task_view(task: TaskId, plan: Plan) -> TaskView:
    """A task before anything has happened to it."""
    planned = plan.task(task)
    return TaskView(
        task,
        planned.host,
        planned.address,
        TaskState.PENDING,
        in_cluster=planned.in_cluster,
        is_chief=task == plan.chief,
        stage=plan.stage_of(task),
    )
