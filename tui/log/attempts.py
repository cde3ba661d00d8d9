"""Attempts in logs: the line with which each begins. One log holds all attempts of its task."""

from __future__ import annotations

from collections.abc import Iterable

from launcher.ids import TaskId
from launcher.run.snapshot import Attempt, TaskView
from launcher.store.logs import LogStore
from tui.format import time_of_day

from .document import Document


class AttemptStarts:
    """First lines of attempts. The lines stay as they are in the file, so numbers, counts and hits
    know nothing of the separators that are drawn between them."""

    def __init__(self, logs: LogStore) -> None:
        self._logs = logs
        self._attempts: dict[TaskId, tuple[Attempt, ...]] = {}
        self._lines: dict[tuple[TaskId, int], int] = {}
        """The first line of each attempt, where it has printed one."""

    def update(self, tasks: Iterable[TaskView]) -> bool:
        """Takes over the attempts of a snapshot; False when they are the same as before."""
        attempts = {task.id: task.attempts for task in tasks if task.attempts}
        if attempts == self._attempts:
            return False
        self._attempts = attempts
        return True

    def begun(self, task: TaskId, after: int, line: int) -> list[Attempt]:
        """The attempts that begin after line `after` of a task's log, up to `line`."""
        result = []
        for attempt in self._attempts.get(task, ()):
            first = self._first_line(task, attempt)
            if first is not None and after < first <= line:
                result.append(attempt)
        return result

    def _first_line(self, task: TaskId, attempt: Attempt) -> int | None:
        known = self._lines.get((task, attempt.number))
        if known is not None:
            return known
        file = self._logs.open(task)
        start = attempt.log_start
        if file.size <= start:
            return None
        first = Document(task, file).number_at(start)
        # The one before may have died in the middle of a line, which the new one then goes on
        # with: the separator comes behind it.
        first += start > 0 and file.read(start - 1, 1) != b"\n"
        self._lines[task, attempt.number] = first
        return first


def separator(attempt: Attempt, task: TaskId | None) -> str:
    """`── attempt 2 · 12:04:11 ──`; with the task, where logs are merged."""
    when = time_of_day(attempt.time)
    whose = f"{task} " if task is not None else ""
    return f"── {whose}attempt {attempt.number} · {when} ──"
