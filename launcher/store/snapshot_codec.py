"""Snapshots as JSON: the last record of a journal, and what a launcher process tells its clients.

A change is `{"run": {…}, "tasks": {"0": {…}}, "hosts": {"1": {…}}}`: tasks and hosts that differ
by their index, and everything else of the snapshot in `run` where any of that differs. Figures
that are no number (a loss of NaN) pass through: Python's JSON writes and reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from ..run.snapshot import HostView, Snapshot, TaskView
from .json_lines import form, printable_values

_Tasks = dict[int, TaskView]
_Hosts = dict[int, HostView]
View = TypeVar("View", TaskView, HostView)


def encode(snapshot: Snapshot) -> dict[str, Any]:
    encoded: dict[str, Any] = form(Snapshot).dump_python(snapshot, mode="json")
    return encoded


def decode(raw: Any) -> Snapshot:
    """Reads a snapshot; its texts are made printable.

    Raises:
        ValueError: it is no snapshot, or one of another version of this program.
    """
    decoded: Snapshot = form(Snapshot).validate_python(printable_values(raw))
    return decoded


def changes(before: Snapshot | None, after: Snapshot) -> dict[str, Any]:
    """Difference between `before`, or nothing, and `after`; empty where they are equal."""
    found: dict[str, Any] = {}
    tasks = _differing(before.tasks if before else (), after.tasks)
    hosts = _differing(before.hosts if before else (), after.hosts)
    if tasks:
        found["tasks"] = form(_Tasks).dump_python(tasks, mode="json")
    if hosts:
        found["hosts"] = form(_Hosts).dump_python(hosts, mode="json")
    rest = replace(after, tasks=(), hosts=())
    if before is None or replace(before, tasks=(), hosts=()) != rest:
        found["run"] = encode(rest)
    return found


def apply(before: Snapshot | None, change: dict[str, Any]) -> Snapshot:
    """The snapshot that `changes` was made of.

    Raises:
        ValueError: it is no change of `before`, or one of another version of this program.
    """
    run: Snapshot | None = before
    if "run" in change:
        run = form(Snapshot).validate_python(change["run"])
    if run is None:
        raise ValueError("the first message is not a whole snapshot")
    tasks: _Tasks = form(_Tasks).validate_python(change.get("tasks", {}))
    hosts: _Hosts = form(_Hosts).validate_python(change.get("hosts", {}))
    return replace(
        run,
        tasks=_applied(before.tasks if before else (), tasks),
        hosts=_applied(before.hosts if before else (), hosts),
    )


def _differing(before: Sequence[View], after: Sequence[View]) -> dict[int, View]:
    known = dict(enumerate(before))
    differing = {}
    for index, view in enumerate(after):
        old = known.get(index)
        if old is not view and old != view:  # most are the same object, of which no field is read
            differing[index] = view
    return differing


def _applied(before: Sequence[View], changed: dict[int, View]) -> tuple[View, ...]:
    views = dict(enumerate(before)) | changed
    if sorted(views) != list(range(len(views))):
        raise ValueError("tasks or hosts are missing between others")
    return tuple(views[index] for index in range(len(views)))
