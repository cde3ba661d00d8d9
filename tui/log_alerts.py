"""Alerts from logs: known problems that running tasks report before anything has failed."""

from __future__ import annotations

from launcher.ids import TaskId
from launcher.run.snapshot import Snapshot, TaskView
from launcher.session.control import RunControl
from tui.log.hints import Hint, hint_for
from tui.log.sanitise import plain_text

_TAIL = 4096
_FRESH = 30.0
"""Seconds that a complaint counts; TensorFlow repeats that it waits every ten."""
_AT_ONCE = 64
"""Logs that are read at a time: a screen of thousands of tasks has its keys to answer."""


class LogAlerts:
    """Reads the ends of logs; one that has not grown is not read again."""

    def __init__(self, control: RunControl) -> None:
        self._control = control
        self._seen: dict[TaskId, tuple[int, int, Hint | None]] = {}
        """Of each log: where its attempt began, its size when it was looked at, and what its end
        meant; in the order in which they were looked at."""

    def newest(self, snapshot: Snapshot, now: float) -> tuple[TaskId, Hint] | None:
        """The latest complaint of a live task that has made no step since."""
        tasks = [task for task in snapshot.tasks if self._may_complain(task, now)]
        # Those that have not been looked at for longest come first.
        looks = {task: at for at, task in enumerate(self._seen)}
        for task in sorted(tasks, key=lambda task: looks.get(task.id, -1))[:_AT_ONCE]:
            self._check(task)
        found = [
            (task.last_output or 0.0, task.id, hint)
            for task in tasks
            if (hint := self._seen.get(task.id, (0, 0, None))[2]) is not None
        ]
        if not found:
            return None
        _, name, hint = max(found, key=lambda one: one[0])
        return name, hint

    def _may_complain(self, task: TaskView, now: float) -> bool:
        """Whether a live task has printed lately and made no step."""
        if not task.state.live or task.last_output is None or now - task.last_output > _FRESH:
            return False
        times = self._control.series(task.id).points.times
        return not times or now - times[-1] >= _FRESH

    def _check(self, task: TaskView) -> None:
        """Finds what the end of a log means, as far as the present attempt wrote it."""
        file = self._control.logs.open(task.id)
        begun, size = task.attempts[-1].log_start if task.attempts else 0, file.size
        known = self._seen.pop(task.id, None)
        if known is None or known[:2] != (begun, size):
            data = file.read(max(begun, size - _TAIL), _TAIL)
            hints = (hint_for(plain_text(line)) for line in reversed(data.split(b"\n")))
            known = begun, size, next((hint for hint in hints if hint is not None), None)
        self._seen[task.id] = known
