"""Restart of all cluster tasks: their end on every host, its proof, and the ports of the next
attempt.

A collective is lost with any of its ranks: `on_failure = "restart-all"` ends all others, too, and
starts again from the first stage. It never does so beside a rank that may live. A host's proof is
its receipt of a kill: the kernel's word where only cluster tasks were started there, else a look
that has found nothing ("seen gone"). A host that is cut off is waited for as long as its lease
lasts; where there is no proof, the run ends and says why.
"""

from __future__ import annotations

from dataclasses import replace

from ..cluster.choices import OnFailure
from ..ids import TaskId
from .events import ReceiptReceived, RestartTimeout
from .instructions import Instruction, KillHost, PickPorts, SetTimer
from .shutdown import KILL_PATIENCE, Shutdown
from .snapshot import Failure, HostReceipt, TaskView
from .state import RunData, named
from .states import Cause, HostState, Intent, RunPhase, TaskState


class RestartOfAll:
    """From the failure of a task until nothing of the attempt is left and the next one may start.

    The next attempt itself is the tasks' (`tasks.Tasks.begin_again`)."""

    def __init__(self, data: RunData, shutdown: Shutdown) -> None:
        self._data = data
        self._shutdown = shutdown

    def may_follow(self, view: TaskView) -> bool:
        """Whether the failure of a task starts all of them again."""
        data, settings = self._data, self._data.plan.settings
        return (
            settings.on_failure is OnFailure.RESTART_ALL
            and data.plan.task(view.id).role.in_cluster
            and not data.end_decided
            and view.intent is not Intent.FAIL
            and data.run.attempt <= settings.max_restarts
        )

    def begin(self, task: TaskId, how: str, tail: tuple[str, ...]) -> None:
        """Records that all cluster tasks are to be ended and started again. In a run that is being
        taken up they are ended when all its hosts have answered."""
        data, run = self._data, self._data.run
        failure = Failure(task, data.tasks[task].host, how, data.now, tail=tail)
        data.update_run(restart_due=True, restart_cause=failure)
        number = f"attempt {run.attempt + 1} of {run.most_attempts}"
        data.note(f"{task} on {failure.host}: {how}; all tasks end and start again: {number}")

    def end_attempt(self) -> list[Instruction]:
        """TERM, grace and KILL to all cluster tasks, on all hosts at once."""
        data = self._data
        data.update_run(state=RunPhase.RESTARTING, waiting_since=data.now)
        hosts = dict.fromkeys(data.tasks[task].host for task in data.cluster_tasks)
        data.ending = {host: self._to_end(host) for host in hosts}
        return [*(self._kill(host) for host in hosts), self._time_limit()]

    def _to_end(self, host: str) -> tuple[TaskId, ...] | None:
        """None, everything, where nothing else was started: of some tasks among others the kernel
        has no word."""
        data, tasks, alone = self._data, [], True
        for view in data.on_host(host):
            if data.plan.task(view.id).role.in_cluster:
                tasks.append(view.id)
            elif view.attempt:
                alone = False
        return None if alone else tuple(tasks)

    def _kill(self, host: str) -> Instruction:
        return KillHost(host, self._data.ending[host], self._data.plan.settings.grace)

    def _time_limit(self) -> Instruction:
        limit = self._data.plan.settings.grace + KILL_PATIENCE
        return SetTimer(RestartTimeout(self._data.run.attempt), limit)

    def on_up(self, host: str) -> list[Instruction]:
        """A host is back, and may not have heard what it was told, or holds what is new to us."""
        data = self._data
        if data.phase is not RunPhase.RESTARTING:
            return []
        if any(view.state.live and data.ends_with_all(view.id) for view in data.on_host(host)):
            data.ending[host] = self._to_end(host)
        if host in data.ending:
            return [self._kill(host), self._time_limit()]
        return self._when_gone()

    def on_receipt(self, event: ReceiptReceived) -> list[Instruction]:
        """A host has looked: nothing of the attempt is left there, or the run ends."""
        data, receipt = self._data, event.receipt
        host = receipt.host
        if data.phase is not RunPhase.RESTARTING or host not in data.ending:
            return []
        asked = data.ending[host]
        if event.tasks is not None and (asked is None or set(event.tasks) != set(asked)):
            return []  # of a kill of one task
        if doubt := _doubt(receipt, everything=event.tasks is None):
            return self.give_up(f"{host}: {doubt}")
        del data.ending[host]
        for view in data.on_host(host):
            if data.plan.task(view.id).role.in_cluster:
                self._end_task(view)
        return self._when_gone()

    def _end_task(self, view: TaskView) -> None:
        data = self._data
        data.update_task(view.id, kill_grace=None, restart_due=False)
        if view.state.live:
            data.update_task(
                view.id, state=TaskState.BACKOFF, ended=data.now, state_before_loss=None
            )

    def _when_gone(self) -> list[Instruction]:
        return [] if self._data.ending else [PickPorts(self._data.cluster_tasks)]

    def on_timeout(self, attempt: int) -> list[Instruction]:
        """Ends the run where a host that can be reached has not said that nothing of the attempt is
        left; one that is lost has until the end of its lease."""
        data = self._data
        if data.phase is not RunPhase.RESTARTING or attempt != data.run.attempt:
            return []
        silent = [host for host in data.ending if data.hosts[host].state is HostState.UP]
        return self.give_up(f"no answer from {named(silent)}") if silent else []

    def concerns(self, host: str) -> bool:
        """The next attempt waits, and has tasks on this host."""
        data = self._data
        return any(data.ends_with_all(view.id) for view in data.on_host(host))

    def give_up(self, why: str) -> list[Instruction]:
        """Ends the run: there will be no other attempt."""
        data, cause = self._data, self._data.run.restart_cause
        assert cause is not None
        if data.tasks[cause.task].state is TaskState.BACKOFF:
            data.update_task(cause.task, state=TaskState.FAILED)
        data.note(f"the tasks are not started again: {why}")
        cause = replace(cause, how=f"{cause.how}; not started again: {why}")
        data.update_run(first_failure=data.run.first_failure or cause)
        return self._shutdown.kill_all(Cause.FAILURE)


def _doubt(receipt: HostReceipt, *, everything: bool) -> str:
    """Why something of the attempt may be left on a host; empty where nothing is."""
    if receipt.survivors:
        return receipt.left_text
    if everything and not receipt.confirmed:
        return receipt.doubt or "it has not confirmed that no process is left"
    return receipt.doubt
