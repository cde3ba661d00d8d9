"""The run: a pure state machine. Events in, instructions out; no clock, no asyncio, no I/O.

It knows the order of the start and its gates, the success rule, restarts, kill-all, and when
the run is over. `process` feeds it and carries its instructions out; what it knows of the run
stands in its `views`, from which another launcher makes the same run again; tests feed it events
and compare instructions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..cluster.file_model import ClusterModel
from ..plan.facts import Resume
from . import events as ev
from .allocation import Allocations
from .events import Event
from .gauges import Gauges
from .hosts import Hosts
from .instructions import STARTS, Instruction
from .restart import RestartOfAll
from .shutdown import Shutdown
from .snapshot import (
    HostReceipt,
    Snapshot,
)
from .state import RunData
from .states import AT_WORK, Cause, HostState, Outcome, Purpose, RunPhase
from .story import MOST_EVENTS, story
from .tasks import Tasks
from .validation import check
from .views import Views

_UNDER_WAY = (
    "the run has ended; kill it again to give up the results and hooks that are still under way"
)
_GIVEN_UP = "the run had ended; the results and hooks that were still under way are given up"
_STILL_HEARD = (
    ev.Attached,
    ev.TaskExited,
    ev.NoteAdded,
    ev.ResultsMissing,
    ev.ResultsKept,
    ev.Judged,
    ev.LauncherFailed,
    ev.KillAll,
)
"""Events that matter although the run has ended."""
_FOR: Mapping[Purpose, str] = {
    Purpose.ATTACH: " to supervise the run",
    Purpose.KILL: " to end the run",
    Purpose.UNKNOWN: ", and has not said what for",
}
_CAUSES: Mapping[Outcome | None, Cause] = {
    Outcome.SUCCESS: Cause.RULE,
    Outcome.KILLED: Cause.PERSON,
    Outcome.TERMINATED: Cause.TERM,
    Outcome.PREFLIGHT: Cause.PREFLIGHT,
    Outcome.FAILED: Cause.FAILURE,
}
"""Causes of the end of runs that were ended by another launcher, by their outcome."""


class RunStateMachine:
    """One run, from connecting to the receipt."""

    def __init__(
        self,
        cluster: ClusterModel,
        run_id: str,
        started: float = 0.0,
        *,
        resume: Resume | None = None,
        past: Views | RunData | None = None,
    ) -> None:
        """`started` is the time of the `Begin` that comes first, where it is known; `past` is the
        run as an earlier launcher has recorded it."""
        if not isinstance(past, RunData):
            past = RunData(cluster, run_id, started, resume, past)
        self.data = past
        """All that is known of the run."""
        self.gauges = Gauges(past)
        self._last: deque[Event] = deque(maxlen=MOST_EVENTS)
        self._shutdown = Shutdown(self.data)
        self._restart = RestartOfAll(self.data, self._shutdown)
        self._tasks = Tasks(self.data, self._shutdown, self._restart)
        self._hosts = Hosts(self.data, self._shutdown, self._restart, self._tasks)
        self._allocations = Allocations(self.data, self._shutdown)
        self._handlers: dict[type[Event], Callable[[Any], list[Instruction]]] = {
            ev.Begin: self._begin,
            ev.Attached: self._attached,
            ev.Queued: self._allocations.on_queued,
            ev.Allocated: self._allocations.on_allocated,
            ev.AllocationEnded: self._allocations.on_ended,
            ev.AllocationReleased: self._allocations.on_released,
            ev.HostUp: self._hosts.on_up,
            ev.HostRefused: self._hosts.on_refused,
            ev.HostLost: self._hosts.on_lost,
            ev.AgentSilent: self._hosts.on_silent,
            ev.Background: lambda event: self._hosts.on_background(event.on),
            ev.LeaseConfirmed: lambda event: self._hosts.on_lease_confirmed(
                event.host, event.lease
            ),
            ev.Superseded: self._superseded,
            ev.LauncherFailed: self._launcher_failed,
            ev.HostsChecked: self._hosts.on_checked,
            ev.Staged: self._hosts.on_staged,
            ev.PortsPicked: self._tasks.begin_again,
            ev.TaskStarted: self._tasks.on_started,
            ev.TaskReady: lambda event: self._tasks.on_ready(event.task, event.attempt),
            ev.ListensOnLoopback: self._tasks.on_loopback,
            ev.TaskExited: self._tasks.on_exited,
            ev.MetricsSeen: self._tasks.on_metrics,
            ev.TasksStalled: self.gauges.on_stalled,
            ev.TaskGoesOn: self.gauges.on_goes_on,
            ev.TaskHalted: self.gauges.on_halted,
            ev.Forwarded: self.gauges.on_forwarded,
            ev.ClockSet: self.gauges.on_clock_set,
            ev.OutputStalled: self._tasks.on_stalled,
            ev.HangsInExit: self._tasks.on_hangs_in_exit,
            ev.TimerFired: lambda event: self._timer_fired(event.timer),
            ev.ReceiptReceived: self._receipt_received,
            ev.KillAll: self._kill_all,
            ev.Restart: self._tasks.on_restart,
            ev.SignalTask: self._tasks.on_signal,
            ev.NoteAdded: self._note_added,
            ev.ResultsMissing: self._shutdown.on_results_missing,
            ev.ResultsKept: self._shutdown.on_results_kept,
            ev.Judged: self._judged,
            ev.HangJudged: self._hang_judged,
            ev.LookedAt: lambda event: self._tasks.on_looked_at(event.task),
        }

    def handle(self, event: Event) -> list[Instruction]:
        """Takes an event; says what is to be done. When that is over the end of the run may be
        decided: then nothing is started, whatever came first.

        Raises:
            InvalidTransition: a task's state cannot change so.
            KeyError: the run has no such task or host.
        """
        self._last.append(event)
        self.data.now = event.time
        if not self.data.run.started:
            self.data.update_run(started=event.time, waiting_since=event.time)
        if self.data.run.state is RunPhase.ENDED and not isinstance(event, _STILL_HEARD):
            return []
        out = self._handlers[type(event)](event)
        if self.data.end_decided:
            out = [one for one in out if not isinstance(one, STARTS)]
        return out

    def validate(self) -> None:
        """Checks what must hold after every event; for tests.

        Raises:
            AssertionError: it does not hold.
        """
        check(self.data)

    def story(self) -> Iterator[str]:
        """The last events that were handled, one a line, oldest first."""
        return story(list(self._last))

    def snapshot(self) -> Snapshot:
        """The run as it stands, with whom it waits for now."""
        self.data.refresh_waiting()
        return self.data.snapshot()

    # --- launchers ------------------------------------------------------------------------

    def _begin(self, event: ev.Begin) -> list[Instruction]:
        data = self.data
        before = (RunPhase.QUEUED, RunPhase.CONNECTING)
        if not data.begun and not data.contacted_hosts and data.phase in before:
            data.update_run(started=event.time, waiting_since=event.time)
        return []

    def _attached(self, event: ev.Attached) -> list[Instruction]:
        """Tasks keep what was known of them: what they do now the agents will say. A kill that
        its launcher did not survive is gone on with, and so is the end of a run that has ended:
        something of it may live, and nothing of it is started any more."""
        data = self.data
        run, outcome = data.run, data.run.outcome
        ended = data.phase is RunPhase.ENDED and outcome is not Outcome.TAKEN_OVER
        # The launcher may have died between a failure and the end for which it was a reason.
        killing = data.phase is RunPhase.KILLING or ended or run.cause is not None
        data.attaching, data.checked = True, False
        data.silence_watched.clear()
        data.serving.clear()
        data.raised.clear()
        data.waited_longer = 0.0
        if data.allocation is not None:
            data.update_allocation(ended="", releasing=False, released="")
        receipt, data.receipt = data.receipt, None
        told = {one.host for one in receipt.hosts} if receipt is not None else set()
        data.update_run(
            ended=None,
            outcome=None,
            exit_code=None,
            launcher_error="",
            taken_by="",
            taken_for=Purpose.UNKNOWN,
            forced=False,
            kill_deadline=None,
            kill_asked=killing and run.kill_asked,
            results_missing=run.results_missing if killing else (),
            results_kept=run.results_kept if killing else (),
            cause=(run.cause or _CAUSES.get(outcome)) if killing else None,
        )
        for host, record in data.host_records.items():
            data.find_tasks(host)
            contacted = data.hosts[host].contacted or host in told or not event.complete
            data.update_host(
                host,
                state=HostState.CONNECTING,
                reason="",
                lease_until=None,
                contacted=contacted,
            )
            record.greeted = record.staged = record.agent_gone = record.agent_silent = False
            record.receipt = record.last_word = None
        if killing:
            data.update_run(state=RunPhase.KILLING)
            return self._shutdown.broadcast()
        pending = data.allocation is not None and not data.nodes
        data.update_run(state=RunPhase.QUEUED if pending else RunPhase.CONNECTING)
        return []

    def _superseded(self, event: ev.Superseded) -> list[Instruction]:
        """A launcher elsewhere takes the run over. All that is known of what follows is what it
        has said: where it ends the run, this one ends it on the hosts that it still has; else it
        lets go. A kill that was under way here names the host as not confirmed."""
        data, purpose = self.data, event.purpose
        taken = f"another launcher ({event.by}) has taken {event.host} over{_FOR[purpose]}"
        data.note(taken)
        data.update_run(taken_by=event.by, taken_for=purpose)
        data.lose_host(event.host, taken)
        killing = data.phase is RunPhase.KILLING
        if purpose is Purpose.KILL:
            receipt = HostReceipt(event.host, taken_by=event.by)
            if killing:
                return [*self._shutdown.kill_all(Cause.PERSON), *self._shutdown.on_receipt(receipt)]
            data.host_records[event.host].receipt = receipt
            return self._shutdown.kill_all(Cause.PERSON)
        if killing:
            return self._shutdown.on_receipt(HostReceipt(event.host, doubt=taken))
        return self._shutdown.conclude(Outcome.TAKEN_OVER, 5 if purpose is Purpose.ATTACH else 4)

    def _launcher_failed(self, event: ev.LauncherFailed) -> list[Instruction]:
        data = self.data
        data.update_run(launcher_error=data.run.launcher_error or event.reason)
        data.note(f"the launcher failed: {event.reason}")
        if self.data.phase is RunPhase.ENDED:
            data.update_run(exit_code=4)
            return []
        return self._shutdown.kill_all(Cause.LAUNCHER)

    # --- the end --------------------------------------------------------------------------

    def _kill_all(self, event: ev.KillAll) -> list[Instruction]:
        data, run = self.data, self.data.run
        data.update_run(kill_asked=run.kill_asked or event.by_person)
        if run.state is RunPhase.ENDED:
            if event.force and not run.forced:
                data.update_run(forced=True)
                data.note(_GIVEN_UP)
            elif event.by_person and not run.kill_asked:
                data.note(_UNDER_WAY)
            return []
        out = self._shutdown.kill_all(Cause.PERSON if event.by_person else Cause.TERM)
        if event.force and self.data.phase is RunPhase.KILLING:
            out += self._shutdown.force()
        return out

    def _judged(self, event: ev.Judged) -> list[Instruction]:
        self.data.update_run(verdict=event.verdict)
        return []

    def _hang_judged(self, event: ev.HangJudged) -> list[Instruction]:
        """A cause is found while the run hangs; what ends it comes with a verdict of its own."""
        if self.data.phase in AT_WORK:
            hang = self.data.run.hang if event.hang is None else event.hang
            self.data.update_run(verdict=event.verdict, hang=hang)
        return []

    def _receipt_received(self, event: ev.ReceiptReceived) -> list[Instruction]:
        if event.tasks is not None:
            out = [i for task in event.tasks for i in self._tasks.on_receipt(task, event.receipt)]
            return [*out, *self._restart.on_receipt(event)]
        if self.data.phase is not RunPhase.KILLING:
            if not event.asked:  # what it ended, its tasks' ends say
                self.data.host_records[event.receipt.host].last_word = event.receipt
            return self._restart.on_receipt(event)
        return self._shutdown.on_receipt(event.receipt)

    def _timer_fired(self, timer: ev.Timer) -> list[Instruction]:
        match timer:
            case ev.ShutdownTimeout():
                return self._shutdown.on_timeout() if self.data.phase is RunPhase.KILLING else []
            case ev.LeaseEnd(host):
                return self._hosts.on_lease_end(host)
            case ev.ReadyTimeout():
                return self._tasks.on_ready_timeout(timer)
            case ev.ReadyDelay(task, attempt):
                return self._tasks.on_ready(task, attempt)
            case ev.RestartDelay():
                return self._tasks.on_restart_delay(timer)
            case ev.RestartTimeout(attempt):
                return self._restart.on_timeout(attempt)
            case ev.LookTimeout(task):
                return self._tasks.on_looked_at(task)

    def _note_added(self, event: ev.NoteAdded) -> list[Instruction]:
        self.data.note(event.text)
        return []
