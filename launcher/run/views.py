"""The run as it stands while it is being changed: every host, every task, what was noted.

`Run` and `Ending` write in here; what leaves the package is only the immutable `Snapshot`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..ids import TaskId
from ..plan.plan import Plan, Role, TaskPlan
from ..printable import printable
from .snapshot import Failure, HostView, TaskView
from .states import HostState, RunState, TaskState

_MOST_NOTES = 100


class Views:
    """Hosts and tasks of one run; `now` is the time of the event that is being handled."""

    def __init__(self, plan: Plan, now: float) -> None:
        self.plan = plan
        self.now = now
        self.state = RunState.CONNECTING
        self.tasks = {task.id: task_view(task, plan) for task in plan.tasks}
        self.hosts = {
            host.name: HostView(host.name, str(host.ssh or "this machine"), HostState.CONNECTING)
            for host in plan.hosts
        }
        self.met: set[str] = set()
        """Hosts that may hold something of the run: those whose agent has greeted a launcher."""
        self.was: dict[str, str] = {}
        """How each host's earlier agent ended by itself, if one did."""
        self.failure: Failure | None = None
        self.notes: tuple[str, ...] = ()

    def task(self, task: TaskId, **changes: Any) -> TaskView:
        """Changes a task; how it stands then."""
        self.tasks[task] = replace(self.tasks[task], **changes)
        return self.tasks[task]

    def host(self, host: str, **changes: Any) -> None:
        """Changes a host."""
        self.hosts[host] = replace(self.hosts[host], **changes)

    def note(self, text: str) -> None:
        """A sentence for people; the latest hundred are kept."""
        self.notes = (*self.notes[1 - _MOST_NOTES :], printable(text))

    def fail(self, task: TaskId, how: str, tail: tuple[str, ...]) -> None:
        """The first failure is the headline; later ones are named under it."""
        if self.failure is None:
            self.failure = Failure(task, self.tasks[task].host, how, self.now, tail=tail)
        elif task != self.failure.task:
            self.failure = replace(self.failure, others=(*self.failure.others, task))

    def is_current(self, task: TaskId, attempt: int) -> bool:
        """What is told of another attempt comes too late."""
        return self.tasks[task].attempt == attempt

    def on_host(self, host: str) -> list[TaskView]:
        """A host's tasks, in start order."""
        return [view for view in self.tasks.values() if view.host == host]

    def met_in_order(self) -> list[str]:
        """`met`, in the order of the plan."""
        return [host for host in self.hosts if host in self.met]

    @property
    def begun(self) -> bool:
        """An attempt of a task has been asked for."""
        return any(view.attempt for view in self.tasks.values())

    def deciding(self) -> list[TaskView]:
        """The tasks whose end decides: those of the cluster but ps; where there are none, all
        but ps; where there is only ps, it."""
        return (
            self._with(Role.CHIEF, Role.WORKER)
            or self._with(Role.EVALUATOR, Role.HELPER)
            or list(self.tasks.values())
        )

    def _with(self, *roles: Role) -> list[TaskView]:
        return [self.tasks[task.id] for task in self.plan.tasks if task.role in roles]

    def waiting(self, staged: set[str], stage: int) -> str:
        """What the run waits for now, in words."""
        if self.state is RunState.CONNECTING:
            return ", ".join(
                view.name for view in self.hosts.values() if view.state is HostState.CONNECTING
            )
        if self.state is RunState.STAGING:
            return ", ".join(_how_far(v) for v in self.hosts.values() if v.name not in staged)
        if self.state is RunState.STARTING and 0 <= stage < len(self.plan.stages):
            tasks = [self.tasks[task] for task in self.plan.stages[stage]]
            return ", ".join(f"{view.id} on {view.address}" for view in tasks if holds_up(view))
        return ""


def holds_up(view: TaskView) -> bool:
    """The next stage waits for this task."""
    ready = (TaskState.READY, TaskState.RUNNING, TaskState.LOST)
    return not view.state.ended and view.state not in ready


def task_view(task: TaskPlan, plan: Plan) -> TaskView:
    """A task before anything has happened to it."""
    return TaskView(
        task.id,
        task.host,
        task.address,
        TaskState.PENDING,
        in_cluster=task.in_cluster,
        is_chief=task.id == plan.chief,
    )


def _how_far(view: HostView) -> str:
    """A host that gets files."""
    if not view.staged_total:
        return view.name
    part = 100 * view.staged_bytes // view.staged_total
    return f"{view.name} ({part} % of {view.staged_total / 1e6:.1f} MB)"
