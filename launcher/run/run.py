"""The run: a pure state machine. Events in, instructions out; no clock, no asyncio, no I/O.

It knows the order of the start and its gates, the success rule, restarts, kill-all, and when
the run is over. `session` feeds it and carries its instructions out; tests feed it events and
compare instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from enum import Enum, auto
from typing import Any

from ..cluster.spec import OnDisconnect, OnFailure, Success
from ..ids import TaskId
from ..plan.plan import After, Finished, Plan, Role, Started, TaskPlan
from . import events as ev
from .events import Event, Instruction
from .snapshot import Attempt, Failure, HostReceipt, HostView, Receipt, Snapshot, TaskView
from .states import HostState, Outcome, RunState, TaskState

KILL_PATIENCE = 8.0
"""Seconds beyond the grace that a lost host has to come back before its receipt is given up:
the agent's own patience with KILL, and a reconnect."""
MAX_BACKOFF = 30.0


_STILL_HEARD = (ev.TaskExited, ev.Noted, ev.CollectProgress)
"""Events that matter although the run has ended."""


class Cause(Enum):
    """Why a run is being ended."""

    RULE = auto()
    FAILURE = auto()
    PREFLIGHT = auto()
    PERSON = auto()
    TERM = auto()


class Run:
    """One run, from connecting to the receipt."""

    def __init__(self, plan: Plan, now: float) -> None:
        self.plan = plan
        self.state = RunState.CONNECTING
        self._started = now
        self._now = now
        self._tasks = {task.id: task_view(task, plan) for task in plan.tasks}
        self._hosts = {
            host.name: HostView(host.name, str(host.ssh or "this machine"), HostState.CONNECTING)
            for host in plan.hosts
        }
        self._before_lost: dict[TaskId, TaskState] = {}
        self._staged: set[str] = set()
        self._met: set[str] = set()
        """Hosts that may hold something of the run: those whose agent has greeted a launcher."""
        self._greeted: set[str] = set()
        """Hosts whose agent has greeted this launcher."""
        self._was: dict[str, str] = {}
        """How each host's earlier agent ended by itself, if one did."""
        self._stage = -1
        self._stage_since = now
        self._restarting: set[TaskId] = set()
        self._unanswered: dict[TaskId, float] = {}
        """Kills of single tasks (by their grace) whose receipt has not come: what comes after
        them waits for it, and a host that was cut off is asked again."""
        self._due: set[TaskId] = set()
        """Tasks whose next attempt only waits for such a receipt."""
        self._by_person: set[TaskId] = set()
        self._hung: set[TaskId] = set()
        self._watched: set[TaskId] = set()
        self._failure: Failure | None = None
        self._cause: Cause | None = None
        self._kill_deadline: float | None = None
        self._hurried = False
        self._receipts: dict[str, HostReceipt] = {}
        self._receipt: Receipt | None = None
        self._outcome: Outcome | None = None
        self._exit_code: int | None = None
        self._ended: float | None = None
        self._notes: tuple[str, ...] = ()
        self._total = plan.total_steps
        self._attaching = False
        self._was_killing = False
        self._handlers: dict[type[Event], Callable[[Any], list[Instruction]]] = {
            ev.Begin: self._begin,
            ev.HostUp: self._host_up,
            ev.HostRefused: self._host_refused,
            ev.HostLost: self._host_lost,
            ev.Superseded: self._superseded,
            ev.Checked: self._checked,
            ev.StageProgress: self._stage_progress,
            ev.CollectProgress: self._collect_progress,
            ev.Staged: self._host_staged,
            ev.TaskStarted: self._task_started,
            ev.TaskReady: self._task_ready,
            ev.TaskExited: self._task_exited,
            ev.MetricSeen: self._metric,
            ev.Silent: self._silent,
            ev.Timer: self._timer,
            ev.Receipted: self._receipted,
            ev.KillAll: self._kill_all,
            ev.Restart: self._restart,
            ev.SignalTask: self._signal_task,
            ev.Detach: lambda _: self._end(Outcome.DETACHED, 0),
            ev.Noted: self._noted,
        }

    @classmethod
    def attach(cls, plan: Plan, past: Snapshot, met: Collection[str] | None = None) -> Run:
        """A run that another launcher began, as `past` tells it; what its tasks do now the
        agents will say. Every host that the earlier launcher has `met` (None: any) may hold
        something, so each of them owes a receipt."""
        run = cls(plan, past.started)
        run._attaching = True
        run._met = set(run._hosts) if met is None else run._hosts.keys() & met
        run._was_killing = past.state is RunState.KILLING
        for view in past.tasks:
            if view.id in run._tasks:
                seen = TaskState.READY if view.state is TaskState.LOST else view.state
                run._tasks[view.id] = replace(view, state=seen)
        run._failure = past.first_failure
        return run

    @property
    def hurried(self) -> bool:
        """Somebody has pressed kill-all twice: nothing is waited for."""
        return self._hurried

    def handle(self, event: Event) -> list[Instruction]:
        """Takes an event; says what is to be done."""
        self._now = event.time
        if self.state is RunState.ENDED and not isinstance(event, _STILL_HEARD):
            return []
        return self._handlers[type(event)](event)

    def snapshot(self) -> Snapshot:
        """The run as it stands; log sizes and times of output are the session's to add."""
        return Snapshot(
            run_id=self.plan.run_id,
            name=self.plan.name,
            state=self.state,
            tasks=tuple(self._tasks.values()),
            hosts=tuple(self._hosts.values()),
            started=self._started,
            ended=self._ended,
            waiting=self._waiting(),
            waiting_since=self._stage_since,
            total_steps=self._total,
            first_failure=self._failure,
            kill_deadline=self._kill_deadline,
            receipt=self._receipt,
            outcome=self._outcome,
            exit_code=self._exit_code,
            notes=self._notes,
        )

    def _begin(self, _: ev.Begin) -> list[Instruction]:
        """Attached to a run whose launcher died while it killed: that is gone on with."""
        if not self._was_killing:
            return []
        states = {view.state for view in self._deciding()}
        if TaskState.FAILED in states:
            return self._end_all(Cause.FAILURE)
        return self._end_all(Cause.RULE if states == {TaskState.EXITED} else Cause.PERSON)

    # --- hosts ----------------------------------------------------------------------------

    def _host_up(self, event: ev.HostUp) -> list[Instruction]:
        host = event.host
        came_back = host in self._greeted
        self._greeted.add(host)
        self._met.add(host)
        self._was[host] = event.was
        self._host(host, state=HostState.UP, reason="", lease_until=None, last_heard=event.time)
        if self._attaching and not came_back:
            if event.was:
                self._note(f"{host}, meanwhile: {event.was}")
            out = self._adopt(event)
            return out or self._when_all_answered()
        if self.state is RunState.CONNECTING:
            return self._when_all_answered()
        if not came_back and self.state is not RunState.KILLING:
            return []
        self._note(f"{host} is back{f' (meanwhile: {event.was})' if event.was else ''}")
        return self._take_back(host, event)

    def _take_back(self, host: str, event: ev.HostUp) -> list[Instruction]:
        """After a cut: tasks have their true state again, and what got no answer is repeated."""
        held = {(str(facts["task"]), int(facts["attempt"])) for facts in event.tasks}
        out: list[Instruction] = []
        killing = self.state is RunState.KILLING
        for view in [v for v in self._tasks.values() if v.host == host]:
            if view.state is TaskState.LOST:
                self._task(view.id, state=self._before_lost.pop(view.id, TaskState.READY))
            view = self._tasks[view.id]
            if not view.state.live or (str(view.id), view.attempt) in held:
                continue
            if view.pid is None and self.state is not RunState.KILLING:
                out.append(ev.StartTask(self.plan.task(view.id), view.attempt))
            else:
                exited = ev.TaskExited(event.time, view.id, view.attempt, None, None)
                out += self._task_exited(exited, reason=event.was or "the host's agent died")
        if killing and host not in self._receipts:
            out.append(ev.KillHost(host, None, self._grace_left()))
        elif self.state is RunState.STAGING and host not in self._staged:
            out.append(ev.StageHost(host))
        if self.state is not RunState.KILLING:
            out += [
                ev.KillHost(host, (task,), grace)
                for task, grace in self._unanswered.items()
                if self._tasks[task].host == host
            ]
        return out

    def _adopt(self, event: ev.HostUp) -> list[Instruction]:
        """Attaching: what the agent holds is the truth. A task of which it knows nothing, or
        an attempt that the events do not know, is taken as the agent tells it."""
        if self.state is RunState.KILLING:
            return [ev.KillHost(event.host, None, self._grace_left())]
        out: list[Instruction] = []
        newest: dict[TaskId, int] = {}
        for facts in event.tasks:
            task = TaskId.parse(str(facts["task"]))
            newest[task] = max(newest.get(task, 0), int(facts["attempt"]))
        for view in [v for v in self._tasks.values() if v.host == event.host]:
            attempt = newest.get(view.id, 0)
            if attempt > view.attempt:
                self._task(view.id, attempt=attempt, state=TaskState.STARTING, started=event.time)
            elif view.attempt and not attempt and not view.state.ended:
                self._task(view.id, pid=view.pid or 0)
                gone = ev.TaskExited(event.time, view.id, view.attempt, None, None)
                out += self._task_exited(gone, reason=event.was or "its agent died")
        return out

    def _host_refused(self, event: ev.HostRefused) -> list[Instruction]:
        self._host(event.host, state=HostState.REFUSED, reason=event.reason)
        if self.state is RunState.CONNECTING:
            return self._when_all_answered()
        started = any(view.attempt for view in self._tasks.values())
        self._note(f"{event.host}: {event.reason}")
        return self._end_all(Cause.FAILURE if started else Cause.PREFLIGHT)

    def _when_all_answered(self) -> list[Instruction]:
        states = {view.state for view in self._hosts.values()}
        if HostState.CONNECTING in states:
            return []
        if self._attaching:
            self.state = RunState.STAGING
            begun = any(view.attempt for view in self._tasks.values())
            return [ev.CheckHosts(ports=not begun)]
        if HostState.LOST in states:
            return []
        if HostState.REFUSED in states:
            return self._end_all(Cause.PREFLIGHT)
        self.state = RunState.STAGING
        return [ev.CheckHosts()]

    def _host_lost(self, event: ev.HostLost) -> list[Instruction]:
        host = event.host
        self._host(host, state=HostState.LOST, reason=event.reason, lease_until=event.lease_until)
        for view in [v for v in self._tasks.values() if v.host == host and v.state.live]:
            if view.state is not TaskState.LOST:
                self._before_lost[view.id] = view.state
                self._task(view.id, state=TaskState.LOST)
        wait = max(0.0, event.lease_until - event.time) + self.plan.settings.grace
        self._note(f"{host} is lost: {event.reason}")
        timer = ev.SetTimer(f"lease:{host}", wait + KILL_PATIENCE)
        if self._attaching and self.state is RunState.CONNECTING:
            return [timer, *self._when_all_answered()]
        return [timer]

    def _lease_over(self, host: str) -> list[Instruction]:
        view = self._hosts[host]
        keep = self.plan.settings.on_disconnect is OnDisconnect.KEEP
        if view.state is not HostState.LOST or keep or self.state is RunState.KILLING:
            return []
        lost = [v for v in self._tasks.values() if v.host == host and v.state is TaskState.LOST]
        for task in lost:
            self._task(task.id, reason="its host's lease has ended")
            self._record_failure(task.id, "lost", ())
        return self._end_all(Cause.FAILURE if lost or self._stage >= 0 else Cause.PREFLIGHT)

    def _superseded(self, event: ev.Superseded) -> list[Instruction]:
        self._note(f"another launcher ({event.by}) has taken this run over; leaving")
        return self._end(Outcome.DETACHED, 0)

    # --- staging and the ordered start ----------------------------------------------------

    def _checked(self, event: ev.Checked) -> list[Instruction]:
        if self.state is not RunState.STAGING:
            return []
        self.plan = event.plan
        if self._attaching and any(view.attempt for view in self._tasks.values()):
            return self._go_on()
        for task in self.plan.tasks:
            self._task(task.id, state=TaskState.STAGING, address=task.address)
        return [ev.StageHost(host) for host in self._hosts]

    def _go_on(self) -> list[Instruction]:
        """Attached to a run that has begun: on from the first stage that is not ready."""
        self._staged = set(self._hosts)
        self.state = RunState.STARTING
        again: list[Instruction] = [
            ev.SetTimer(f"again:{view.id}:{view.attempt}", 1.0)
            for view in self._tasks.values()
            if view.state is TaskState.BACKOFF
        ]
        for number, stage in enumerate(self.plan.stages):
            views = [self._tasks[task] for task in stage]
            if any(self._holds_up(view) for view in views):
                self._stage, self._stage_since = number, self._now
                fresh = [view.id for view in views if not view.attempt]
                return [*again, *(i for task in fresh for i in self._start(task, 1))]
        return [*again, *self._start_stage(len(self.plan.stages))]

    def _stage_progress(self, event: ev.StageProgress) -> list[Instruction]:
        self._host(
            event.host,
            staged_bytes=event.done,
            staged_total=event.total,
            staged_files=event.files,
            staged_total_files=event.total_files,
        )
        return []

    def _collect_progress(self, event: ev.CollectProgress) -> list[Instruction]:
        self._host(event.host, collected_bytes=event.done, collected_total=event.total)
        return []

    def _host_staged(self, event: ev.Staged) -> list[Instruction]:
        self._staged.add(event.host)
        if self.state is not RunState.STAGING or self._staged < set(self._hosts):
            return []
        self.state = RunState.STARTING
        for task in self._tasks:
            self._task(task, state=TaskState.PENDING)
        return self._start_stage(0)

    def _start_stage(self, number: int) -> list[Instruction]:
        self._stage, self._stage_since = number, self._now
        if number >= len(self.plan.stages):
            self.state = RunState.RUNNING
            return self._look_at_end()
        return [i for task in self.plan.stages[number] for i in self._start(task, 1)]

    def _start(self, task: TaskId, attempt: int) -> list[Instruction]:
        self._task(
            task,
            state=TaskState.STARTING,
            attempt=attempt,
            pid=None,
            exit_code=None,
            exit_signal=None,
            reason="",
            started=self._now,
            ended=None,
        )
        plan = self.plan.task(task)
        start: list[Instruction] = [ev.StartTask(plan, attempt)]
        if not isinstance(plan.ready, Finished):  # an installation takes the time it takes
            start.append(ev.SetTimer(f"ready:{task}:{attempt}", self.plan.start_timeout))
        return start

    def _task_started(self, event: ev.TaskStarted) -> list[Instruction]:
        if not self._current(event.task, event.attempt):
            return []
        if event.error:
            self._task(event.task, reason=event.error)
            return self._failed(event.task, event.error, ())
        begun = Attempt(event.attempt, event.log_start, event.time)
        attempts = self._tasks[event.task].attempts
        if all(attempt.number != event.attempt for attempt in attempts):
            attempts = (*attempts, begun)
        self._task(event.task, pid=event.pid, attempts=attempts)
        if event.held:
            self._task(event.task, reason=f"its port is held by {event.held}")
        ready = self.plan.task(event.task).ready
        if isinstance(ready, Started):
            return self._task_ready(ev.TaskReady(event.time, event.task, event.attempt))
        if isinstance(ready, After):
            return [ev.SetTimer(f"after:{event.task}:{event.attempt}", ready.seconds)]
        return []

    def _task_ready(self, event: ev.TaskReady) -> list[Instruction]:
        starting = self._tasks[event.task].state is TaskState.STARTING
        if not self._current(event.task, event.attempt) or not starting:
            return []
        self._task(event.task, state=TaskState.READY, reason="")
        return self._next_stage()

    def _next_stage(self) -> list[Instruction]:
        if self.state is not RunState.STARTING:
            return []
        stage = self.plan.stages[self._stage]
        if any(self._holds_up(self._tasks[task]) for task in stage):
            return []
        return self._start_stage(self._stage + 1)

    @staticmethod
    def _holds_up(view: TaskView) -> bool:
        ready = (TaskState.READY, TaskState.RUNNING, TaskState.LOST)
        return not view.state.ended and view.state not in ready

    def _not_ready(self, task: TaskId, attempt: int) -> list[Instruction]:
        view = self._tasks[task]
        if not self._current(task, attempt) or view.state is not TaskState.STARTING:
            return []
        held = f" ({view.reason})" if view.reason else ""
        reason = f"not ready after {self.plan.start_timeout:g} s{held}"
        self._task(task, reason=reason)
        return self._failed(task, reason, ())

    # --- what tasks do --------------------------------------------------------------------

    def _metric(self, event: ev.MetricSeen) -> list[Instruction]:
        view = self._tasks[event.task]
        values = dict(event.values)
        if "total" in values and self.plan.total_steps is None:
            self._total = int(values["total"])
        self._task(
            event.task,
            step=int(values["step"]) if "step" in values else view.step,
            loss=values.get("loss", view.loss),
            rate=event.rate if event.rate is not None else view.rate,
            metrics={**view.metrics, **values},
            state=TaskState.RUNNING if view.state is TaskState.READY else view.state,
        )
        return []

    def _task_exited(self, event: ev.TaskExited, reason: str = "") -> list[Instruction]:
        task, view = event.task, self._tasks[event.task]
        if not self._current(task, event.attempt) or view.exit_code is not None:
            return []
        if view.exit_signal is not None:
            return []
        self._task(
            task, exit_code=event.status, exit_signal=event.signal, ended=view.ended or event.time
        )
        if view.state.ended or self.state is RunState.ENDED:
            return []  # only the details were missing
        if event.held and view.state is TaskState.STARTING:
            reason = f"its port is held by {event.held}"
        if reason:
            self._task(task, reason=reason)
        if task in self._restarting:
            self._task(task, state=TaskState.BACKOFF)
            return []
        if task in self._hung:
            return self._failed(task, self._tasks[task].reason, event.tail)
        if self.state is RunState.KILLING:
            if event.status == 0 and self._cause is not Cause.RULE:
                self._task(task, state=TaskState.EXITED)
            else:
                self._task(task, state=self._ended_state())
            return []
        if task in self._by_person:
            self._task(task, state=TaskState.KILLED)
            if self.plan.task(task).role in (Role.PS, Role.CHIEF, Role.PREPARE):
                return self._end_all(Cause.PERSON)
            return [*self._next_stage(), *self._look_at_end()]
        if event.status == 0:
            self._task(task, state=TaskState.EXITED)
            return [*self._next_stage(), *self._look_at_end()]
        how = f"exit {event.status}" if event.signal is None else f"killed by {event.signal}"
        if event.status is None and event.signal is None:
            how = "ended unseen"
            reason = reason or self._was.get(view.host, "")
        return self._failed(task, f"{how}{f', {reason}' if reason else ''}", event.tail)

    def _failed(self, task: TaskId, how: str, tail: tuple[str, ...]) -> list[Instruction]:
        plan = self.plan.task(task)
        view = self._task(task, state=TaskState.FAILED, ended=self._now)
        settings = self.plan.settings
        if self.state is RunState.KILLING:
            return []
        may_restart = settings.on_failure is OnFailure.RESTART and task not in self._hung
        if may_restart and view.attempt <= plan.max_restarts:
            delay = min(MAX_BACKOFF, 2.0 ** (view.attempt - 1))
            self._task(task, state=TaskState.BACKOFF)
            self._note(f"{task} on {plan.host}: {how}; attempt {view.attempt + 1} in {delay:g} s")
            return [
                self._kill_task(task, 0.0),  # what the attempt has left behind
                ev.SetTimer(f"again:{task}:{view.attempt}", delay),
            ]
        if plan.role in (Role.EVALUATOR, Role.HELPER):
            self._note(f"{task} on {plan.host}: {how}")
            return [*self._next_stage(), *self._look_at_end()]
        self._record_failure(task, how, tail)
        needed = plan.role in (Role.PS, Role.PREPARE)
        if settings.on_failure is OnFailure.KEEP and not needed:
            return [*self._next_stage(), *self._look_at_end()]
        return self._end_all(Cause.FAILURE)

    def _record_failure(self, task: TaskId, how: str, tail: tuple[str, ...]) -> None:
        if self._failure is None:
            host = self._tasks[task].host
            self._failure = Failure(task, host, how, self._now, tail=tail)
        elif task != self._failure.task:
            self._failure = replace(self._failure, others=(*self._failure.others, task))

    def _restart(self, event: ev.Restart) -> list[Instruction]:
        view = self._tasks[event.task]
        if self.state not in (RunState.STARTING, RunState.RUNNING, RunState.FINISHING):
            return []
        if not view.attempt or event.task in self._restarting:
            return []
        self._restarting.add(event.task)
        grace = 0.0 if event.hard or not view.state.live else self.plan.settings.grace
        return [self._kill_task(event.task, grace)]

    def _signal_task(self, event: ev.SignalTask) -> list[Instruction]:
        view = self._tasks[event.task]
        if not view.state.live:
            return []
        self._by_person.add(event.task)
        grace = self.plan.settings.grace if event.name == "TERM" else 0.0
        return [self._kill_task(event.task, grace)]

    def _kill_task(self, task: TaskId, grace: float) -> Instruction:
        self._unanswered[task] = grace
        return ev.KillHost(self._tasks[task].host, (task,), grace)

    # --- the end --------------------------------------------------------------------------

    def _deciding(self) -> list[TaskView]:
        """The tasks whose end decides: those of the cluster but ps; where there are none, all
        but ps; where there is only ps, it."""
        by_role = {task.id: task.role for task in self.plan.tasks}
        views = list(self._tasks.values())
        cluster = [v for v in views if by_role[v.id] in (Role.CHIEF, Role.WORKER)]
        others = [v for v in views if by_role[v.id] not in (Role.PS, Role.PREPARE)]
        return cluster or others or views

    def _look_at_end(self) -> list[Instruction]:
        if self.state not in (RunState.STARTING, RunState.RUNNING, RunState.FINISHING):
            return []
        if self.state is RunState.STARTING and self._stage < len(self.plan.stages):
            return []
        deciding = self._deciding()
        left = [view for view in deciding if not view.state.ended]
        if not left:
            return self._end_all(Cause.RULE)
        done = [view for view in deciding if view.state is TaskState.EXITED]
        chief = self.plan.chief
        by_chief = self.plan.settings.success is Success.CHIEF and chief is not None
        finished = by_chief and any(view.id == chief for view in done)
        if finished:
            self.state = RunState.FINISHING
        jobs = {view.id.job for view in done}
        waiting = [v.id for v in left if finished or v.id.job in jobs]
        fresh = [task for task in waiting if task not in self._watched]
        self._watched.update(fresh)
        return [ev.WatchSilence(task, self.plan.settings.finish_timeout) for task in fresh]

    def _silent(self, event: ev.Silent) -> list[Instruction]:
        view = self._tasks[event.task]
        if not view.state.live or self.state is RunState.KILLING:
            return []
        if view.state is TaskState.LOST:  # it is we who hear nothing
            return [ev.WatchSilence(event.task, self.plan.settings.finish_timeout)]
        self._hung.add(event.task)
        reason = f"hangs at its end: no output for {event.seconds:.0f} s after others had ended"
        self._task(event.task, reason=reason)
        return [self._kill_task(event.task, self.plan.settings.grace)]

    def _kill_all(self, event: ev.KillAll) -> list[Instruction]:
        if self.state is RunState.KILLING:
            self._hurried = True
            self._kill_deadline = event.time
            return [
                ev.KillHost(host, None, 0.0)
                for host in self._met_in_order()
                if host not in self._receipts
            ]
        return self._end_all(Cause.PERSON if event.by_person else Cause.TERM)

    def _end_all(self, cause: Cause) -> list[Instruction]:
        """One broadcast to all hosts at once, never host after host."""
        if self.state is RunState.KILLING:
            return []
        self.state = RunState.KILLING
        self._cause = cause
        self._kill_deadline = self._now + self.plan.settings.grace
        grace = self.plan.settings.grace
        kills: list[Instruction] = [ev.KillHost(host, None, grace) for host in self._met_in_order()]
        if not kills:
            return self._finish()
        return [*kills, ev.SetTimer("give-up", grace + KILL_PATIENCE)]

    def _met_in_order(self) -> list[str]:
        return [host for host in self._hosts if host in self._met]

    def _receipted(self, event: ev.Receipted) -> list[Instruction]:
        host = event.receipt.host
        if event.tasks is not None:
            return [i for task in event.tasks for i in self._task_is_gone(task)]
        if self.state is not RunState.KILLING:
            return []  # an agent that acted alone: what it ended, its tasks' ends say
        self._receipts[host] = event.receipt
        gone = not event.receipt.survivors
        for view in [v for v in self._tasks.values() if v.host == host]:
            if gone and (view.state.live or view.state is TaskState.BACKOFF):
                self._task(view.id, state=self._ended_state(), ended=event.time)
        return self._finish() if self._receipts.keys() >= self._met else []

    def _task_is_gone(self, task: TaskId) -> list[Instruction]:
        self._unanswered.pop(task, None)
        wanted = task in self._restarting or task in self._due
        if not wanted or self.state is RunState.KILLING:
            return []
        self._restarting.discard(task)
        self._due.discard(task)
        return self._start(task, self._tasks[task].attempt + 1)

    def _give_up(self) -> list[Instruction]:
        """A host that did not come back in time is named as unconfirmed; one that is still being
        logged in to has its time."""
        missing = self._met - self._receipts.keys()
        if any(self._hosts[host].state is HostState.CONNECTING for host in missing):
            return [ev.SetTimer("give-up", 1.0)]
        for host in self._met - self._receipts.keys():
            until = self._hosts[host].lease_until or self._now + self.plan.settings.lease
            self._receipts[host] = HostReceipt(
                host, unreachable_until=until + self.plan.settings.grace
            )
        return self._finish()

    def _finish(self) -> list[Instruction]:
        order = [host for host in self._hosts if host in self._receipts]
        self._receipt = Receipt(tuple(self._receipts[host] for host in order))
        outcome, code = self._verdict()
        leaves: list[Instruction] = [
            ev.LeaveHost(host) for host in order if self._receipts[host].confirmed
        ]
        return [*leaves, *self._end(outcome, code if self._receipt.clean else 4)]

    def _verdict(self) -> tuple[Outcome, int]:
        if self._cause is Cause.PERSON:
            return Outcome.KILLED, 130
        if self._cause is Cause.TERM:
            return Outcome.TERMINATED, 143
        if self._cause is Cause.PREFLIGHT:
            return Outcome.PREFLIGHT, 3
        failed = [v for v in self._deciding() if v.state is TaskState.FAILED]
        if self._cause is Cause.FAILURE or failed:
            return Outcome.FAILED, 1
        return Outcome.SUCCESS, 0

    def _end(self, outcome: Outcome, exit_code: int) -> list[Instruction]:
        self.state = RunState.ENDED
        self._outcome, self._exit_code, self._ended = outcome, exit_code, self._now
        return [ev.End(outcome, exit_code)]

    # --- small things ---------------------------------------------------------------------

    def _timer(self, event: ev.Timer) -> list[Instruction]:
        what, _, rest = event.name.partition(":")
        if what == "give-up":
            return self._give_up() if self.state is RunState.KILLING else []
        if what == "lease":
            return self._lease_over(rest)
        name, _, number = rest.rpartition(":")
        task, attempt = TaskId.parse(name), int(number)
        if what == "ready":
            return self._not_ready(task, attempt)
        if what == "after":
            return self._task_ready(ev.TaskReady(event.time, task, attempt))
        waits = self._tasks[task].state is TaskState.BACKOFF and self._current(task, attempt)
        if not waits or self.state is RunState.KILLING or task in self._restarting:
            return []
        if task in self._unanswered:
            self._due.add(task)
            return []
        return self._start(task, attempt + 1)

    def _noted(self, event: ev.Noted) -> list[Instruction]:
        self._note(event.text)
        return []

    def _current(self, task: TaskId, attempt: int) -> bool:
        return self._tasks[task].attempt == attempt

    def _grace_left(self) -> float:
        if self._hurried or self._kill_deadline is None:
            return 0.0
        return max(0.0, self._kill_deadline - self._now)

    def _ended_state(self) -> TaskState:
        person = self._cause in (Cause.PERSON, Cause.TERM)
        return TaskState.KILLED if person else TaskState.STOPPED

    def _waiting(self) -> str:
        if self.state is RunState.CONNECTING:
            hosts = [v.name for v in self._hosts.values() if v.state is HostState.CONNECTING]
            return ", ".join(hosts)
        if self.state is RunState.STAGING:
            return ", ".join(
                _how_far(v) for v in self._hosts.values() if v.name not in self._staged
            )
        if self.state is RunState.STARTING and 0 <= self._stage < len(self.plan.stages):
            tasks = [self._tasks[task] for task in self.plan.stages[self._stage]]
            return ", ".join(f"{v.id} on {v.address}" for v in tasks if self._holds_up(v))
        return ""

    def _note(self, text: str) -> None:
        self._notes = (*self._notes[-99:], text)

    def _task(self, task: TaskId, **changes: Any) -> TaskView:
        self._tasks[task] = replace(self._tasks[task], **changes)
        return self._tasks[task]

    def _host(self, host: str, **changes: Any) -> None:
        self._hosts[host] = replace(self._hosts[host], **changes)


def _how_far(view: HostView) -> str:
    """A host that gets files."""
    if not view.staged_total:
        return view.name
    part = 100 * view.staged_bytes // view.staged_total
    return f"{view.name} ({part} % of {view.staged_total / 1e6:.1f} MB)"


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
