"""Context for log hints: the states of the tasks that explain what their logs say.

A log line knows that a port is taken or that a session waits for a task. Who holds the port,
and why that task does not answer, the run knows: the two are joined here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from launcher.ids import TaskId
from launcher.run.snapshot import Snapshot
from launcher.run.states import RunPhase, TaskState
from launcher.store.hints import PORT_IN_USE, Hint

_UP = (TaskState.READY, TaskState.RUNNING)


class TaskContext(NamedTuple):
    """One task: where it runs, its state and exit in words, and what is known of the cause."""

    place: str
    address: str
    state: TaskState
    how: str
    reason: str


TaskContexts = Mapping[TaskId, TaskContext]


def task_contexts(snapshot: Snapshot) -> dict[TaskId, TaskContext]:
    """The tasks by name. Equal as long as nothing changes that an explanation speaks of."""
    over = snapshot.state is RunPhase.ENDED
    return {
        # How a task was ended with its run says nothing of why another once waited for it.
        task.id: TaskContext(
            f"{task.id} @{task.host}",
            task.address,
            task.state,
            "" if over else task.exit_text,
            task.reason,
        )
        for task in snapshot.tasks
    }


def known_cause(hint: Hint, task: TaskId | None, tasks: TaskContexts) -> str:
    """Cause that the run knows of a hint in the log of `task`; empty when it knows none."""
    if hint.about is not None:
        return _waited_for(hint.about, tasks)
    own = tasks.get(task) if task is not None else None
    if hint.kind == PORT_IN_USE and own is not None:
        return own.reason
    return ""


def explain_hint(hint: Hint, task: TaskId | None, tasks: TaskContexts) -> str:
    """A hint in words, with what the run knows in place of what may be in general."""
    return f"{hint.kind}: {known_cause(hint, task, tasks) or hint.text}"


def _waited_for(about: TaskId, tasks: TaskContexts) -> str:
    other = tasks.get(about)
    if other is None:
        return f"{about} is not a task of this run: the program's cluster is another one"
    if not other.how:
        return ""
    why = f" ({other.reason})" if other.reason else ""
    if other.state in _UP:
        return (
            f"{other.place} is {other.how}: it is about to answer, or {other.address} cannot "
            "be reached from here"
        )
    if other.state.ended:
        return f"{other.place} has ended: {other.how}{why}"
    return f"{other.place} is {other.how}{why}: the session begins when it answers"
