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


class Ending:
    """From the first reason to end until every host that was met has given its receipt."""

    def __init__(self, views: Views) -> None:
        self._views = views
        self.cause: Cause | None = None
        self.deadline: float | None = None
        """When the grace ends."""
        self.hurried = False
        """Somebody has pressed kill-all twice: nothing is waited for."""
        self._receipts: dict[str, HostReceipt] = {}
        self.receipt: Receipt | None = None
        self.outcome: Outcome | None = None
        self.exit_code: int | None = None
        self.ended: float | None = None

    def everything(self, cause: Cause) -> list[Instruction]:
        """One broadcast to all hosts at once, never host after host."""
        views = self._views
        if views.state is RunState.KILLING:
            return []
        views.state = RunState.KILLING
        self.cause = cause
        grace = views.plan.settings.grace
        self.deadline = views.now + grace
        kills: list[Instruction] = [ev.KillHost(host, None, grace) for host in views.met_in_order()]
        if not kills:
            return self._finish()
        return [*kills, ev.SetTimer("give-up", grace + KILL_PATIENCE)]

    def at_once(self) -> list[Instruction]:
        """Asked for again: no grace any more."""
        self.hurried = True
        self.deadline = self._views.now
        hosts = self._views.met_in_order()
        return [ev.KillHost(host, None, 0.0) for host in hosts if self.is_owed(host)]

    def is_owed(self, host: str) -> bool:
        """The host's receipt has not come."""
        return host not in self._receipts

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
        return self._finish() if self._receipts.keys() >= views.met else []

    def give_up(self) -> list[Instruction]:
        """A host that did not come back in time is named as unconfirmed; one that is still being
        logged in to has its time."""
        views = self._views
        missing = views.met - self._receipts.keys()
        if any(views.hosts[host].state is HostState.CONNECTING for host in missing):
            return [ev.SetTimer("give-up", 1.0)]
        for host in missing:
            until = views.hosts[host].lease_until or views.now + views.plan.settings.lease
            self._receipts[host] = HostReceipt(
                host, unreachable_until=until + views.plan.settings.grace
            )
        return self._finish()

    def conclude(self, outcome: Outcome, exit_code: int) -> list[Instruction]:
        """The run is over."""
        self._views.state = RunState.ENDED
        self.outcome, self.exit_code, self.ended = outcome, exit_code, self._views.now
        return [ev.End(outcome, exit_code)]

    def _finish(self) -> list[Instruction]:
        order = [host for host in self._views.hosts if host in self._receipts]
        self.receipt = Receipt(tuple(self._receipts[host] for host in order))
        outcome, code = self._verdict()
        leaves: list[Instruction] = [
            ev.LeaveHost(host) for host in order if self._receipts[host].confirmed
        ]
        return [*leaves, *self.conclude(outcome, code if self.receipt.clean else 4)]

    def _verdict(self) -> tuple[Outcome, int]:
        if self.cause is Cause.PERSON:
            return Outcome.KILLED, 130
        if self.cause is Cause.TERM:
            return Outcome.TERMINATED, 143
        if self.cause is Cause.PREFLIGHT:
            return Outcome.PREFLIGHT, 3
        failed = [view for view in self._views.deciding() if view.state is TaskState.FAILED]
        if self.cause is Cause.FAILURE or failed:
            return Outcome.FAILED, 1
        return Outcome.SUCCESS, 0
