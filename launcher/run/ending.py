"""How a run ends: one kill for all hosts at once, their receipts, and the verdict."""

from __future__ import annotations

from enum import Enum, auto

from . import events as ev
from .events import Instruction
from .snapshot import HostReceipt, Receipt
from .states import HostState, Outcome, RunState, TaskState
from .views import Views

KILL_PATIENCE = 8.0
"""Seconds beyond the grace that a lost host has to come back before its receipt is given up:
the agent's own patience with KILL, and a reconnect."""


class Cause(Enum):
    """Why a run is being ended."""

    RULE = auto()
    FAILURE = auto()
    PREFLIGHT = auto()
    PERSON = auto()
    TERM = auto()
    LAUNCHER = auto()
    """Something in the launcher is broken."""


class Ending:
    """From the first reason to end until every host that was met has given its receipt."""

    def __init__(self, views: Views) -> None:
        self._views = views
        self.cause: Cause | None = None
        self.deadline: float | None = None
        """When the grace ends."""
        self.hurried = False
        """Somebody has pressed kill-all twice: nothing is waited for."""
        self.launcher_error = ""
        """What is broken in the launcher itself."""
        self.taken: dict[str, str] = {}
        """Hosts that another launcher has taken over, and which: they confirm nothing to us."""
        self._receipts: dict[str, HostReceipt] = {}
        self.receipt: Receipt | None = None
        self.outcome: Outcome | None = None
        self.exit_code: int | None = None
        self.ended: float | None = None
        self.results_missing: tuple[str, ...] = ()

    def everything(self, cause: Cause) -> list[Instruction]:
        """One broadcast to all hosts at once, never host after host."""
        views = self._views
        if views.state is RunState.KILLING:
            return []
        views.state = RunState.KILLING
        self.cause = cause
        grace = views.plan.settings.grace
        self.deadline = views.now + grace
        hosts = [host for host in views.met_in_order() if self.is_owed(host)]
        kills: list[Instruction] = [ev.KillHost(host, None, grace) for host in hosts]
        if not kills:
            return self.look()
        return [*kills, ev.SetTimer("give-up", grace + KILL_PATIENCE)]

    def at_once(self) -> list[Instruction]:
        """Asked for again: no grace any more."""
        self.hurried = True
        self.deadline = self._views.now
        hosts = self._views.met_in_order()
        return [ev.KillHost(host, None, 0.0) for host in hosts if self.is_owed(host)]

    def is_owed(self, host: str) -> bool:
        """The host's receipt has not come, and may still come."""
        return host not in self._receipts and host not in self.taken

    @property
    def grace_left(self) -> float:
        """Seconds until KILL."""
        if self.hurried or self.deadline is None:
            return 0.0
        return max(0.0, self.deadline - self._views.now)

    @property
    def task_state(self) -> TaskState:
        """What a task is that this end has ended."""
        person = self.cause in (Cause.PERSON, Cause.TERM)
        return TaskState.KILLED if person else TaskState.STOPPED

    def receipted(self, receipt: HostReceipt) -> list[Instruction]:
        """A host has looked."""
        views = self._views
        self._receipts[receipt.host] = receipt
        if receipt.confirmed and not receipt.survivors:
            for view in views.on_host(receipt.host):
                if view.state.live or view.state is TaskState.BACKOFF:
                    views.task(view.id, state=self.task_state, ended=views.now)
        return self.look()

    def look(self) -> list[Instruction]:
        """Ends when all that can confirm have done so. Where another launcher has hosts of ours,
        it is looked at what became of the run there."""
        if self._receipts.keys() >= self._views.met:
            return self._finish()
        if any(self.is_owed(host) for host in self._views.met):
            return []
        return [ev.LookElsewhere(next(reversed(self.taken.values())))]

    def give_up(self) -> list[Instruction]:
        """A host that did not come back in time is named as unconfirmed; one that is still being
        logged in to has its time."""
        views = self._views
        missing = views.met - self._receipts.keys()
        owed = [host for host in missing if self.is_owed(host)]
        if any(views.hosts[host].state is HostState.CONNECTING for host in owed):
            return [ev.SetTimer("give-up", 1.0)]
        for host in missing:
            if host in self.taken:
                self._receipts[host] = HostReceipt(host)
                continue
            until = views.hosts[host].lease_until or views.now + views.plan.settings.lease
            self._receipts[host] = HostReceipt(
                host, unreachable_until=until + views.plan.settings.grace
            )
        return self._finish()

    def ended_elsewhere(self, event: ev.LookedElsewhere) -> list[Instruction]:
        """The launcher that took the run over has ended it: its receipt counts."""
        views = self._views
        views.note(f"another launcher ({event.by}) has ended this run: {event.outcome}")
        if views.state is RunState.KILLING:
            theirs = event.receipt.hosts if event.receipt else ()
            self._receipts |= {one.host: one for one in theirs if one.host in self.taken}
            return self.give_up()
        self.receipt = event.receipt
        person = event.outcome in (Outcome.KILLED, Outcome.TERMINATED)
        for view in list(views.tasks.values()):
            if view.state.live or view.state is TaskState.BACKOFF:
                state = TaskState.KILLED if person else TaskState.STOPPED
                views.task(view.id, state=state, ended=views.now)
        assert event.outcome is not None
        return self.conclude(event.outcome, event.exit_code)

    def conclude(self, outcome: Outcome, exit_code: int) -> list[Instruction]:
        """The run is over."""
        self._views.state = RunState.ENDED
        self.outcome, self.exit_code, self.ended = outcome, exit_code, self._views.now
        return [ev.End(outcome, exit_code)]

    def miss_results(self, text: str) -> None:
        """Results were not brought: the tasks did what they should, and yet it is no success."""
        self.results_missing += (text,)
        self.exit_code = self.exit_code or 1

    def _finish(self) -> list[Instruction]:
        order = [host for host in self._views.hosts if host in self._receipts]
        self.receipt = Receipt(tuple(self._receipts[host] for host in order))
        outcome, code = self._verdict()
        if not self.receipt.clean or self.launcher_error:
            code = 4
        leaves: list[Instruction] = [
            ev.LeaveHost(host) for host in order if self._receipts[host].confirmed
        ]
        return [*leaves, *self.conclude(outcome, code)]

    def _verdict(self) -> tuple[Outcome, int]:
        if self.cause is Cause.PERSON:
            return Outcome.KILLED, 130
        if self.cause is Cause.TERM:
            return Outcome.TERMINATED, 143
        if self.cause is Cause.PREFLIGHT:
            return Outcome.PREFLIGHT, 3
        if self.cause is Cause.LAUNCHER:
            return Outcome.FAILED, 4
        failed = [view for view in self._views.deciding() if view.state is TaskState.FAILED]
        if self.cause is Cause.FAILURE or failed:
            return Outcome.FAILED, 1
        return Outcome.SUCCESS, 0
