"""What a run's events tell: the run as it was when the last one was written.

`tfmux attach` takes a living run up from here, `tfmux ps` and past runs are shown from it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..ids import TaskId
from ..plan.plan import Plan
from ..run.snapshot import Attempt, HostView, Snapshot
from ..run.states import HostState, Outcome, RunState
from ..run.views import task_view
from .metrics import Point, Series
from .stored_events import (
    Damage,
    Event,
    HostEvent,
    MetricEvent,
    ReceiptEvent,
    RunEvent,
    TaskEvent,
)


class Replay:
    """Reads events one after the other; afterwards holds what they add up to."""

    def __init__(self, plan: Plan, events: Iterable[Event], damage: Damage | None = None) -> None:
        """`damage`: what could not be read of them. Then nothing follows from what is missing."""
        self._damage = Damage() if damage is None else damage
        self.ports: dict[TaskId, int] = {}
        self.resume: str | None = None
        self._met: set[str] | None = None
        self.series = {task.id: Series() for task in plan.tasks}
        self._hosts = {
            host.name: HostView(host.name, str(host.ssh or "this machine"), HostState.CLOSED)
            for host in plan.hosts
        }
        self._tasks = {task.id: task_view(task, plan) for task in plan.tasks}
        self._snapshot = Snapshot(
            run_id=plan.run_id,
            name=plan.name,
            state=RunState.CONNECTING,
            tasks=(),
            hosts=(),
            started=0.0,
            total_steps=plan.total_steps,
        )
        for event in events:
            self.read(event)

    def read(self, event: Event) -> None:
        """Takes in the next event."""
        self._met = self._met or set()
        if not self._snapshot.started:
            self._snapshot = replace(self._snapshot, started=event.time)
        match event:
            case RunEvent():
                self._run(event)
            case HostEvent():
                self._host(event)
            case TaskEvent():
                self._task(event)
            case MetricEvent():
                self._metric(event)
            case ReceiptEvent():
                self._snapshot = replace(self._snapshot, receipt=event.receipt)

    @property
    def snapshot(self) -> Snapshot:
        """The run as it was."""
        tasks = tuple(self._tasks.values())
        return replace(self._snapshot, tasks=tasks, hosts=tuple(self._hosts.values()))

    @property
    def met(self) -> set[str] | None:
        """Hosts that the earlier launcher has reached; None when that cannot be known: it left
        no events, or not all of them can be read."""
        return None if self._damage else self._met

    @property
    def over(self) -> bool:
        """The run has ended and every host that may hold something of it confirmed that nothing
        is left."""
        receipt = self._snapshot.receipt
        if self._snapshot.state is not RunState.ENDED or receipt is None or not receipt.clean:
            return False
        owed = self._hosts.keys() if self.met is None else self.met
        return owed <= {host.host for host in receipt.hosts}

    def _run(self, event: RunEvent) -> None:
        if event.state == "planned":
            self.ports = event.ports
            self.resume = event.resume
        elif event.note is not None:
            notes = (*self._snapshot.notes[-99:], event.note)
            self._snapshot = replace(self._snapshot, notes=notes)
        elif event.outcome is not Outcome.DETACHED:  # that launcher left; the run went on
            failure = event.first_failure
            self._snapshot = replace(
                self._snapshot,
                state=event.state,
                outcome=event.outcome,
                exit_code=event.exit_code,
                ended=event.time if event.outcome else None,
                first_failure=failure.failure if failure else None,
            )

    def _host(self, event: HostEvent) -> None:
        if event.host in self._hosts:
            if event.state is HostState.UP and self._met is not None:
                self._met.add(event.host)
            view = self._hosts[event.host]
            self._hosts[event.host] = replace(view, state=event.state, reason=event.reason)

    def _task(self, event: TaskEvent) -> None:
        view = self._tasks.get(event.task)
        if view is None:
            return
        fresh = event.attempt != view.attempt
        attempts = view.attempts
        if event.log_start is not None and fresh_attempt(attempts, event.attempt):
            attempts = (*attempts, Attempt(event.attempt, event.log_start, event.time))
        self._tasks[event.task] = replace(
            view,
            state=event.state,
            attempt=event.attempt,
            attempts=attempts,
            address=event.address,
            pid=event.pid,
            exit_code=event.exit_code,
            exit_signal=event.signal,
            reason=event.reason,
            started=event.time if fresh else view.started,
            ended=(view.ended or event.time) if event.state.ended else None,
        )

    def _metric(self, event: MetricEvent) -> None:
        view = self._tasks.get(event.task)
        if view is None:
            return
        self.series[event.task].add(Point(event.time, event.values))
        self._tasks[event.task] = replace(
            view,
            step=view.step if event.step is None else event.step,
            loss=event.values.get("loss", view.loss),
            rate=view.rate if event.rate is None else event.rate,
            metrics={**view.metrics, **event.values},
            last_output=event.time,
        )


def fresh_attempt(attempts: tuple[Attempt, ...], number: int) -> bool:
    """No attempt of that number is among them."""
    return all(attempt.number != number for attempt in attempts)
