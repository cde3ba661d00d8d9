"""Reader of runs of the 0.1 form, which have no journal: what their public events tell.

They can be listed and looked at; what their events leave open, such as which hosts hold something,
their agents are asked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field

from ..ids import TaskId
from ..plan.model import Plan
from ..run.fields import Attempt as Number
from ..run.fields import Count, ExitCode, Status, Time
from ..run.snapshot import Attempt, Failure, HostReceipt, HostView, Receipt, Snapshot, TaskView
from ..run.state import task_view
from ..run.states import HostState, Outcome, RunPhase, TaskState
from .json_lines import Damage, form, printable_values
from .metrics_file import MetricsFile
from .runs import RunFolder

_OWN_KEYS = frozenset({"time", "event", "task", "host", "values", "rate"})
"""Keys of a metric record that are no metrics."""


def is_legacy(folder: RunFolder) -> bool:
    """The run has public events and no journal."""
    return folder.public_events.is_file() and not folder.journal.exists()


def read_legacy(
    folder: RunFolder, plan: Plan, metrics: MetricsFile, damage: Damage
) -> tuple[Snapshot, float]:
    """The run as its public events tell it, and when the last one came; its metrics are added to
    `metrics`."""
    reader = _Reader(plan, metrics)
    for record in folder.records(damage):
        try:
            reader.read(printable_values(record))
        except (KeyError, TypeError, ValueError, RecursionError):
            damage.records += 1
    return reader.snapshot(), reader.last


class _Reader:
    def __init__(self, plan: Plan, metrics: MetricsFile) -> None:
        self.last = 0.0
        self._metrics = metrics
        self._tasks = {task.id: task_view(task.id, plan) for task in plan.tasks}
        self._hosts = {
            host.name: HostView(host.name, host.destination, HostState.CLOSED)
            for host in plan.hosts
        }
        self._run = Snapshot(
            plan.run_id, plan.name, RunPhase.CONNECTING, (), (), 0.0, total_steps=plan.total_steps
        )
        self._readers: dict[str, Callable[[dict[str, Any], float], None]] = {
            "run": self._read_run,
            "host": self._read_host,
            "task": self._read_task,
            "metric": self._read_metric,
            "receipt": self._read_receipt,
        }

    def snapshot(self) -> Snapshot:
        tasks = [
            latest.added_to(view) if (latest := self._metrics.latest.get(task)) else view
            for task, view in self._tasks.items()
        ]
        return replace(self._run, tasks=tuple(tasks), hosts=tuple(self._hosts.values()))

    def read(self, record: dict[str, Any]) -> None:
        """Takes the next record in.

        Raises:
            KeyError, TypeError, ValueError: it is none.
        """
        kind = record["event"]
        if not isinstance(kind, str):
            raise TypeError("no kind")
        if kind in self._readers:
            time = _field(Time, record["time"])
            self._readers[kind](record, time)
            self.last = time
            if not self._run.started:
                self._run = replace(self._run, started=time)

    def _read_run(self, record: dict[str, Any], time: float) -> None:
        if record["state"] == "planned":
            return
        state = RunPhase(record["state"])
        outcome = _field(Outcome | None, record.get("outcome"))
        if record.get("note") is not None:
            note = _field(str, record["note"])
            self._run = replace(self._run, notes=(*self._run.notes[-99:], note))
        elif outcome is not Outcome.DETACHED:  # that launcher left; the run went on
            self._run = replace(
                self._run,
                state=state,
                outcome=outcome,
                exit_code=_field(ExitCode | None, record.get("exit_code")),
                ended=time if outcome else None,
                first_failure=_field(Failure | None, record.get("first_failure")),
            )

    def _read_host(self, record: dict[str, Any], time: float) -> None:
        state, reason = HostState(record["state"]), _field(str, record.get("reason", ""))
        view = self._hosts.get(record["host"])
        if view is not None:
            self._hosts[view.name] = replace(view, state=state, reason=reason)

    def _read_task(self, record: dict[str, Any], time: float) -> None:
        state, number = TaskState(record["state"]), _field(Number, record["attempt"])
        changed = {
            "address": _field(str, record.get("address", "")),
            "pid": _field(Count | None, record.get("pid")),
            "exit_code": _field(Status | None, record.get("exit_code")),
            "exit_signal": _field(str | None, record.get("signal")),
            "reason": _field(str, record.get("reason", "")),
        }
        log_start = _field(Count | None, record.get("log_start"))
        view = self._tasks.get(_field(TaskId, record["task"]))
        if view is None:
            return
        attempts = view.attempts
        if log_start is not None and all(one.number != number for one in attempts):
            attempts = (*attempts, Attempt(number, log_start, time))
        self._tasks[view.id] = _replaced(
            view,
            state=state,
            attempt=number,
            attempts=attempts,
            started=view.started if number == view.attempt else time,
            ended=(view.ended or time) if state.ended else None,
            **changed,
        )

    def _read_metric(self, record: dict[str, Any], time: float) -> None:
        task = _field(TaskId, record["task"])
        rate = _field(float | None, record.get("rate"))
        values = record.get("values")
        if not isinstance(values, dict):  # as 0.1 wrote them
            own = {key: value for key, value in record.items() if key not in _OWN_KEYS}
            values = {key: value for key, value in own.items() if isinstance(value, int | float)}
        values = _field(dict[str, Annotated[float, Field(allow_inf_nan=False)]], values)
        if task in self._tasks:
            self._metrics.add(time, task, values, rate)

    def _read_receipt(self, record: dict[str, Any], time: float) -> None:
        hosts = _field(tuple[HostReceipt, ...], record["hosts"])
        self._run = replace(self._run, receipt=Receipt(hosts))


def _replaced(view: TaskView, **changes: Any) -> TaskView:
    return replace(view, **changes)


def _field(kind: Any, value: object) -> Any:
    """A value of a record.

    Raises:
        ValueError: it is of another kind, or out of its range.
    """
    return form(kind).validate_python(value)
