"""What a run's events tell: the run as it was when the last one was written.

`tfmux attach` takes a living run up from here, `tfmux ps` and past runs are shown from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ..ids import TaskId
from ..plan.plan import Plan
from ..run.snapshot import Attempt, Failure, HostReceipt, HostView, Receipt, Snapshot, Survivor
from ..run.states import HostState, Outcome, RunState, TaskState
from ..run.views import task_view
from .metrics import Point, Series

_NOT_FIGURES = frozenset({"time", "event", "task", "host"})


class Replay:
    """Reads records one after the other; afterwards holds what they add up to."""

    def __init__(self, plan: Plan, records: Iterable[Mapping[str, Any]]) -> None:
        self.ports: dict[TaskId, int] = {}
        self.resume: str | None = None
        self.met: set[str] | None = None
        """Hosts that the earlier launcher has reached; None when it left no events at all."""
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
        for record in records:
            self.read(record)

    def read(self, record: Mapping[str, Any]) -> None:
        """Takes in the next record; one of an unknown kind says nothing here."""
        self.met = self.met or set()
        if not self._snapshot.started:
            self._snapshot = replace(self._snapshot, started=record["time"])
        match record["event"]:
            case "run":
                self._run(record)
            case "host":
                self._host(record)
            case "task":
                self._task(record)
            case "metric":
                self._metric(record)
            case "receipt":
                self._receipt(record)

    @property
    def snapshot(self) -> Snapshot:
        """The run as it was."""
        tasks = tuple(self._tasks.values())
        return replace(self._snapshot, tasks=tasks, hosts=tuple(self._hosts.values()))

    @property
    def over(self) -> bool:
        """The run has ended and every host confirmed that nothing is left."""
        ended = self._snapshot.state is RunState.ENDED
        receipt = self._snapshot.receipt
        return ended and (receipt is None or receipt.clean)

    def _run(self, record: Mapping[str, Any]) -> None:
        if record["state"] == "planned":
            self.ports = {TaskId.parse(task): port for task, port in record["ports"].items()}
            self.resume = record["resume"]
            return
        if "note" in record:
            notes = (*self._snapshot.notes[-99:], record["note"])
            self._snapshot = replace(self._snapshot, notes=notes)
            return
        outcome = Outcome(record["outcome"]) if "outcome" in record else None
        if outcome is Outcome.DETACHED:
            return  # that launcher left; the run went on
        self._snapshot = replace(
            self._snapshot,
            state=RunState(record["state"]),
            outcome=outcome,
            exit_code=record.get("exit_code"),
            ended=record["time"] if outcome else None,
            first_failure=_failure(record.get("first_failure")),
        )

    def _host(self, record: Mapping[str, Any]) -> None:
        name = record["host"]
        if name in self._hosts:
            state = HostState(record["state"])
            if state is HostState.UP and self.met is not None:
                self.met.add(name)
            self._hosts[name] = replace(self._hosts[name], state=state, reason=record["reason"])

    def _task(self, record: Mapping[str, Any]) -> None:
        task = TaskId.parse(record["task"])
        view = self._tasks.get(task)
        if view is None:
            return
        state = TaskState(record["state"])
        fresh = record["attempt"] != view.attempt
        attempts = view.attempts
        if "log_start" in record and fresh_attempt(attempts, record["attempt"]):
            attempts = (*attempts, Attempt(record["attempt"], record["log_start"], record["time"]))
        self._tasks[task] = replace(
            view,
            state=state,
            attempt=record["attempt"],
            attempts=attempts,
            address=record["address"],
            pid=record.get("pid"),
            exit_code=record.get("exit_code"),
            exit_signal=record.get("signal"),
            reason=record.get("reason", ""),
            started=record["time"] if fresh else view.started,
            ended=(view.ended or record["time"]) if state.ended else None,
        )

    def _metric(self, record: Mapping[str, Any]) -> None:
        task = TaskId.parse(record["task"])
        view = self._tasks.get(task)
        if view is None:
            return
        values = {key: float(v) for key, v in record.items() if key not in _NOT_FIGURES}
        rate = values.pop("rate", None)
        self.series[task].add(Point(record["time"], values))
        self._tasks[task] = replace(
            view,
            step=int(values["step"]) if "step" in values else view.step,
            loss=values.get("loss", view.loss),
            rate=rate if rate is not None else view.rate,
            metrics={**view.metrics, **values},
            last_output=record["time"],
        )

    def _receipt(self, record: Mapping[str, Any]) -> None:
        hosts = tuple(
            HostReceipt(
                host["host"],
                host["signalled"],
                tuple(Survivor(**one) for one in host["survivors"]),
                host["confirmed"],
                host["unreachable_until"],
                host["seconds"],
            )
            for host in record["hosts"]
        )
        self._snapshot = replace(self._snapshot, receipt=Receipt(hosts))


def fresh_attempt(attempts: tuple[Attempt, ...], number: int) -> bool:
    """No attempt of that number is among them."""
    return all(attempt.number != number for attempt in attempts)


def _failure(record: Mapping[str, Any] | None) -> Failure | None:
    if record is None:
        return None
    return Failure(
        TaskId.parse(record["task"]),
        record["host"],
        record["how"],
        record["time"],
        tuple(TaskId.parse(task) for task in record["others"]),
        tuple(record["tail"]),
    )
