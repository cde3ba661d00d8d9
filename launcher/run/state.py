"""Mutable state of a run: its views, and what only its present launcher needs to know."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any

from ..cluster.choices import OnDisconnect, OnFailure, Success
from ..cluster.file_model import ClusterModel
from ..cluster.readiness import PortListens, figures_show
from ..cluster.roles import Role
from ..ids import TaskId
from ..plan.facts import HostFacts, Resume
from ..plan.planner import make_plan
from ..plan.run_plan import Plan
from .events import ReadyDelay, ReadyTimeout, Timer
from .snapshot import (
    AllocatedNode,
    AllocationView,
    FactsView,
    Failure,
    HostReceipt,
    HostView,
    RunView,
    Survivor,
    TaskView,
)
from .states import HostState, Intent, RunPhase, TaskState
from .views import Views

_MOST_NAMES = 40
"""Hosts or tasks that are named as waited for."""
_MOST_FAILURES = 100
"""Tasks that are named below the first failure: they are sent and stored with each state."""


@dataclass
class HostRecord:
    """What the present launcher knows of a host, beside its view."""

    greeted: bool = False
    """Its agent has greeted this launcher."""
    staged: bool = False
    previous_agent_exit: str = ""
    agent_gone: bool = False
    """The agent is lost for good."""
    agent_silent: bool = False
    """The host can be reached, and its agent does not answer."""
    lost_at: float = 0.0
    """When it was heard last before it was lost; it may be back."""
    lost_since: float = 0.0
    """When this launcher has seen that it is lost: it may have slept before, and nobody has had a
    chance to come back."""
    back_at: float = 0.0
    """When its agent has greeted this launcher last."""
    receipt: HostReceipt | None = None
    asked_lease: float = 0.0
    """The longest lease that it was asked for since it confirmed one: it may hold that."""
    last_word: HostReceipt | None = None
    """What its agent said when it had ended everything by itself."""
    elsewhere: str = ""
    """Name of the machine that `localhost` is, where that is not this one (`HostPlan`)."""


class RunData(Views):
    """The views of one run, with what only its present launcher needs to know; `now` is the time of
    the event that is being handled."""

    def __init__(
        self,
        cluster: ClusterModel,
        run_id: str,
        started: float = 0.0,
        resume: Resume | None = None,
        past: Views | None = None,
        launched_on: str = "",
    ) -> None:
        """`past` is the run as an earlier launcher has recorded it; `launched_on` names the machine
        that launched it, where that is not this one."""
        self._launched_on = launched_on
        past = past or Views(RunView(run_id, cluster.name, RunPhase.CONNECTING, started))
        if past.run.resume is None:
            past.update_run(resume=resume)
        super().__init__(past.run)
        self.cluster = cluster
        self.run_id = run_id
        self.now = 0.0
        self.attaching = False
        """This launcher has taken the run up; another one began it."""
        self.checked = False
        """The hosts have answered this launcher's questions, and the plan is final."""
        self.host_facts: Mapping[str, HostFacts] = {h: one.facts for h, one in past.facts.items()}
        self.nodes: Mapping[str, AllocatedNode] = {
            host: one.node for host, one in past.facts.items() if one.node is not None
        }
        """What an engine has given, by the names of the hosts."""
        if self.nodes:
            self.cluster = self._with_nodes()
        self.plan = self._planned()
        self._add_views(past)
        asked = self.plan.settings.background_lease if self.run.background else 0.0
        self.host_records = {
            h.name: HostRecord(asked_lease=asked, elsewhere=h.elsewhere) for h in self.plan.hosts
        }
        self.waited_longer = 0.0
        """Seconds beyond the kill's own time, for hosts that are still being connected to."""
        self.ending: dict[str, tuple[TaskId, ...] | None] = {}
        """Hosts that have not said that nothing of the last attempt is left, with the tasks that
        are being ended there, None for everything."""
        self.told_loopback: set[tuple[TaskId, int]] = set()
        """Attempts of which was said that only their own host reaches them."""
        self.looked_for: TaskId | None = None
        """The failed task before whose run is ended the others are looked at, once."""
        self.raised: dict[TaskId, str] = {}
        """Exceptions of tasks that hang in their exit, in their present attempts."""
        self.silence_watched: set[TaskId] = set()
        self.waited_in_vain = 0.0
        """Seconds for which later stages have waited for a port that nobody opened."""
        self.serving: set[TaskId] = set()
        """Watched tasks that only answer others."""
        """Tasks whose silence is watched in their present attempt."""
        self._on_host: dict[str, list[TaskId]] = {}
        for task in self.plan.tasks:
            self._on_host.setdefault(task.host, []).append(task.id)

    def _planned(self) -> Plan:
        run = self.run
        plan = make_plan(self.cluster, self.run_id, self.host_facts, run.resume, run.attempt)
        if not self._launched_on:
            return plan
        hosts = (
            replace(host, elsewhere=self._launched_on) if host.local else host
            for host in plan.hosts
        )
        return replace(plan, hosts=tuple(hosts))

    def _add_views(self, past: Views) -> None:
        """Adds what is known of the run, and the rest as the plan has it: all of it is recorded."""
        plan = self.plan
        self.notes, self.receipt = past.notes, past.receipt
        for host in plan.hosts:
            blank = HostView(host.name, host.destination, HostState.CONNECTING)
            view = past.hosts.get(host.name, blank)
            self.add(replace(view, destination=host.destination, local=host.local))
        for task in plan.tasks:
            self.add(task_view(task.id, plan, past.tasks.get(task.id)))
        for facts in past.facts.values():
            self.add(facts)
        stage = min(past.run.stage, len(plan.stages))
        settings = plan.settings
        most = settings.max_restarts + 1 if settings.on_failure is OnFailure.RESTART_ALL else 0
        run = replace(past.run, run_id=self.run_id, name=plan.name, most_attempts=most)
        keeps = settings.on_disconnect is OnDisconnect.KEEP
        longer = None if keeps else settings.background_lease
        self.add(replace(run, stage=stage, lease=settings.lease, detached_lease=longer))
        if self.run.total_steps is None:
            self.update_run(total_steps=plan.total_steps)
        if self.cluster.slurm is None:
            self.update_run(allocation=None)
        elif self.run.allocation is None:
            label = self.cluster.slurm.label
            self.update_run(allocation=AllocationView(label), state=RunPhase.QUEUED)

    # --- the run --------------------------------------------------------------------------

    def refresh_waiting(self, waiting: str | None = None) -> None:
        """Says anew who is waited for, by default as the run knows it."""
        self.update_run(waiting=self.waiting() if waiting is None else waiting)

    def update_allocation(self, **changes: Any) -> None:
        """Changes the engine's job."""
        assert self.allocation is not None
        self.update_run(allocation=replace(self.allocation, **changes))

    def add_nodes(self, nodes: Mapping[str, AllocatedNode]) -> None:
        """Makes the plan again with the nodes that an engine has given."""
        self.nodes = dict(nodes)
        self.cluster = self._with_nodes()
        self.replan({})
        for host, node in nodes.items():
            known = self.facts.get(host, FactsView(host))
            self.add(replace(known, node=node))
            if host in self.hosts:
                self.update_host(host, destination=self.plan.host(host).destination)

    def _with_nodes(self) -> ClusterModel:
        nodes = self.nodes.items()
        return self.cluster.with_hosts(
            {name: self.cluster.node(node.name, node.via) for name, node in nodes}
        )

    def replan(self, facts: Mapping[str, HostFacts]) -> None:
        """Makes the plan again; hosts of which nothing new is known keep their facts."""
        self.host_facts = {**self.host_facts, **facts}
        self.plan = self._planned()
        for host, known in facts.items():
            before = self.facts.get(host, FactsView(host))
            self.add(replace(before, facts=known))
        for task in self.plan.tasks:
            self.update_task(task.id, address=task.address, gpus=task.gpus)

    # --- tasks ----------------------------------------------------------------------------

    def fail(self, task: TaskId, how: str, tail: tuple[str, ...]) -> None:
        """Records a failure: the first is the headline, later ones are named or counted under
        it."""
        failure = self.run.first_failure
        if failure is None:
            failure = Failure(task, self.tasks[task].host, how, self.now, tail=tail)
        elif task == failure.task or task in failure.others:
            return
        elif len(failure.others) < _MOST_FAILURES:
            failure = replace(failure, others=(*failure.others, task))
        else:
            failure = replace(failure, unlisted=failure.unlisted + 1)
        self.update_run(first_failure=failure)

    def is_early(self, task: TaskId) -> bool:
        """The task's stage has not come."""
        return self.tasks[task].stage > self.run.stage

    def is_current(self, task: TaskId, attempt: int) -> bool:
        """False for an earlier attempt: what is said of it comes too late."""
        view = self.tasks[task]
        return view.attempt == attempt and view.state is not TaskState.PENDING

    @cached_property
    def cluster_tasks(self) -> tuple[TaskId, ...]:
        """The tasks that start again together, in start order."""
        return tuple(task.id for task in self.plan.tasks if task.role.in_cluster)

    def ends_with_all(self, task: TaskId) -> bool:
        """All tasks of the cluster are being ended for the next attempt, and this is one."""
        return self.run.restart_due and self.plan.task(task).role.in_cluster

    def awaits_ready(self, task: TaskId, attempt: int) -> bool:
        """This attempt is under way and not ready."""
        return self.is_current(task, attempt) and self.tasks[task].state is TaskState.STARTING

    def needs_tail(self, task: TaskId, attempt: int, status: int | None) -> bool:
        """Whether the end of an attempt with this status is a failure, whose last lines are shown.
        Nothing else that a task has printed is stored."""
        view = self.tasks[task]
        failed = status != 0 and view.intent in (Intent.NONE, Intent.FAIL, Intent.RAISED)
        ending = self.phase in (RunPhase.KILLING, RunPhase.RESTARTING)
        return failed and attempt == view.attempt and not ending

    def must_be_ready(self, task: TaskId) -> bool:
        """Whether a task that is not ready in time has failed: what its file asks for it has to do,
        a ps has to serve those that train, and any process has to be started."""
        plan, ready = self.plan.task(task), self.plan.task(task).ready
        if self.tasks[task].pid is None or not figures_show(ready):
            return True
        trained = any(one.role.trains for one in self.plan.tasks)
        return isinstance(ready, PortListens) and plan.role is Role.PS and trained

    def awaits(self, timer: Timer) -> bool:
        """Whether the end of a timer matters: not where its task is ready or has ended."""
        if isinstance(timer, ReadyTimeout | ReadyDelay):
            return self.awaits_ready(timer.task, timer.attempt)
        return self.phase is not RunPhase.ENDED

    def views_of(self, tasks: Iterable[TaskId]) -> list[TaskView]:
        """These tasks as they stand."""
        return [self.tasks[task] for task in tasks]

    def on_host(self, host: str) -> list[TaskView]:
        """A host's tasks as they stand, in start order."""
        return self.views_of(self._on_host.get(host, ()))

    def outcome_tasks(self) -> list[TaskView]:
        """The tasks that decide the end, and those that may finish."""
        ending = self.plan.ending
        return self.views_of((*ending.decide, *ending.may_finish))

    def serves(self, task: TaskId) -> bool:
        """The task is there for others, and its end says nothing of the run's success: a ps, an
        evaluator or a helper, where others train."""
        role = self.plan.task(task).role
        return not role.trains and role is not Role.PREPARE and task not in self.plan.ending.decide

    @property
    def all_must_end(self) -> bool:
        """The success rule wants each task that trains to end by itself."""
        settings = self.plan.settings
        return (settings.success or settings.framework.success) is Success.ALL

    def cut_off(self) -> list[TaskView]:
        """Tasks of the outcome whose last word is no end of their own, nor one that the rule or a
        person wanted: what they would have done nobody knows."""
        wanted = (TaskState.EXITED, TaskState.FAILED)
        return [
            view
            for view in self.outcome_tasks()
            if view.state not in wanted and view.intent not in (Intent.STOP, Intent.KILL)
        ]

    @property
    def end_decided(self) -> bool:
        """The run ends, now or as soon as the others have been looked at. The restart of all tasks
        is no such end."""
        return self.phase in (RunPhase.KILLING, RunPhase.ENDED) or self.run.cause is not None

    @property
    def rule_held(self) -> bool:
        """The tasks have ended as the success rule wants it, by themselves."""
        return all(self.tasks[task].state is TaskState.EXITED for task in self.plan.ending.decide)

    @property
    def begun(self) -> bool:
        """An attempt of a task has been asked for."""
        return any(view.attempt for view in self.tasks.values())

    @property
    def begun_before(self) -> bool:
        """An earlier launcher has asked for attempts: the run goes on, and its files are there."""
        return self.attaching and self.begun

    # --- hosts ----------------------------------------------------------------------------

    def host_states(self) -> set[HostState]:
        """The states of all links."""
        return {view.state for view in self.hosts.values()}

    def longest_lease(self, host: str) -> float:
        """Seconds for which a host may wait for a launcher, by all that it was asked for."""
        confirmed = self.hosts[host].lease or 0.0
        asked = self.host_records[host].asked_lease
        return max(self.plan.settings.lease, confirmed, asked)

    def lose_host(self, host: str, reason: str, lease_until: float | None = None) -> None:
        """Marks a host and its live tasks as lost."""
        self.update_host(host, state=HostState.LOST, reason=reason, lease_until=lease_until)
        for view in self.on_host(host):
            self.lose_where_host_is_lost(view.id)

    def lose_where_host_is_lost(self, task: TaskId) -> bool:
        """Marks a live task as lost if its host is; True if the host is."""
        view = self.tasks[task]
        lost = self.hosts[view.host].state is HostState.LOST
        if lost and view.state.live and view.state is not TaskState.LOST:
            self.update_task(task, state=TaskState.LOST, state_before_loss=view.state)
        return lost

    def find_tasks(self, host: str) -> None:
        """Gives a host's lost tasks the state that they had before."""
        for view in self.on_host(host):
            before = view.state_before_loss
            if before is not None:
                state = before if view.state is TaskState.LOST else view.state
                self.update_task(view.id, state=state, state_before_loss=None)

    @property
    def unstaged_hosts(self) -> list[str]:
        """Hosts that do not have all files yet."""
        return [host for host, record in self.host_records.items() if not record.staged]

    @property
    def awaits_nodes(self) -> bool:
        """An engine has not said which nodes the hosts are, and they are needed: to start the run,
        or to end what a launcher that is not known here may have started."""
        if self.allocation is None or self.nodes:
            return False
        killing = self.phase is RunPhase.KILLING and not self.allocation.releasing
        return self.phase is RunPhase.QUEUED or (killing and bool(self.contacted_hosts))

    @property
    def ports(self) -> dict[TaskId, int]:
        """The ports that were picked for `auto`."""
        return {task: port for one in self.host_facts.values() for task, port in one.ports.items()}

    @property
    def unconfirmed(self) -> bool:
        """Some host's agent has not confirmed that nothing is left."""
        receipts = (record.receipt for record in self.host_records.values())
        return any(one is not None and not one.confirmed for one in receipts)

    @property
    def releasing(self) -> bool:
        """All receipts are there, and the engine gets its nodes back."""
        allocation = self.allocation
        return self.phase is RunPhase.KILLING and allocation is not None and allocation.releasing

    def survivors_on(self, host: str) -> tuple[Survivor, ...]:
        """The processes that a kill of everything has left on a host."""
        receipt = self.host_records[host].receipt
        return () if receipt is None else receipt.survivors

    def waiting(self) -> str:
        """Hosts or tasks that the run waits for now, in words."""
        if self.phase is RunPhase.CONNECTING:
            hosts = self.hosts.values()
            return named(view.name for view in hosts if view.state is HostState.CONNECTING)
        if self.phase is RunPhase.STAGING:
            return named(self.unstaged_hosts)
        if self.phase is RunPhase.STARTING and 0 <= self.run.stage < len(self.plan.stages):
            tasks = self.views_of(self.plan.stages[self.run.stage])
            return named(f"{view.id} on {view.address}" for view in tasks if blocks_stage(view))
        if self.phase is RunPhase.RESTARTING:
            return named(self.ending)
        if self.phase is RunPhase.KILLING and self.allocation and self.allocation.releasing:
            return f"{self.allocation.title} to end"
        return ""


def named(names: Iterable[str]) -> str:
    """A list of names; of thousands, more than fit on a screen are not even looked for."""
    first = list(islice(names, _MOST_NAMES + 1))
    rest = ["…"] if len(first) > _MOST_NAMES else []
    return ", ".join([*first[:_MOST_NAMES], *rest])


def blocks_stage(view: TaskView) -> bool:
    """The next stage waits for this task; for a lost one only where it was never started."""
    if view.state is TaskState.LOST:
        return view.pid is None
    return not (view.state.ended or view.state.up)


def task_view(task: TaskId, plan: Plan, past: TaskView | None) -> TaskView:
    """A task before anything has happened to it, or as an earlier launcher has recorded it."""
    planned = plan.task(task)
    blank = TaskView(task, planned.host, planned.address, TaskState.PENDING)
    return replace(
        past or blank,
        host=planned.host,
        address=planned.address,
        in_cluster=planned.in_cluster,
        is_chief=task == plan.chief,
        stage=plan.stage_of(task),
        gpus=planned.gpus,
    )
