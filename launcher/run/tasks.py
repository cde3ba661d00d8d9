"""What tasks do: their ordered start, their attempts, and when the run has what it wants."""

from __future__ import annotations

from ..cluster.spec import OnFailure, Success
from ..ids import TaskId
from ..plan.plan import After, Finished, Role, Started
from . import events as ev
from .ending import Cause, Ending
from .events import Instruction
from .snapshot import Attempt
from .states import RunState, TaskState
from .views import Views, holds_up

MAX_BACKOFF = 30.0

_AT_WORK = (RunState.STARTING, RunState.RUNNING, RunState.FINISHING)


class Tasks:
    """Starts a run's tasks stage by stage, again where the rules say so, and knows when the run
    is over."""

    def __init__(self, views: Views, ending: Ending) -> None:
        self._views = views
        self._ending = ending
        self.stage = -1
        self.stage_since = views.now
        self.total_steps = views.plan.total_steps
        self._restarting: set[TaskId] = set()
        self._unanswered: dict[TaskId, float] = {}
        """Kills of single tasks (by their grace) whose receipt has not come: what comes after
        them waits for it, and a host that was cut off is asked again."""
        self._due: set[TaskId] = set()
        """Tasks whose next attempt only waits for such a receipt."""
        self._by_person: set[TaskId] = set()
        self._hung: set[TaskId] = set()
        self._served: set[TaskId] = set()
        """Workers that only served a chief, which is done: the rule ends them."""
        self._watched: set[TaskId] = set()

    # --- the ordered start ----------------------------------------------------------------

    def begin(self) -> list[Instruction]:
        """All files are where they belong: the first stage."""
        for task in self._views.tasks:
            self._views.task(task, state=TaskState.PENDING)
        return self._start_stage(0)

    def go_on(self) -> list[Instruction]:
        """Attached to a run that has begun: on from the first stage that is not ready."""
        self._views.state = RunState.STARTING
        again: list[Instruction] = [
            ev.SetTimer(f"again:{view.id}:{view.attempt}", 1.0)
            for view in self._views.tasks.values()
            if view.state is TaskState.BACKOFF
        ]
        for number, stage in enumerate(self._views.plan.stages):
            views = [self._views.tasks[task] for task in stage]
            if any(holds_up(view) for view in views):
                self.stage, self.stage_since = number, self._views.now
                fresh = [view.id for view in views if not view.attempt]
                return [*again, *(i for task in fresh for i in self._start(task, 1))]
        return [*again, *self._start_stage(len(self._views.plan.stages))]

    def _start_stage(self, number: int) -> list[Instruction]:
        self.stage, self.stage_since = number, self._views.now
        if number >= len(self._views.plan.stages):
            self._views.state = RunState.RUNNING
            return self._look_at_end()
        return [i for task in self._views.plan.stages[number] for i in self._start(task, 1)]

    def _start(self, task: TaskId, attempt: int) -> list[Instruction]:
        self._views.task(
            task,
            state=TaskState.STARTING,
            attempt=attempt,
            pid=None,
            exit_code=None,
            exit_signal=None,
            reason="",
            started=self._views.now,
            ended=None,
        )
        plan = self._views.plan.task(task)
        start: list[Instruction] = [ev.StartTask(plan, attempt)]
        if not isinstance(plan.ready, Finished):  # an installation takes the time it takes
            start.append(ev.SetTimer(f"ready:{task}:{attempt}", self._views.plan.start_timeout))
        return start

    def started(self, event: ev.TaskStarted) -> list[Instruction]:
        """Its process lives, or could not be made."""
        if not self._views.is_current(event.task, event.attempt):
            return []
        if event.error:
            self._views.task(event.task, reason=event.error)
            return self._failed(event.task, event.error, ())
        begun = Attempt(event.attempt, event.log_start, event.time)
        attempts = self._views.tasks[event.task].attempts
        if all(attempt.number != event.attempt for attempt in attempts):
            attempts = (*attempts, begun)
        self._views.task(event.task, pid=event.pid, attempts=attempts)
        if event.held:
            self._views.task(event.task, reason=f"its port is held by {event.held}")
        ready = self._views.plan.task(event.task).ready
        if isinstance(ready, Started):
            return self.ready(event.task, event.attempt)
        if isinstance(ready, After):
            return [ev.SetTimer(f"after:{event.task}:{event.attempt}", ready.seconds)]
        return []

    def ready(self, task: TaskId, attempt: int) -> list[Instruction]:
        """It listens, or whatever else its plan calls ready."""
        starting = self._views.tasks[task].state is TaskState.STARTING
        if not starting or not self._views.is_current(task, attempt):
            return []
        self._views.task(task, state=TaskState.READY, reason="")
        return self._next_stage()

    def _next_stage(self) -> list[Instruction]:
        if self._views.state is not RunState.STARTING:
            return []
        stage = self._views.plan.stages[self.stage]
        if any(holds_up(self._views.tasks[task]) for task in stage):
            return []
        return self._start_stage(self.stage + 1)

    def _not_ready(self, task: TaskId, attempt: int) -> list[Instruction]:
        view = self._views.tasks[task]
        if not self._views.is_current(task, attempt) or view.state is not TaskState.STARTING:
            return []
        held = f" ({view.reason})" if view.reason else ""
        reason = f"not ready after {self._views.plan.start_timeout:g} s{held}"
        self._views.task(task, reason=reason)
        return self._failed(task, reason, ())

    # --- what tasks do --------------------------------------------------------------------

    def metric(self, event: ev.MetricSeen) -> list[Instruction]:
        """A line of its log had figures: it works."""
        view = self._views.tasks[event.task]
        values = dict(event.values)
        if "total" in values and self._views.plan.total_steps is None:
            self.total_steps = int(values["total"])
        self._views.task(
            event.task,
            step=int(values["step"]) if "step" in values else view.step,
            loss=values.get("loss", view.loss),
            rate=event.rate if event.rate is not None else view.rate,
            metrics={**view.metrics, **values},
            state=TaskState.RUNNING if view.state is TaskState.READY else view.state,
        )
        return []

    def exited(self, event: ev.TaskExited, reason: str = "") -> list[Instruction]:
        """Its process has ended; what that means, the rules say."""
        task, view = event.task, self._views.tasks[event.task]
        if not self._views.is_current(task, event.attempt) or view.exit_code is not None:
            return []
        if view.exit_signal is not None:
            return []
        self._views.task(
            task, exit_code=event.status, exit_signal=event.signal, ended=view.ended or event.time
        )
        if view.state.ended or self._views.state is RunState.ENDED:
            return []  # only the details were missing
        if event.held and view.state is TaskState.STARTING:
            reason = f"its port is held by {event.held}"
        if reason:
            self._views.task(task, reason=reason)
        if task in self._restarting:
            self._views.task(task, state=TaskState.BACKOFF)
            return []
        if task in self._served:
            self._views.task(task, state=TaskState.STOPPED)
            return self._look_at_end()
        if task in self._hung:
            return self._failed(task, self._views.tasks[task].reason, event.tail)
        if self._views.state is RunState.KILLING:
            if event.status == 0 and self._ending.cause is not Cause.RULE:
                self._views.task(task, state=TaskState.EXITED)
            else:
                self._views.task(task, state=self._ending.task_state)
            return []
        if task in self._by_person:
            self._views.task(task, state=TaskState.KILLED)
            if self._views.plan.task(task).role in (Role.PS, Role.CHIEF, Role.PREPARE):
                return self._ending.everything(Cause.PERSON)
            return [*self._next_stage(), *self._look_at_end()]
        if event.status == 0:
            self._views.task(task, state=TaskState.EXITED)
            return [*self._next_stage(), *self._look_at_end()]
        how = f"exit {event.status}" if event.signal is None else f"killed by {event.signal}"
        if event.status is None and event.signal is None:
            how = "ended unseen"
            reason = reason or self._views.was.get(view.host, "")
        return self._failed(task, f"{how}{f', {reason}' if reason else ''}", event.tail)

    def _failed(self, task: TaskId, how: str, tail: tuple[str, ...]) -> list[Instruction]:
        plan = self._views.plan.task(task)
        view = self._views.task(task, state=TaskState.FAILED, ended=self._views.now)
        settings = self._views.plan.settings
        if self._views.state is RunState.KILLING:
            return []
        may_restart = settings.on_failure is OnFailure.RESTART and task not in self._hung
        if may_restart and view.attempt <= plan.max_restarts:
            delay = min(MAX_BACKOFF, 2.0 ** (view.attempt - 1))
            self._views.task(task, state=TaskState.BACKOFF)
            self._views.note(
                f"{task} on {plan.host}: {how}; attempt {view.attempt + 1} in {delay:g} s"
            )
            return [
                self._kill_task(task, 0.0),  # what the attempt has left behind
                ev.SetTimer(f"again:{task}:{view.attempt}", delay),
            ]
        if plan.role in (Role.EVALUATOR, Role.HELPER):
            self._views.note(f"{task} on {plan.host}: {how}")
            return [*self._next_stage(), *self._look_at_end()]
        self._views.fail(task, how, tail)
        needed = plan.role in (Role.PS, Role.PREPARE)
        if settings.on_failure is OnFailure.KEEP and not needed:
            return [*self._next_stage(), *self._look_at_end()]
        return self._ending.everything(Cause.FAILURE)

    def restart(self, event: ev.Restart) -> list[Instruction]:
        """A person wants it again: first its end, then the next attempt."""
        view = self._views.tasks[event.task]
        if self._views.state not in _AT_WORK:
            return []
        if not view.attempt or event.task in self._restarting:
            return []
        self._restarting.add(event.task)
        grace = 0.0 if event.hard or not view.state.live else self._views.plan.settings.grace
        return [self._kill_task(event.task, grace)]

    def signal(self, event: ev.SignalTask) -> list[Instruction]:
        """A person wants it ended."""
        view = self._views.tasks[event.task]
        if not view.state.live:
            return []
        self._by_person.add(event.task)
        grace = self._views.plan.settings.grace if event.name == "TERM" else 0.0
        return [self._kill_task(event.task, grace)]

    def unanswered(self, host: str) -> list[Instruction]:
        """After a cut: the host is asked again for what it has not confirmed."""
        return [
            ev.KillHost(host, (task,), grace)
            for task, grace in self._unanswered.items()
            if self._views.tasks[task].host == host
        ]

    def _kill_task(self, task: TaskId, grace: float) -> Instruction:
        self._unanswered[task] = grace
        return ev.KillHost(self._views.tasks[task].host, (task,), grace)

    # --- when the run has what it wants ---------------------------------------------------

    def _look_at_end(self) -> list[Instruction]:
        if self._views.state not in _AT_WORK:
            return []
        if self._views.state is RunState.STARTING and self.stage < len(self._views.plan.stages):
            return []
        deciding = self._views.deciding()
        left = [view for view in deciding if not view.state.ended]
        if not left:
            return self._ending.everything(Cause.RULE)
        done = [view for view in deciding if view.state is TaskState.EXITED]
        chief = self._views.plan.chief
        by_chief = self._views.plan.settings.success is Success.CHIEF and chief is not None
        finished = by_chief and any(view.id == chief for view in done)
        if finished:
            self._views.state = RunState.FINISHING
        jobs = {view.id.job for view in done}
        waiting = [v.id for v in left if finished or v.id.job in jobs]
        fresh = [task for task in waiting if task not in self._watched]
        self._watched.update(fresh)
        return [ev.WatchSilence(task, self._views.plan.settings.finish_timeout) for task in fresh]

    def silent(self, event: ev.Silent) -> list[Instruction]:
        """It says nothing although others have ended well: it hangs."""
        view = self._views.tasks[event.task]
        if not view.state.live or self._views.state is RunState.KILLING:
            return []
        if view.state is TaskState.LOST:  # it is we who hear nothing
            return [ev.WatchSilence(event.task, self._views.plan.settings.finish_timeout)]
        if self._only_serves(event.task):
            self._served.add(event.task)
            return [self._kill_task(event.task, self._views.plan.settings.grace)]
        self._hung.add(event.task)
        reason = f"hangs at its end: no output for {event.seconds:.0f} s after others had ended"
        self._views.task(event.task, reason=reason)
        return [self._kill_task(event.task, self._views.plan.settings.grace)]

    def _only_serves(self, task: TaskId) -> bool:
        """A worker beside a chief of another job that has ended well, as TensorFlow's parameter
        server training has it: it `join()`s, and none of its job has ended by itself."""
        chief = self._views.plan.chief
        if self._views.state is not RunState.FINISHING or chief is None or chief.job == task.job:
            return False
        ended = (view.id.job for view in self._views.tasks.values() if view.state.ended)
        stopped = (served.job for served in self._served)
        return list(ended).count(task.job) <= list(stopped).count(task.job)

    def is_gone(self, task: TaskId) -> list[Instruction]:
        """The receipt of a kill of this task alone: nothing of the attempt lives."""
        self._unanswered.pop(task, None)
        wanted = task in self._restarting or task in self._due
        if not wanted or self._views.state is RunState.KILLING:
            return []
        self._restarting.discard(task)
        self._due.discard(task)
        return self._start(task, self._views.tasks[task].attempt + 1)

    def timer(self, what: str, task: TaskId, attempt: int) -> list[Instruction]:
        """A timer of an attempt: not ready in time, ready by time, or its pause is over."""
        if what == "ready":
            return self._not_ready(task, attempt)
        if what == "after":
            return self.ready(task, attempt)
        paused = self._views.tasks[task].state is TaskState.BACKOFF
        if not paused or not self._views.is_current(task, attempt):
            return []
        if self._views.state is RunState.KILLING or task in self._restarting:
            return []
        if task in self._unanswered:
            self._due.add(task)
            return []
        return self._start(task, attempt + 1)
