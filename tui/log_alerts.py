"""Alerts from logs: known problems that running tasks report before anything has failed."""

from __future__ import annotations

from launcher.ids import TaskId
from launcher.run.snapshot import Snapshot
from launcher.session.control import RunControl
from launcher.store.hints import Hint, hint_for
from tui.log.sanitise import plain_text

_TAIL = 4096
_FRESH = 30.0
"""Seconds that a complaint counts; TensorFlow repeats that it waits every ten."""


class LogAlerts:
    """Reads the ends of logs; one that has not grown is not read again."""

    def __init__(self, control: RunControl) -> None:
        self._control = control
        self._seen: dict[TaskId, tuple[int, Hint | None]] = {}
        """Of each log: its size when it was looked at, and what its end meant."""

    def newest(self, snapshot: Snapshot, now: float) -> tuple[TaskId, Hint] | None:
        """The latest complaint of a live task that has made no step since."""
        found: list[tuple[float, TaskId, Hint]] = []
        for task in snapshot.tasks:
            since = task.last_output
            if not task.state.live or since is None or now - since > _FRESH:
                continue
            points = self._control.series(task.id).points
            if points and now - points[-1].time < _FRESH:
                continue  # it makes steps: whatever it said, it got over it
            begun = task.attempts[-1].log_start if task.attempts else 0
            hint = self._hint(task.id, begun)
            if hint is not None:
                found.append((since, task.id, hint))
        if not found:
            return None
        _, name, hint = max(found, key=lambda one: one[0])
        return name, hint

    def _hint(self, task: TaskId, begun: int) -> Hint | None:
        """Meaning of the end of a log, as far as the attempt that began at `begun` wrote it."""
        file = self._control.logs.open(task)
        size = file.size
        known = self._seen.get(task)
        if known is not None and known[0] == size:
            return known[1]
        data = file.read(max(begun, size - _TAIL), _TAIL)
        hints = (hint_for(plain_text(line)) for line in reversed(data.split(b"\n")))
        hint = next((hint for hint in hints if hint is not None), None)
        self._seen[task] = size, hint
        return hint
