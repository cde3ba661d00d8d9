"""Shutdown of a run: one kill for all hosts at once, their receipts, and the outcome."""

from __future__ import annotations

from ..agent.wire import FROZEN_SECONDS, KILL_SECONDS
from ..cluster.choices import OnDisconnect
from ..plan.run_plan import elsewhere_text
from .events import ResultsKept, ResultsMissing, ShutdownTimeout
from .instructions import (
    End,
    Instruction,
    KillHost,
    ReleaseAllocation,
    ReleaseHost,
    SetTimer,
)
from .snapshot import HostReceipt, Receipt
from .state import RunData
from .states import CONNECT_SECONDS, Cause, HostState, Outcome, RunPhase, TaskState

KILL_PATIENCE = FROZEN_SECONDS + 6.0
"""Seconds beyond the grace that a lost host has to come back before its receipt is given up: its
watchdog's patience with an agent that is frozen, and a reconnect to the next agent."""
RECEIPT_SECONDS = KILL_SECONDS + 3.0
"""Time for the receipt of a host that has come back."""
AGENT_SILENT = "its agent does not answer: it may be stopped, or frozen with its container"


class Shutdown:
    """From the first reason to end until every contacted host has given its receipt."""

    def __init__(self, data: RunData) -> None:
        self._data = data

    def kill_all(self, cause: Cause) -> list[Instruction]:
        """Sends one broadcast to all hosts at once, never host after host. What is being ended
        already keeps its grace; where a person joins in, it is a person's kill."""
        data = self._data
        if data.phase is RunPhase.KILLING and cause is Cause.PERSON:
            if data.run.cause in (Cause.RULE, Cause.FAILURE, Cause.OUTSIDE):
                data.update_run(cause=cause)
        if data.phase in (RunPhase.KILLING, RunPhase.ENDED):
            return []
        run = data.run
        if (
            run.restart_due
            and cause in (Cause.FAILURE, Cause.OUTSIDE)
            and run.first_failure is None
        ):
            data.update_run(first_failure=run.restart_cause)
        data.update_run(state=RunPhase.KILLING, cause=cause, restart_due=False)
        return self.broadcast()

    def broadcast(self) -> list[Instruction]:
        """The kill for all hosts whose receipts are pending."""
        data, grace = self._data, self._data.plan.settings.grace
        contacted = data.contacted_hosts
        self._settle(contacted)
        data.update_run(kill_deadline=data.now + grace)
        kills: list[Instruction] = []
        for host in contacted:
            if self.receipt_pending(host):
                kills.append(KillHost(host, None, grace, final=True))
        if not kills:
            return self.check_receipts()
        return [*kills, SetTimer(ShutdownTimeout(), grace + KILL_PATIENCE)]

    def force(self) -> list[Instruction]:
        """Makes the kill's deadline now: KILL to every host whose receipt is missing, and no
        longer patience with one that is cut off."""
        data, again = self._data, self._data.run.forced
        deadline = min(data.now, data.run.kill_deadline or data.now)
        data.update_run(forced=True, kill_deadline=deadline)
        hosts = [host for host in data.contacted_hosts if self.receipt_pending(host)]
        kills: list[Instruction] = [KillHost(host, None, 0.0, final=True) for host in hosts]
        if again or data.waited_longer or not kills:
            return kills
        return [*kills, SetTimer(ShutdownTimeout(), KILL_PATIENCE)]

    def receipt_pending(self, host: str) -> bool:
        """The host's receipt has not come, and may still come."""
        return self._data.host_records[host].receipt is None

    @property
    def grace_left(self) -> float:
        """Seconds until TERM becomes KILL; 0 when that time has come. The clock may have been set
        back meanwhile."""
        run = self._data.run
        if run.forced or run.kill_deadline is None:
            return 0.0
        left = max(0.0, run.kill_deadline - self._data.now)
        return min(left, self._data.plan.settings.grace)

    @property
    def task_state(self) -> TaskState:
        """State of a task that this shutdown has ended."""
        person = self._data.run.cause in (Cause.PERSON, Cause.TERM)
        return TaskState.KILLED if person else TaskState.STOPPED

    def on_receipt(self, receipt: HostReceipt) -> list[Instruction]:
        """Takes a host's receipt, which may be the last one that was missing."""
        self._data.host_records[receipt.host].receipt = receipt
        if receipt.confirmed:
            self._end_tasks(self.task_state, receipt.host)
        return self.check_receipts()

    def check_receipts(self) -> list[Instruction]:
        """Ends when every host that was contacted has given its receipt."""
        data = self._data
        pending = any(data.host_records[host].receipt is None for host in data.contacted_hosts)
        return [] if pending or data.phase is not RunPhase.KILLING else self._finish()

    def settle_lost(self, host: str | None = None) -> list[Instruction]:
        """Ends, where nothing else has to be waited for than lost hosts that nobody reaches; `host`
        is the only one that may have been lost since the last look."""
        hosts = self._data.contacted_hosts if host is None else [host]
        return self.check_receipts() if self._settle(hosts) else []

    def _settle(self, hosts: list[str]) -> bool:
        """Ends the wait for hosts of a job that has ended: nobody reaches a lost host's agent, and
        elsewhere it may have died. Its last message counts, else the engine's word. Nor is there a
        wait for `localhost` where that is another machine."""
        data = self._data
        ended = data.run.allocation is not None and bool(data.run.allocation.ended)
        found = False
        for host in hosts:
            record = data.host_records[host]
            view = data.hosts[host]
            lost = record.agent_gone or (ended and view.state is not HostState.UP)
            if record.receipt is not None or not view.contacted:
                continue
            if record.elsewhere:
                record.receipt = HostReceipt(host, doubt=elsewhere_text(record.elsewhere))
                found = True
            elif lost:
                record.receipt = record.last_word or self._unreachable(host, view.lease_until)
                found = True
        return ended or found

    def on_timeout(self) -> list[Instruction]:
        """Names a host that did not come back in time as unconfirmed; one that is still being
        connected to, or has just come back, has longer."""
        data = self._data
        missing = [host for host in data.contacted_hosts if data.host_records[host].receipt is None]
        connecting = [host for host in missing if data.hosts[host].state is HostState.CONNECTING]
        back = any(self._has_come_back(host) for host in missing)
        waited = data.waited_longer
        if (connecting or back) and waited < CONNECT_SECONDS:
            data.waited_longer += 1.0
            return [SetTimer(ShutdownTimeout(), 1.0)]
        for host in connecting:
            reason = f"not connected {KILL_PATIENCE + waited:.0f} s after the end of the grace"
            data.lose_host(host, reason)
            data.note(f"{host} is lost: {reason}")
        for host in missing:
            until = data.hosts[host].lease_until or data.now + data.longest_lease(host)
            data.host_records[host].receipt = self._unreachable(host, until)
        return self._finish()

    def _has_come_back(self, host: str) -> bool:
        back_at = self._data.host_records[host].back_at
        up = self._data.hosts[host].state is HostState.UP
        return up and 0.0 <= self._data.now - back_at < RECEIPT_SECONDS

    def _unreachable(self, host: str, lease_until: float | None) -> HostReceipt:
        """No receipt; until when the host's agent acts by itself, which it never does under
        `keep`, nor where it stands still. Where that time has passed, nobody knows whether it
        has."""
        data, settings = self._data, self._data.plan.settings
        if data.host_records[host].agent_silent:
            return HostReceipt(host, doubt=AGENT_SILENT)
        until = None if lease_until is None else lease_until + settings.grace
        if settings.on_disconnect is OnDisconnect.KEEP or (until or 0.0) <= data.now:
            until = None
        return HostReceipt(host, unreachable_until=until)

    def conclude(self, outcome: Outcome, exit_code: int) -> list[Instruction]:
        """Ends the run with an outcome and an exit code."""
        data = self._data
        data.update_run(state=RunPhase.ENDED, outcome=outcome, exit_code=exit_code, ended=data.now)
        return [End(outcome, exit_code)]

    def on_results_missing(self, event: ResultsMissing) -> list[Instruction]:
        """Records results that were not brought: the tasks did what they should, and yet it is
        no success."""
        text = f"results of {event.host} were not fetched: {event.reason}"
        text += f"; they stay on the host in {', '.join(event.paths)}"
        self._data.note(text)
        run = self._data.run
        code = run.exit_code
        self._data.update_run(
            results_missing=(*run.results_missing, text),
            exit_code=code if code is None else code or 1,
        )
        return []

    def on_results_kept(self, event: ResultsKept) -> list[Instruction]:
        """Records what tasks have left on a host; the last look counts."""
        kept = event.kept
        before = [one for one in self._data.run.results_kept if one.host != kept.host]
        self._data.update_run(results_kept=(*before, kept))
        return []

    def _end_tasks(self, state: TaskState, host: str) -> None:
        data = self._data
        for view in data.on_host(host):
            if view.state.live or view.state is TaskState.BACKOFF:
                data.update_task(view.id, state=state, ended=data.now, state_before_loss=None)

    def _finish(self) -> list[Instruction]:
        data = self._data
        receipts = self._receipts()
        releases: list[Instruction] = [
            ReleaseHost(one.host) for one in receipts if one.confirmed or one.survivors
        ]
        if (
            data.allocation is not None and not data.run.taken_by
        ):  # its word is waited for when the hosts are released
            again = data.allocation.releasing
            data.update_allocation(releasing=True)
            return [] if again else [*releases, ReleaseAllocation()]
        return [*releases, *self._conclude_with(receipts)]

    def _receipts(self) -> list[HostReceipt]:
        records = self._data.host_records.values()
        return [record.receipt for record in records if record.receipt is not None]

    def on_released(self) -> list[Instruction]:
        """The engine has its nodes back: nothing else is waited for."""
        return self._conclude_with(self._receipts())

    def _conclude_with(self, receipts: list[HostReceipt]) -> list[Instruction]:
        data = self._data
        receipt = Receipt(tuple(receipts), begun=data.begun)
        data.add(receipt)
        outcome, code = self._outcome()
        if outcome is Outcome.SUCCESS:  # its tasks had done all before an end from outside
            data.update_run(cause=Cause.RULE, first_failure=None, verdict=None)
        if data.run.results_missing:
            code = code or 1
        if not receipt.answered or data.run.launcher_error:
            code = 4
        return self.conclude(outcome, code)

    def _outcome(self) -> tuple[Outcome, int]:
        cause = self._data.run.cause
        if cause is Cause.PERSON:
            return Outcome.KILLED, 130
        if cause is Cause.TERM:
            return Outcome.TERMINATED, 143
        if cause is Cause.PREFLIGHT:
            return Outcome.PREFLIGHT, 3
        if cause is Cause.LAUNCHER:
            return Outcome.FAILED, 4
        failed = any(view.state is TaskState.FAILED for view in self._data.outcome_tasks())
        if cause is Cause.OUTSIDE:
            cut_off = self._data.cut_off()
            for view in cut_off:
                if view.state is TaskState.LOST:
                    self._data.fail(view.id, "lost", ())
            failed = failed or bool(cut_off)
        if cause is Cause.FAILURE or failed:
            return Outcome.FAILED, 1
        decide = self._data.views_of(self._data.plan.ending.decide)
        if any(view.state is TaskState.KILLED for view in decide):
            return Outcome.KILLED, 130  # a person has ended what the success needed
        return Outcome.SUCCESS, 0
