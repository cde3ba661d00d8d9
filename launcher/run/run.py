"""The run: a pure state machine. Events in, instructions out; no clock, no asyncio, no I/O.

It knows the order of the start and its gates, the success rule, restarts, kill-all, and when
the run is over. `session` feeds it and carries its instructions out; tests feed it events and
compare instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from ..cluster.spec import OnDisconnect
from ..ids import TaskId
from ..plan.plan import Plan
from . import events as ev
from .ending import KILL_PATIENCE, Cause, Ending
from .events import Event, Instruction
from .snapshot import Snapshot
from .states import HostState, Outcome, RunState, TaskState
from .tasks import Tasks
from .views import Views

TAKEOVER_SECONDS = 5.0
"""Within so many seconds another launcher that takes a run over has all its hosts."""
_STILL_HEARD = (
    ev.TaskExited,
    ev.Noted,
    ev.CollectProgress,
    ev.ResultsMissing,
    ev.LauncherFailed,
)
"""Events that matter although the run has ended."""


class Run:
    """One run, from connecting to the receipt."""

    def __init__(self, plan: Plan, now: float) -> None:
        self._views = Views(plan, now)
        self._ending = Ending(self._views)
        self._tasks = Tasks(self._views, self._ending)
        self._started = now
        self._before_lost: dict[TaskId, TaskState] = {}
        self._staged: set[str] = set()
        self._greeted: set[str] = set()
        """Hosts whose agent has greeted this launcher."""
        self._attaching = False
        self._was_killing = False
        self._handlers: dict[type[Event], Callable[[Any], list[Instruction]]] = {
            ev.Begin: self._begin,
            ev.HostUp: self._host_up,
            ev.HostRefused: self._host_refused,
            ev.HostLost: self._host_lost,
            ev.Superseded: self._superseded,
            ev.LookedElsewhere: self._looked_elsewhere,
            ev.LauncherFailed: self._launcher_failed,
            ev.Checked: self._checked,
            ev.StageProgress: self._stage_progress,
            ev.CollectProgress: self._collect_progress,
            ev.Staged: self._host_staged,
            ev.TaskStarted: self._tasks.started,
            ev.TaskReady: lambda event: self._tasks.ready(event.task, event.attempt),
            ev.TaskExited: self._tasks.exited,
            ev.MetricSeen: self._tasks.metric,
            ev.Silent: self._tasks.silent,
            ev.Timer: self._timer,
            ev.Receipted: self._receipted,
            ev.KillAll: self._kill_all,
            ev.Restart: self._tasks.restart,
            ev.SignalTask: self._tasks.signal,
            ev.Detach: lambda _: self._ending.conclude(Outcome.DETACHED, 0),
            ev.Noted: self._noted,
            ev.ResultsMissing: self._results_missing,
        }

    @classmethod
    def attach(cls, plan: Plan, past: Snapshot, met: Collection[str] | None = None) -> Run:
        """A run that another launcher began, as `past` tells it; what its tasks do now the
        agents will say. Every host that the earlier launcher has `met` (None: any) may hold
        something, so each of them owes a receipt."""
        run = cls(plan, past.started)
        run._attaching = True
        views = run._views
        views.met = set(views.hosts) if met is None else views.hosts.keys() & met
        run._was_killing = past.state is RunState.KILLING
        for view in past.tasks:
            if view.id in views.tasks:
                seen = TaskState.READY if view.state is TaskState.LOST else view.state
                views.tasks[view.id] = replace(view, state=seen)
        views.failure = past.first_failure
        return run

    @property
    def plan(self) -> Plan:
        """What is run; final once the hosts have been looked at."""
        return self._views.plan

    @property
    def state(self) -> RunState:
        """Where the run stands."""
        return self._views.state

    @property
    def hurried(self) -> bool:
        """Somebody has pressed kill-all twice: nothing is waited for."""
        return self._ending.hurried

    def handle(self, event: Event) -> list[Instruction]:
        """Takes an event; says what is to be done."""
        self._views.now = event.time
        if self.state is RunState.ENDED and not isinstance(event, _STILL_HEARD):
            return []
        return self._handlers[type(event)](event)

    def snapshot(self) -> Snapshot:
        """The run as it stands; log sizes and times of output are the session's to add."""
        return Snapshot(
            run_id=self.plan.run_id,
            name=self.plan.name,
            state=self.state,
            tasks=tuple(self._views.tasks.values()),
            hosts=tuple(self._views.hosts.values()),
            started=self._started,
            ended=self._ending.ended,
            waiting=self._views.waiting(self._staged, self._tasks.stage),
            waiting_since=self._tasks.stage_since,
            total_steps=self._tasks.total_steps,
            first_failure=self._views.failure,
            kill_deadline=self._ending.deadline,
            receipt=self._ending.receipt,
            outcome=self._ending.outcome,
            exit_code=self._ending.exit_code,
            launcher_error=self._ending.launcher_error,
            notes=self._views.notes,
            results_missing=self._ending.results_missing,
        )

    def _begin(self, _: ev.Begin) -> list[Instruction]:
        """Attached to a run whose launcher died while it killed: that is gone on with."""
        if not self._was_killing:
            return []
        states = {view.state for view in self._views.deciding()}
        if TaskState.FAILED in states:
            return self._ending.everything(Cause.FAILURE)
        return self._ending.everything(Cause.RULE if states == {TaskState.EXITED} else Cause.PERSON)

    # --- hosts ----------------------------------------------------------------------------

    def _host_up(self, event: ev.HostUp) -> list[Instruction]:
        host = event.host
        came_back = host in self._greeted
        self._greeted.add(host)
        self._views.met.add(host)
        self._views.was[host] = event.was
        self._views.host(
            host, state=HostState.UP, reason="", lease_until=None, last_heard=event.time
        )
        if self._attaching and not came_back:
            if event.was:
                self._views.note(f"{host}, meanwhile: {event.was}")
            out = self._adopt(event)
            return out or self._when_all_answered()
        if self.state is RunState.CONNECTING:
            return self._when_all_answered()
        if not came_back and self.state is not RunState.KILLING:
            return []
        self._views.note(f"{host} is back{f' (meanwhile: {event.was})' if event.was else ''}")
        return self._take_back(host, event)

    def _take_back(self, host: str, event: ev.HostUp) -> list[Instruction]:
        """After a cut: tasks have their true state again, and what got no answer is repeated."""
        held = {(str(facts["task"]), int(facts["attempt"])) for facts in event.tasks}
        out: list[Instruction] = []
        killing = self.state is RunState.KILLING
        for view in self._views.on_host(host):
            if view.state is TaskState.LOST:
                self._views.task(view.id, state=self._before_lost.pop(view.id, TaskState.READY))
            view = self._views.tasks[view.id]
            if not view.state.live or (str(view.id), view.attempt) in held:
                continue
            if view.pid is None and self.state is not RunState.KILLING:
                out.append(ev.StartTask(self.plan.task(view.id), view.attempt))
            else:
                exited = ev.TaskExited(event.time, view.id, view.attempt, None, None)
                out += self._tasks.exited(exited, reason=event.was or "the host's agent died")
        if killing and self._ending.is_owed(host):
            out.append(ev.KillHost(host, None, self._ending.grace_left))
        elif self.state is RunState.STAGING and host not in self._staged:
            out.append(ev.StageHost(host))
        if self.state is not RunState.KILLING:
            out += self._tasks.unanswered(host)
        return out

    def _adopt(self, event: ev.HostUp) -> list[Instruction]:
        """Attaching: what the agent holds is the truth. A task of which it knows nothing, or
        an attempt that the events do not know, is taken as the agent tells it."""
        if self.state is RunState.KILLING:
            return [ev.KillHost(event.host, None, self._ending.grace_left)]
        out: list[Instruction] = []
        newest: dict[TaskId, int] = {}
        for facts in event.tasks:
            task = TaskId.parse(str(facts["task"]))
            newest[task] = max(newest.get(task, 0), int(facts["attempt"]))
        for view in self._views.on_host(event.host):
            attempt = newest.get(view.id, 0)
            if attempt > view.attempt:
                self._views.task(
                    view.id, attempt=attempt, state=TaskState.STARTING, started=event.time
                )
            elif view.attempt and not attempt and not view.state.ended:
                self._views.task(view.id, pid=view.pid or 0)
                gone = ev.TaskExited(event.time, view.id, view.attempt, None, None)
                out += self._tasks.exited(gone, reason=event.was or "its agent died")
        return out

    def _host_refused(self, event: ev.HostRefused) -> list[Instruction]:
        self._views.host(event.host, state=HostState.REFUSED, reason=event.reason)
        if self.state is RunState.CONNECTING:
            return self._when_all_answered()
        started = self._views.begun
        self._views.note(f"{event.host}: {event.reason}")
        return self._ending.everything(Cause.FAILURE if started else Cause.PREFLIGHT)

    def _when_all_answered(self) -> list[Instruction]:
        states = {view.state for view in self._views.hosts.values()}
        if HostState.CONNECTING in states:
            return []
        if self._attaching:
            self._views.state = RunState.STAGING
            begun = self._views.begun
            return [ev.CheckHosts(ports=not begun)]
        if HostState.LOST in states:
            return []
        if HostState.REFUSED in states:
            return self._ending.everything(Cause.PREFLIGHT)
        self._views.state = RunState.STAGING
        return [ev.CheckHosts()]

    def _host_lost(self, event: ev.HostLost) -> list[Instruction]:
        host = event.host
        self._views.host(
            host, state=HostState.LOST, reason=event.reason, lease_until=event.lease_until
        )
        self._lose_tasks(host)
        wait = max(0.0, event.lease_until - event.time) + self.plan.settings.grace
        self._views.note(f"{host} is lost: {event.reason}")
        timer = ev.SetTimer(f"lease:{host}", wait + KILL_PATIENCE)
        if self._attaching and self.state is RunState.CONNECTING:
            return [timer, *self._when_all_answered()]
        return [timer]

    def _lose_tasks(self, host: str) -> None:
        for view in self._views.on_host(host):
            if view.state.live and view.state is not TaskState.LOST:
                self._before_lost[view.id] = view.state
                self._views.task(view.id, state=TaskState.LOST)

    def _lease_over(self, host: str) -> list[Instruction]:
        view = self._views.hosts[host]
        keep = self.plan.settings.on_disconnect is OnDisconnect.KEEP
        if view.state is not HostState.LOST or keep or self.state is RunState.KILLING:
            return []
        if self._ending.taken and not self._holds_any():
            return [ev.LookElsewhere(next(iter(self._ending.taken.values())))]
        lost = [
            v for v in self._views.tasks.values() if v.host == host and v.state is TaskState.LOST
        ]
        for task in lost:
            self._views.task(task.id, reason="its host's lease has ended")
            self._views.fail(task.id, "lost", ())
        return self._ending.everything(
            Cause.FAILURE if lost or self._tasks.stage >= 0 else Cause.PREFLIGHT
        )

    def _superseded(self, event: ev.Superseded) -> list[Instruction]:
        self._ending.taken[event.host] = event.by
        return self._ending.look() or [ev.SetTimer(f"taken:{event.host}", TAKEOVER_SECONDS)]

    def _taken(self, host: str) -> list[Instruction]:
        """Another launcher has this host and not the others: they stay ours."""
        if not any(self._ending.is_owed(other) for other in self._views.met):
            return []
        by = self._ending.taken[host]
        self._views.note(f"another launcher ({by}) has taken {host} over; the other hosts stay")
        self._views.host(host, state=HostState.LOST, reason=f"taken over by {by}")
        self._lose_tasks(host)
        return []

    def _looked_elsewhere(self, event: ev.LookedElsewhere) -> list[Instruction]:
        if event.outcome is not None:
            return self._ending.ended_elsewhere(event)
        if self.state is RunState.KILLING:
            return self._ending.give_up()
        self._views.note(f"another launcher ({event.by}) has taken this run over; leaving")
        return self._ending.conclude(Outcome.DETACHED, 0)

    def _launcher_failed(self, event: ev.LauncherFailed) -> list[Instruction]:
        ending = self._ending
        ending.launcher_error = ending.launcher_error or event.reason
        self._views.note(f"the launcher failed: {event.reason}")
        if self.state is RunState.ENDED:
            ending.exit_code = 4
            return []
        return ending.everything(Cause.LAUNCHER)

    def _holds_any(self) -> bool:
        """A host is within reach and no other launcher's."""
        hosts = self._views.hosts.values()
        taken = self._ending.taken
        return any(host.state is HostState.UP and host.name not in taken for host in hosts)

    # --- staging and the ordered start ----------------------------------------------------

    def _checked(self, event: ev.Checked) -> list[Instruction]:
        if self.state is not RunState.STAGING:
            return []
        self._views.plan = event.plan
        if self._attaching and self._views.begun:
            self._staged = set(self._views.hosts)
            return self._tasks.go_on()
        for task in self.plan.tasks:
            self._views.task(task.id, state=TaskState.STAGING, address=task.address)
        return [ev.StageHost(host) for host in self._views.hosts]

    def _stage_progress(self, event: ev.StageProgress) -> list[Instruction]:
        self._views.host(
            event.host,
            staged_bytes=event.done,
            staged_total=event.total,
            staged_files=event.files,
            staged_total_files=event.total_files,
        )
        return []

    def _collect_progress(self, event: ev.CollectProgress) -> list[Instruction]:
        self._views.host(event.host, collected_bytes=event.done, collected_total=event.total)
        return []

    def _host_staged(self, event: ev.Staged) -> list[Instruction]:
        self._staged.add(event.host)
        if self.state is not RunState.STAGING or self._staged < set(self._views.hosts):
            return []
        self._views.state = RunState.STARTING
        return self._tasks.begin()

    # --- the end --------------------------------------------------------------------------

    def _kill_all(self, event: ev.KillAll) -> list[Instruction]:
        if self.state is RunState.KILLING:
            return self._ending.at_once()
        return self._ending.everything(Cause.PERSON if event.by_person else Cause.TERM)

    def _receipted(self, event: ev.Receipted) -> list[Instruction]:
        if event.tasks is not None:
            return [i for task in event.tasks for i in self._tasks.is_gone(task)]
        if self.state is not RunState.KILLING:
            return []  # an agent that acted alone: what it ended, its tasks' ends say
        return self._ending.receipted(event.receipt)

    # --- small things ---------------------------------------------------------------------

    def _timer(self, event: ev.Timer) -> list[Instruction]:
        what, _, rest = event.name.partition(":")
        if what == "give-up":
            return self._ending.give_up() if self.state is RunState.KILLING else []
        if what == "lease":
            return self._lease_over(rest)
        if what == "taken":
            return self._taken(rest)
        name, _, number = rest.rpartition(":")
        return self._tasks.timer(what, TaskId.parse(name), int(number))

    def _results_missing(self, event: ev.ResultsMissing) -> list[Instruction]:
        text = f"results of {event.host} were not brought back: {event.reason}"
        text += f"; they stay on the host in {', '.join(event.paths)}"
        self._views.note(text)
        self._ending.miss_results(text)
        return []

    def _noted(self, event: ev.Noted) -> list[Instruction]:
        self._views.note(event.text)
        return []
