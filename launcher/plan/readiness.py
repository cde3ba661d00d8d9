"""Readiness of tasks: what the file says or the default of its job, and what is still missing."""

from __future__ import annotations

from ..cluster.choices import Framework
from ..cluster.rules import (
    AUTO_SECONDS,
    After,
    Auto,
    LogMatches,
    PortListens,
    ProcessStarted,
    Readiness,
)
from ..cluster.spec import ClusterModel
from .model import TaskPlan

_SERVERS = ("ps", "chief", "worker", "master")
"""Jobs of TensorFlow whose tasks run a server."""


def readiness(cluster: ClusterModel, job: str) -> Readiness:
    """Returns when the tasks of a job are ready."""
    ready = cluster.jobs[job].ready or cluster.start.ready.get(job)
    if ready is not None:
        return ready
    if not cluster.in_spec(job):
        return ProcessStarted()
    tensorflow = cluster.run.framework is Framework.TENSORFLOW
    return PortListens() if tensorflow and job in _SERVERS else Auto()


def ready_key(cluster: ClusterModel, job: str) -> str:
    """Names the key that says so, or would, and its line in the file."""
    in_start = cluster.jobs[job].ready is None and job in cluster.start.ready
    table, key = (("start", "ready"), job) if in_start else (("jobs", job), "ready")
    line = cluster.line_of(*table, key)
    return f"{key} in [{'.'.join(table)}]{'' if line is None else f', line {line}'}"


def missing(task: TaskPlan, *, started: bool) -> str:
    """Says what a task has not done that was waited for, and which key of the file changes it."""
    match task.ready:
        case PortListens() if started:
            return (
                f"it does not listen on port {task.port}; for a program that opens no port write "
                f'ready = "auto" ({task.ready_key})'
            )
        case LogMatches(pattern) if started:
            return f"no line of its log matches {pattern!r} ({task.ready_key})"
        case After(seconds) if started:
            return f"it was to live for {seconds:g} s ({task.ready_key})"
        case Auto() if started:
            signs = ["printed a metric line", f"lived for {AUTO_SECONDS:g} s"]
            if task.port is not None:
                signs.insert(0, f"listened on port {task.port}")
            return f"it has neither {', nor '.join(signs)} ({task.ready_key})"
        case _:
            return "its process was not started"
