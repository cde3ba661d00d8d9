"""Views of a run, its hosts and its tasks in one table: the only state that changes.

The state machine alone writes into it, for events and by its gauges; what has changed goes out as
records, each of which is a whole view (`pop_changed` to the run's file, `pop_touched` to its
clients). Taking those records gives the same table back (`take`): so a run is followed, read and
taken up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

from ..ids import TaskId
from .snapshot import (
    AllocationView,
    FactsView,
    HostView,
    Note,
    Receipt,
    RunView,
    Snapshot,
    TaskView,
)
from .states import Halt, RunPhase, check_transition

MOST_NOTES = 100
Record = RunView | HostView | TaskView | FactsView | Note | Receipt
"""What the file of a run holds, but for its end."""
_RUN = tuple(field.name for field in fields(RunView) if field.name != "event")
_FIGURES = {
    "run": frozenset({"waiting"}),
    "host": frozenset(
        {"last_heard", "cpu", "memory_used", "memory_total", "gpus", "gpu_problem", "usage"}
    ),
    "task": frozenset({"step", "loss", "rate", "metrics", "last_output", "log_size"}),
}
"""Fields that change all the time: clients are told, and the file is not where nothing else has
changed."""
_OF_LIVE_TASKS = {"stalled_since": None, "halted": Halt.NONE, "halted_since": None, "url": ""}
"""Fields that say something of live tasks alone, as they are of others."""
_Key = tuple[str, object]


class Views:
    """All views of one run; not for several threads."""

    def __init__(self, run: RunView) -> None:
        self.run = run
        self.tasks: dict[TaskId, TaskView] = {}
        """In start order: ps first."""
        self.hosts: dict[str, HostView] = {}
        self.facts: dict[str, FactsView] = {}
        self.notes: tuple[Note, ...] = ()
        """The last hundred."""
        self.receipt: Receipt | None = None
        self._changed: dict[_Key, Record] = {}
        """Views that `pop_changed` has not given out since they have changed."""
        self._touched: dict[_Key, Record] = {}
        """Views that `pop_touched` has not given out since they have changed."""
        self._newer: dict[_Key, Record] = {}
        """Views whose figures alone have changed since they were given out by `pop_changed`."""

    @classmethod
    def of(cls, snapshot: Snapshot) -> Views:
        """The views of a snapshot, without what was said: its numbers are not known there."""
        views = cls(RunView(**{name: getattr(snapshot, name) for name in _RUN}))
        views.tasks = {view.id: view for view in snapshot.tasks}
        views.hosts = {view.name: view for view in snapshot.hosts}
        views.receipt = snapshot.receipt
        return views

    @property
    def phase(self) -> RunPhase:
        return self.run.state

    @property
    def allocation(self) -> AllocationView | None:
        """The engine's job, where the hosts are its nodes."""
        return self.run.allocation

    @property
    def contacted_hosts(self) -> list[str]:
        """Hosts that may hold something of the run."""
        return [host for host, view in self.hosts.items() if view.contacted]

    # --- changes --------------------------------------------------------------------------

    def update_run(self, **changes: Any) -> None:
        """Changes the run itself."""
        self._update(self.run, changes)

    def update_host(self, host: str, **changes: Any) -> None:
        """Changes a host."""
        self._update(self.hosts[host], changes)

    def update_task(self, task: TaskId, **changes: Any) -> TaskView:
        """Changes a task; returns how it stands then.

        Raises:
            InvalidTransition: its state cannot change so.
        """
        view = self.tasks[task]
        if "state" in changes:
            check_transition(task, view.state, changes["state"])
            if not changes["state"].live:
                changes |= {
                    "stalled_since": None,
                    "halted": Halt.NONE,
                    "halted_since": None,
                    "url": "",
                }
        self._update(view, changes)
        return self.tasks[task]

    def add(self, record: Record) -> None:
        """Adds a host, a task or another record, or one in the place of what is known of it."""
        self._put(record)
        self._mark(record)

    def note(self, text: str) -> None:
        """Says something once."""
        self.add(Note(text, self.notes[-1].number + 1 if self.notes else 1))

    def flush_figures(self) -> None:
        """Has tasks, and the run, recorded of which only the figures are newer than the last
        record."""
        for key, record in self._newer.items():
            if isinstance(record, TaskView | RunView):
                self._changed[key] = record
        self._newer.clear()

    def _update(self, view: RunView | HostView | TaskView, changes: dict[str, Any]) -> None:
        news, figures = False, True
        for name, value in changes.items():
            if getattr(view, name) != value:
                news, figures = True, figures and name in _FIGURES[view.event]
        if news:
            view = replace(view, **changes)
            self._put(view)
            self._mark(view, figures=figures)

    def _mark(self, record: Record, *, figures: bool = False) -> None:
        key = _key(record)
        self._touched[key] = record
        if figures and key not in self._changed:
            self._newer[key] = record
            return
        if not figures:  # in the order of the latest changes: a run ends behind its receipt
            self._changed.pop(key, None)
        self._changed[key] = record

    # --- records --------------------------------------------------------------------------

    def pop_changed(self, now: float) -> list[Record]:
        """Views that have changed since the last call, but for figures alone: for the file."""
        changed, self._changed = self._changed, {}
        records = []
        for key, record in changed.items():
            record = replace(record, time=now)
            self._put(record)
            self._newer.pop(key, None)
            if key in self._touched:
                self._touched[key] = record
            records.append(record)
        return records

    def pop_touched(self) -> list[Record]:
        """Views that have changed since the last call: for clients."""
        touched, self._touched = self._touched, {}
        return [record for record in touched.values() if not isinstance(record, FactsView)]

    def records(self) -> Iterator[Record]:
        """All that clients are told."""
        yield self.run
        yield from self.hosts.values()
        yield from self.tasks.values()
        yield from self.notes
        if self.receipt is not None:
            yield self.receipt

    def take(self, record: Record) -> None:
        """Takes a record of these views as it was given out: after all of them they are the same
        again, but for figures that have changed alone."""
        self._put(record)

    def _put(self, record: Record) -> None:
        match record:
            case RunView():
                self.run = record
            case HostView(name=host):
                self.hosts[host] = record
            case TaskView(id=task):
                self.tasks[task] = record
            case FactsView(host=host):
                self.facts[host] = record
            case Receipt():
                self.receipt = record
            case Note(number=number):
                rest = [note for note in self.notes if note.number != number]
                self.notes = tuple(sorted([*rest, record], key=_number)[-MOST_NOTES:])

    def snapshot(self) -> Snapshot:
        """The run as it stands."""
        return Snapshot(
            **{name: getattr(self.run, name) for name in _RUN},
            tasks=tuple(self.tasks.values()),
            hosts=tuple(self.hosts.values()),
            receipt=self.receipt,
            notes=tuple(note.text for note in self.notes),
        )


def _key(record: Record) -> _Key:
    match record:
        case HostView(name=name) | TaskView(id=name) | FactsView(host=name) | Note(number=name):
            return record.event, name
        case _:
            return record.event, None


def _number(note: Note) -> int:
    return note.number
