"""Tasks of a run: their ordered start, their attempts, and when the run has what it wants."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ..cluster.choices import OnFailure
from ..cluster.readiness import AUTO_SECONDS, After, Auto, Finished, ProcessStarted, figures_show
from ..cluster.roles import Role
from ..ids import TaskId
from ..plan.facts import HostFacts
from ..plan.run_plan import missing
from ..quantities import age
from . import events as ev
from .instructions import (
    Instruction,
    KillHost,
    LookAtOthers,
    ReleaseTask,
    SetTimer,
    StartTask,
    WatchSilence,
)
from .restart import RestartOfAll
from .shutdown import Shutdown
from .snapshot import AttemptStart, HostReceipt, TaskView
from .state import RunData, blocks_stage
from .states import AT_WORK, Cause, Halt, HostState, Intent, RunPhase, StoppedBy, TaskState

MAX_BACKOFF = 30.0
LOOK_SECONDS = 2.0
"""Longest time for which the end of a run waits for a look at its other tasks."""
_MOST_ATTEMPTS = 100
"""Attempts of a task that a snapshot has: what changes of the task is sent with all of them."""
_NOTHING_HAPPENED: Mapping[str, Any] = {
    "pid": None,
    "exit_code": None,
    "exit_signal": None,
    "stopped_by": StoppedBy.NOBODY,
    "out_of_memory": False,
    "full_disks": (),
    "reason": "",
    "left": None,
    "stalled_since": None,
    "halted": Halt.NONE,
    "halted_since": None,
    "intent": Intent.NONE,
    "restart_due": False,
    "kill_grace": None,
    "state_before_loss": None,
}
"""Fields that are reset for a new attempt."""
_ASKED = {
    StoppedBy.LAUNCHER: "another launcher has ended it",
    StoppedBy.AGENT: "its host's agent has ended it",
    StoppedBy.SIGNAL: "a signal from outside has come before",
}
_RESUME_SECONDS = 1.0
"""Pause before the next attempt of a task that waited for it when its launcher died."""


class Tasks:
    """Starts a run's tasks stage by stage, again where the rules say so, and knows when the run
    is over."""

    def __init__(self, data: RunData, shutdown: Shutdown, restart: RestartOfAll) -> None:
        self._data = data
        self._shutdown = shutdown
        self._restart = restart

    # --- the ordered start ----------------------------------------------------------------

    def begin(self) -> list[Instruction]:
        """Starts the first stage: all files are where they belong."""
        for task, view in self._data.tasks.items():
            if view.state is TaskState.STAGING:
                self._data.update_task(task, state=TaskState.PENDING)
        self._data.update_run(state=RunPhase.STARTING)
        return self._start_stage(0)

    def resume(self) -> list[Instruction]:
        """Goes on with a run that has begun: with the end of its tasks, where they were to start
        again, else from the first stage that is not ready."""
        data = self._data
        data.update_run(state=RunPhase.STARTING)
        again: list[Instruction] = [
            SetTimer(ev.RestartDelay(task, view.attempt), _RESUME_SECONDS)
            for task, view in data.tasks.items()
            if view.state is TaskState.BACKOFF and not data.ends_with_all(task)
        ]
        again += self.renew_time_limits(data.tasks.values())
        if data.run.restart_due:
            return [*again, *self._restart.end_attempt()]
        for number, stage in enumerate(data.plan.stages):
            if any(blocks_stage(view) or view.warming for view in data.views_of(stage)):
                return [*again, *self._enter_stage(number)]
        return [*again, *self._start_stage(len(data.plan.stages))]

    def begin_again(self, event: ev.PortsPicked) -> list[Instruction]:
        """Starts the next attempt of all cluster tasks, from the first stage: nothing of the last
        one is left, and the ports are free."""
        data = self._data
        if data.phase is not RunPhase.RESTARTING or data.ending:
            return []
        number = data.run.attempt + 1
        data.update_run(attempt=number, restart_due=False, verdict=None, state=RunPhase.STARTING)
        data.looked_for, data.waited_in_vain = None, 0.0
        data.replan(self._with_ports(event))
        for task in data.cluster_tasks:
            self._await_stage(task)
        return self._start_stage(0)

    def _with_ports(self, event: ev.PortsPicked) -> dict[str, HostFacts]:
        """The facts of the hosts, with the ports that were picked now."""
        data = self._data
        ports: dict[str, dict[TaskId, int]] = {}
        for task, port in event.ports.items():
            ports.setdefault(data.tasks[task].host, {})[task] = port
        known = {host: data.host_facts.get(host, HostFacts()) for host in ports}
        return {h: replace(facts, ports={**facts.ports, **ports[h]}) for h, facts in known.items()}

    def _await_stage(self, task: TaskId) -> None:
        """Has a task that has ended wait for its stage, which comes again."""
        if self._data.tasks[task].state is not TaskState.PENDING:
            self._data.update_task(
                task, state=TaskState.PENDING, started=None, ended=None, **_NOTHING_HAPPENED
            )

    def _start_stage(self, number: int) -> list[Instruction]:
        data = self._data
        if number >= len(data.plan.stages):
            data.update_run(stage=number, waiting_since=data.now, state=RunPhase.RUNNING)
            return self._check_end()
        return [*self._enter_stage(number), *self._next_stage()]

    def _enter_stage(self, number: int) -> list[Instruction]:
        """Starts a stage's tasks, and lets those start that wait at their gates. Later ones begin
        to import their modules, but not beside `prepare` lines, which may install these."""
        data = self._data
        data.update_run(stage=number, waiting_since=data.now)
        out: list[Instruction] = []
        for task in data.plan.stages[number]:
            view = data.tasks[task]
            if view.state is TaskState.PENDING:
                out += self._start(task, self._next_number(view))
            elif view.warming:
                out += self._release(view)
        if any(data.plan.task(task).role is Role.PREPARE for task in data.plan.stages[number]):
            return out
        later = [task for stage in data.plan.stages[number + 1 :] for task in stage]
        views = [data.tasks[task] for task in later if data.plan.task(task).warm]
        warm = [view for view in views if view.state is TaskState.PENDING]
        return [*out, *(i for view in warm for i in self._start(view.id, self._next_number(view)))]

    def _next_number(self, view: TaskView) -> int:
        """The number of a task's next attempt: that of all tasks, where it starts with them, unless
        it has had more."""
        number = view.attempt + 1
        together = self._data.plan.task(view.id).role.in_cluster
        return max(number, self._data.run.attempt) if together else number

    def _release(self, view: TaskView) -> list[Instruction]:
        """The stage of a task has come that waits at its gate, or is about to."""
        data = self._data
        data.update_task(
            view.id, state=TaskState.STARTING, started=data.now, state_before_loss=None
        )
        lost = data.hosts[view.host].state is HostState.LOST  # its time begins later
        return [
            ReleaseTask(data.plan.task(view.id), view.attempt),
            *([] if lost else self._time_limit(view.id, view.attempt)),
            *(self._await_ready(view.id, view.attempt) if view.pid else ()),
        ]

    def _start(self, task: TaskId, attempt: int) -> list[Instruction]:
        plan = self._data.plan.task(task)
        gated = plan.warm is not None and self._data.is_early(task)
        self.begin_attempt(task, attempt, gated=gated)
        start = StartTask(plan, attempt, gated)
        if self._data.lose_where_host_is_lost(task):
            return [start]  # it is repeated when the host is back, and its time begins then
        return [start, *([] if gated else self._time_limit(task, attempt))]

    def begin_attempt(self, task: TaskId, attempt: int, *, gated: bool) -> TaskView:
        """Makes an attempt the present one: nothing of the one before it is left. What its host's
        agent has said when it ended everything says nothing of this one."""
        data = self._data
        data.silence_watched.discard(task)
        data.serving.discard(task)
        data.raised.pop(task, None)
        data.host_records[data.tasks[task].host].last_word = None
        return data.update_task(
            task,
            state=TaskState.WARMING if gated else TaskState.STARTING,
            attempt=attempt,
            started=data.now,
            ended=None,
            **_NOTHING_HAPPENED,
        )

    def _time_limit(self, task: TaskId, attempt: int) -> list[Instruction]:
        plan = self._data.plan
        if isinstance(plan.task(task).ready, Finished):  # an installation takes the time it takes
            return []
        return [SetTimer(ev.ReadyTimeout(task, attempt), plan.start_timeout)]

    def renew_time_limits(self, views: Iterable[TaskView]) -> list[Instruction]:
        """Gives those that are starting their full time again: the timers of a launcher that died
        are gone, and one that fires while a host is lost counts for nothing."""
        starting = [view for view in views if view.state is TaskState.STARTING]
        return [limit for view in starting for limit in self._time_limit(view.id, view.attempt)]

    def on_started(self, event: ev.TaskStarted) -> list[Instruction]:
        """Its process lives, or could not be made."""
        data, task = self._data, event.task
        if not event.attempt or not data.is_current(task, event.attempt):
            return []
        if event.error:
            if not data.tasks[task].state.live:
                return []
            if event.refused:
                return self._refused(event)
            why = event.agent_ends
            how = f"not started, ended from outside: {why}" if why else event.error
            data.update_task(task, reason=why or event.error, state_before_loss=None)
            return self._failed(task, how, (), outside=bool(why))
        attempts = data.tasks[task].attempts
        if all(attempt.number != event.attempt for attempt in attempts):
            attempt = AttemptStart(event.attempt, event.log_start, event.time)
            attempts = (*attempts, attempt)[-_MOST_ATTEMPTS:]
        data.update_task(task, pid=event.pid, attempts=attempts)
        if event.port_holder:
            data.update_task(task, reason=f"its port is held by {event.port_holder}")
        if data.tasks[task].state is TaskState.WARMING:
            return []
        return self._await_ready(task, event.attempt)

    def _refused(self, event: ev.TaskStarted) -> list[Instruction]:
        """Its host starts nothing more of this run: somebody has ended it there."""
        data, task = self._data, event.task
        killing = data.phase is RunPhase.KILLING
        state = self._shutdown.task_state if killing else TaskState.STOPPED
        data.update_task(task, state=state, ended=data.now, state_before_loss=None)
        if killing:
            return []
        data.update_task(task, reason=event.error)
        data.fail(task, event.error, ())
        return self._shutdown.kill_all(Cause.OUTSIDE)

    def _await_ready(self, task: TaskId, attempt: int) -> list[Instruction]:
        """Its program runs; the rest of its readiness the host or its log will tell."""
        ready = self._data.plan.task(task).ready
        if isinstance(ready, ProcessStarted):
            return self.on_ready(task, attempt)
        if isinstance(ready, After):
            return [SetTimer(ev.ReadyDelay(task, attempt), ready.seconds)]
        if isinstance(ready, Auto):
            return [SetTimer(ev.ReadyDelay(task, attempt), AUTO_SECONDS)]
        return []

    def on_ready(self, task: TaskId, attempt: int) -> list[Instruction]:
        """The task listens, or whatever else its plan calls ready."""
        data = self._data
        if not data.awaits_ready(task, attempt):
            return []
        data.update_task(task, state=TaskState.READY, reason="")
        return self._next_stage()

    def on_loopback(self, event: ev.ListensOnLoopback) -> list[Instruction]:
        """Says, once, that the tasks of other hosts will not reach it."""
        data, task = self._data, event.task
        plan, told = data.plan.task(task), (task, event.attempt)
        others = any(one.in_cluster and one.host != plan.host for one in data.plan.tasks)
        if others and plan.in_cluster and told not in data.told_loopback:
            data.told_loopback.add(told)
            name = data.plan.host(plan.host).address
            data.note(
                f"{task} on {plan.host} listens on {event.address} only, where no other host "
                f"reaches it: correct {name} in /etc/hosts there, or the address in its program"
            )
        return []

    def on_metrics(self, event: ev.MetricsSeen) -> list[Instruction]:
        """A line of its log had figures: it works."""
        data, view = self._data, self._data.tasks[event.task]
        out: list[Instruction] = []
        if event.total_steps is not None and data.plan.total_steps is None:
            data.update_run(total_steps=event.total_steps)
        if view.pid is not None and figures_show(data.plan.task(event.task).ready):
            out = self.on_ready(event.task, view.attempt)
        if data.tasks[event.task].state is TaskState.READY:
            data.update_task(event.task, state=TaskState.RUNNING)
        return out

    def _next_stage(self) -> list[Instruction]:
        data = self._data
        if data.phase is not RunPhase.STARTING or data.end_decided:
            return []
        # From the last one: it is the last to be ready, too.
        if any(
            blocks_stage(data.tasks[task]) for task in reversed(data.plan.stages[data.run.stage])
        ):
            return []
        return self._start_stage(data.run.stage + 1)

    def on_ready_timeout(self, timer: ev.ReadyTimeout) -> list[Instruction]:
        """Fails an attempt that is still starting. One that lives, and whose port nobody has asked
        for, has been waited for long enough."""
        data, task = self._data, timer.task
        if not data.awaits_ready(task, timer.attempt) or data.ends_with_all(task):
            return []
        view = data.tasks[task]
        if not data.must_be_ready(task):
            if data.run.stage + 1 < len(data.plan.stages):
                data.waited_in_vain = data.plan.start_timeout
                data.note(
                    f"{task} on {view.host} lives, and has not listened on port "
                    f"{data.plan.task(task).port} for {data.plan.start_timeout:g} s: "
                    "the next stage does not wait for it any longer"
                )
            return self.on_ready(task, timer.attempt)
        held = f" ({view.reason})" if view.reason else ""
        waited = f"not ready after {data.plan.start_timeout:g} s{held}"
        plan = data.plan.task(task)
        reason = f"{waited}: {missing(data.cluster, plan, started=view.pid is not None)}"
        data.update_task(task, reason=reason)
        return self._failed(task, reason, ())

    # --- exits ----------------------------------------------------------------------------

    def on_exited(self, event: ev.TaskExited, reason: str = "") -> list[Instruction]:
        """Its process has ended; what that means, its intent and the rules say."""
        data, task = self._data, event.task
        view = data.tasks[task]
        told = view.exit_code is not None or view.exit_signal is not None
        if told or not event.attempt or not data.is_current(task, event.attempt):
            return []
        data.update_task(
            task,
            exit_code=event.status,
            exit_signal=event.signal,
            stopped_by=event.stopped_by,
            out_of_memory=event.out_of_memory,
            full_disks=event.full,
            ended=view.ended or event.ended or event.time,
        )
        if not view.state.live or data.phase is RunPhase.ENDED:
            return []  # only the details were missing
        data.update_task(task, state_before_loss=None)
        if event.port_holder and view.state is TaskState.STARTING:
            reason = f"its port is held by {event.port_holder}"
        reason = reason or event.start_problem
        if reason:
            data.update_task(task, reason=reason)
        if data.phase is RunPhase.KILLING:
            by_itself = event.status == 0 and not event.stopped_by
            state = TaskState.EXITED if by_itself else self._shutdown.task_state
            data.update_task(task, state=state)
            return []
        if data.ends_with_all(task):
            data.update_task(task, state=TaskState.BACKOFF)
            return self._end_sooner(event)
        match view.intent:
            case Intent.RESTART:
                data.update_task(task, state=TaskState.BACKOFF)
                return []
            case Intent.STOP:
                data.update_task(task, state=TaskState.STOPPED)
                return self._check_end()
            case Intent.FAIL | Intent.RAISED:
                return self._failed(task, data.tasks[task].reason, event.tail, event.misses_peer)
            case Intent.KILL:
                data.update_task(task, state=TaskState.KILLED)
                if data.plan.task(task).role in (Role.PS, Role.CHIEF, Role.PREPARE):
                    return self._shutdown.kill_all(Cause.PERSON)
                if task in data.plan.ending.decide:
                    data.note(f"{task} was ended by the user: without it the run is not a success")
                return self._after_end()
        how = f"exit {event.status}" if event.signal is None else f"killed by SIG{event.signal}"
        how += ", out of memory" if event.out_of_memory else ""
        self._note_full_disks(view, event)
        if event.stopped_by is StoppedBy.AGENT or (event.stopped_by and event.status == 0):
            asked = event.stopped_why or _ASKED[event.stopped_by]
            data.update_task(task, reason=asked)
            return self._failed(
                task,
                f"{how}, ended from outside: {asked}",
                event.tail,
                event.misses_peer,
                outside=True,
            )
        if event.status == 0:
            left = event.left if data.plan.task(task).in_cluster else None
            if left is not None and left.text:
                data.update_task(task, left=left, reason=left.text)
                if left.is_the_work:
                    return self._failed(task, f"exit 0, {left.text}", event.tail, event.misses_peer)
                data.note(f"{task} on {view.host} {left.text}")
            data.update_task(task, state=TaskState.EXITED)
            return self._after_end()
        if event.status is None and event.signal is None:
            how = "ended unseen"
            reason = reason or data.host_records[view.host].previous_agent_exit
        how = f"{how}{f', {reason}' if reason else ''}"
        return self._failed(task, how, event.tail, event.misses_peer)

    def _failed(
        self,
        task: TaskId,
        how: str,
        tail: tuple[str, ...],
        misses_peer: bool = False,
        *,
        outside: bool = False,
    ) -> list[Instruction]:
        """An attempt has not done its work. `misses_peer`: it says that another task is at fault;
        `outside`: it was ended from outside of the run."""
        data = self._data
        view, plan, settings = data.tasks[task], data.plan.task(task), data.plan.settings
        killing, ended = data.phase is RunPhase.KILLING, view.ended or data.now
        if data.ends_with_all(task):
            data.update_task(task, state=TaskState.BACKOFF, ended=ended)
            return []
        if outside and data.rule_held and data.serves(task):
            data.update_task(task, state=TaskState.STOPPED)
            return self._after_end()
        if self._restart.may_follow(view):
            data.update_task(task, state=TaskState.BACKOFF, ended=ended)
            self._restart.begin(task, how, tail)
            if data.phase not in AT_WORK:
                return []
            return self._look_first(task, misses_peer) or self._restart.end_attempt()
        may_restart = settings.on_failure is OnFailure.RESTART and view.intent is not Intent.FAIL
        if may_restart and not data.end_decided and view.attempt <= plan.max_restarts:
            attempt = view.attempt
            delay = min(MAX_BACKOFF, 2.0 ** (attempt - 1))
            data.update_task(task, state=TaskState.BACKOFF, ended=ended)
            data.note(f"{task} on {plan.host}: {how}; attempt {attempt + 1} in {delay:g} s")
            return [
                self._kill_task(task, 0.0),  # what the attempt has left behind
                SetTimer(ev.RestartDelay(task, attempt), delay),
            ]
        aside = plan.role in (Role.EVALUATOR, Role.HELPER)
        needed = plan.role in (Role.PS, Role.PREPARE)
        goes_on = aside or (settings.on_failure is OnFailure.KEEP and not needed)
        state = TaskState.STOPPED if outside and not goes_on else TaskState.FAILED
        data.update_task(task, state=state, ended=ended)
        if killing:
            return []
        if aside:
            data.note(f"{task} on {plan.host}: {how}")
            return self._after_end()
        data.fail(task, how, tail)
        if goes_on:
            return self._after_end()
        if outside:
            return self._shutdown.kill_all(Cause.OUTSIDE)
        if data.looked_for is not None and misses_peer:
            return []  # other victims fail at the same moment
        if look := self._look_first(task, misses_peer):
            data.update_run(cause=Cause.FAILURE)
            return look
        return self._shutdown.kill_all(Cause.FAILURE)

    def _look_first(self, task: TaskId, misses_peer: bool) -> list[Instruction]:
        """Has the others looked at where a failed task says that one of them is at fault: where
        that is, nobody can see when all have been ended. Any other failure, a person or the time
        limit end the wait. Before the run is at work nobody looks: whoever takes it up waits for
        hosts."""
        if self._data.looked_for or self._data.phase not in AT_WORK:
            return []
        if not (misses_peer and self._others_live(task)):
            return []
        self._data.looked_for = task
        return [LookAtOthers(task), SetTimer(ev.LookTimeout(task), LOOK_SECONDS)]

    def _end_sooner(self, event: ev.TaskExited) -> list[Instruction]:
        """A task has ended while the others are looked at before all start again: with a failure of
        its own nothing is waited for."""
        waits = self._data.looked_for is not None and self._data.phase in AT_WORK
        own = event.status != 0 and not event.misses_peer
        return self._restart.end_attempt() if waits and own else []

    def _others_live(self, task: TaskId) -> bool:
        tasks = self._data.plan.tasks
        return any(self._data.tasks[one.id].state.live for one in tasks if one.id != task)

    def on_looked_at(self, task: TaskId) -> list[Instruction]:
        """The others have been looked at, or the time for that is over: the failure ends the run,
        or its present attempt."""
        if self._data.looked_for != task or self._data.phase not in AT_WORK:
            return []
        if self._data.run.restart_due:
            return self._restart.end_attempt()
        return self._shutdown.kill_all(Cause.FAILURE)

    def _note_full_disks(self, view: TaskView, event: ev.TaskExited) -> None:
        """Says which disks were full when a task had failed; each once, however many fail of it."""
        others = [one for one in self._data.on_host(view.host) if one.id != view.id]
        said = {disk.partition(":")[0] for one in others for disk in one.full_disks}
        full = [disk for disk in event.full if disk.partition(":")[0] not in said]
        if full and event.status != 0:
            disks = "; ".join(full)
            self._data.note(f"{view.id} failed on {view.host} while a disk there was full: {disks}")

    # --- restarts and kills ---------------------------------------------------------------

    def on_restart(self, event: ev.Restart) -> list[Instruction]:
        """A person wants it again: first its end, then the next attempt."""
        data = self._data
        view = data.tasks[event.task]
        begun = view.attempt and view.state is not TaskState.PENDING
        if data.phase not in AT_WORK or not begun or view.intent is Intent.RESTART:
            return []
        if data.end_decided:
            return []
        data.update_task(event.task, intent=Intent.RESTART)
        hard = event.hard or not view.state.live
        return [self._kill_task(event.task, 0.0 if hard else data.plan.settings.grace)]

    def on_signal(self, event: ev.SignalTask) -> list[Instruction]:
        """A person wants it ended."""
        data, view = self._data, self._data.tasks[event.task]
        if not view.state.live:
            return []
        if view.intent is Intent.NONE:
            data.update_task(event.task, intent=Intent.KILL)
        grace = data.plan.settings.grace if event.name == "TERM" else 0.0
        return [self._kill_task(event.task, grace)]

    def unanswered_kills(self, host: str) -> list[Instruction]:
        """The kills that the host has not confirmed; after a cut it is asked again."""
        return [
            KillHost(host, (view.id,), view.kill_grace)
            for view in self._data.on_host(host)
            if view.kill_grace is not None
        ]

    def on_receipt(self, task: TaskId, receipt: HostReceipt) -> list[Instruction]:
        """The receipt of a kill of this task alone. Without survivors nothing of the attempt lives,
        and the next one may begin; never beside one."""
        view = self._data.tasks[task]
        self._data.update_task(task, kill_grace=None, restart_due=False)
        wanted = view.intent is Intent.RESTART or view.restart_due
        if self._data.end_decided or self._data.ends_with_all(task):
            return []
        if receipt.survivors:
            return self._outlived(view, receipt.left_text)
        return self._start(task, view.attempt + 1) if wanted else []

    def _outlived(self, view: TaskView, left: str) -> list[Instruction]:
        """Something of the attempt cannot be ended. A task that waits for its next attempt, or
        hangs at its end, has failed; another one goes on as it is."""
        if view.state is TaskState.BACKOFF:
            self._data.update_task(view.id, intent=Intent.FAIL)
            return self._failed(view.id, f"not started again: {left}", ())
        if view.intent in (Intent.FAIL, Intent.RAISED) and view.state.live:
            return self._failed(view.id, f"{view.reason}; {left}", ())
        if view.intent is Intent.RESTART:
            self._data.update_task(view.id, intent=Intent.NONE)
            self._data.note(f"{view.id} on {view.host} is not started again: {left}")
        return []

    def on_restart_delay(self, timer: ev.RestartDelay) -> list[Instruction]:
        """Starts the next attempt, or as soon as the last one is seen gone."""
        data, task = self._data, timer.task
        view = data.tasks[task]
        paused = view.state is TaskState.BACKOFF and data.is_current(task, timer.attempt)
        if not paused or data.end_decided or view.intent is Intent.RESTART:
            return []
        if data.ends_with_all(task):
            return []
        if view.kill_grace is not None:
            data.update_task(task, restart_due=True)
            return []
        return self._start(task, timer.attempt + 1)

    def _kill_task(self, task: TaskId, grace: float) -> Instruction:
        view = self._data.update_task(task, kill_grace=grace)
        return KillHost(view.host, (task,), grace)

    # --- when the run has what it wants ---------------------------------------------------

    def _after_end(self) -> list[Instruction]:
        return [*self._next_stage(), *self._check_end()]

    def _check_end(self) -> list[Instruction]:
        data = self._data
        if data.phase not in (RunPhase.RUNNING, RunPhase.FINISHING):
            return []
        deciding = data.outcome_tasks()
        left = [view for view in deciding if not view.state.ended]
        if not left:
            return self._shutdown.kill_all(Cause.RULE)
        if stopped := self._stop_servers():
            return stopped
        settings = data.plan.settings
        finished = data.rule_held  # while others are left: by the chief's end
        if finished:
            data.update_run(state=RunPhase.FINISHING)
        jobs = {view.id.job for view in deciding if view.state is TaskState.EXITED}
        fresh = [
            view.id
            for view in left
            if view.id not in data.silence_watched and (finished or view.id.job in jobs)
        ]
        data.silence_watched.update(fresh)
        # What began later may end as much later.
        patience = settings.finish_timeout + data.waited_in_vain
        return [WatchSilence(task, patience) for task in fresh]

    def on_hangs_in_exit(self, event: ev.HangsInExit) -> list[Instruction]:
        """A task has raised, and has not left: it has as long for that as others at the end."""
        data, task = self._data, event.task
        if data.phase not in AT_WORK or not data.is_current(task, event.attempt):
            return []
        if not data.tasks[task].state.live:
            return []
        data.raised[task] = event.exception
        if task in data.silence_watched:
            return []
        data.silence_watched.add(task)
        left = data.plan.settings.finish_timeout - event.seconds
        return [WatchSilence(task, max(1.0, left))]

    def on_stalled(self, event: ev.OutputStalled) -> list[Instruction]:
        """The task writes nothing although others have ended well: it hangs."""
        data = self._data
        view, settings = data.tasks[event.task], data.plan.settings
        ending = data.phase in (RunPhase.KILLING, RunPhase.RESTARTING)
        if not view.state.live or ending:
            return []
        if event.task not in data.silence_watched:  # an earlier attempt was
            return []
        if view.state is TaskState.LOST:
            return self._still_lost(view)
        if view.intent is not Intent.NONE:
            return []
        if exception := data.raised.get(event.task):
            reason = f"raised {exception}, and hangs in its exit"
            data.update_task(event.task, intent=Intent.RAISED, reason=reason)
            return [self._kill_task(event.task, settings.grace)]
        if event.serves and not data.all_must_end:
            data.serving.add(event.task)
            again = WatchSilence(event.task, settings.finish_timeout)
            return self._stop_servers() or [again]
        if self._only_serves(event.task):
            data.update_task(event.task, intent=Intent.STOP)
            return [self._kill_task(event.task, settings.grace)]
        reason = f"hangs at its end: {self._silence(event)}"
        data.update_task(event.task, intent=Intent.FAIL, reason=reason)
        return [self._kill_task(event.task, settings.grace)]

    def _stop_servers(self) -> list[Instruction]:
        """Stops the tasks that only answer others, when everybody who could ask them has ended."""
        data = self._data
        left = [view for view in data.outcome_tasks() if not view.state.ended]
        if any(view.id not in data.serving for view in left):
            return []
        out: list[Instruction] = []
        for view in left:
            if view.intent is Intent.NONE:
                data.update_task(view.id, intent=Intent.STOP)
                out.append(self._kill_task(view.id, data.plan.settings.grace))
        return out

    def on_host_lost(self, host: str) -> list[Instruction]:
        """Watches the host's tasks anew whose silence is watched: they are lost from now on, also
        where their end had been ordered, of which nobody there may have heard."""
        data = self._data
        lost = [view for view in data.on_host(host) if view.state is TaskState.LOST]
        seconds = data.plan.settings.finish_timeout
        return [WatchSilence(v.id, seconds) for v in lost if v.id in data.silence_watched]

    def _still_lost(self, view: TaskView) -> list[Instruction]:
        """Gives a lost task, of which we hear nothing, as long to come back as one that is silent
        where the others have met the rule: from its loss on, if that came later."""
        data, patience = self._data, self._data.plan.settings.finish_timeout
        since = data.host_records[view.host].lost_since
        left = min(patience, since + patience - data.now)
        if not data.rule_held or left > 0:
            return [WatchSilence(view.id, left if data.rule_held else patience)]
        if self._only_serves(view.id):
            changes = {"state": TaskState.STOPPED, "ended": data.now, "state_before_loss": None}
            data.update_task(view.id, intent=Intent.STOP, **changes)
            return self._after_end()
        reason = f"lost for {age(data.now - since)} after the chief had ended"
        data.update_task(view.id, intent=Intent.FAIL, reason=reason, state_before_loss=None)
        return self._failed(view.id, "lost", ())

    def is_needed(self, task: TaskId) -> bool:
        """The run cannot go on without this task: it trains or prepares, or serves others that have
        not met the rule, or its start is waited for."""
        data = self._data
        if not data.serves(task) or not data.tasks[task].state.live:
            return True
        return data.plan.task(task).role is Role.PS and not data.rule_held

    def on_lost_for_good(self, task: TaskId, reason: str) -> list[Instruction]:
        """A task that only serves is not heard of any more: that is shown, and ends nothing."""
        data = self._data
        changes = {"state": TaskState.FAILED, "ended": data.now, "state_before_loss": None}
        view = data.update_task(task, reason=reason, **changes)
        data.note(f"{task} on {view.host} is lost: {reason}")
        return self._after_end()

    def _silence(self, event: ev.OutputStalled) -> str:
        """What a task has done instead of writing, in words; it may name any task as awaited."""
        other = event.awaits and self._data.tasks.get(event.awaits)
        if not other:
            return f"no output for {event.seconds:.0f} s after others had ended"
        waits = f"for {event.seconds:.0f} s it has only waited for {other.id}"
        if other.state.ended and other.ended is not None:
            how = "" if other.state is TaskState.EXITED else f" as {other.state.value}"
            return f"{waits}, which had ended{how} {age(event.time - other.ended)} before"
        return f"{waits}, which is {other.state.value}"

    def _only_serves(self, task: TaskId) -> bool:
        """A worker beside a chief of another job that has ended well, as TensorFlow's parameter
        server training has it: it `join()`s, and none of its job has ended by itself."""
        data = self._data
        chief = data.plan.chief
        if data.phase is not RunPhase.FINISHING or chief is None or chief.job == task.job:
            return False
        views = [view for view in data.tasks.values() if view.id.job == task.job]
        return all(view.intent is Intent.STOP for view in views if view.state.ended)
