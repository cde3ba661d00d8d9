"""Monitor of a run's tasks: complaints in logs, warnings of GPUs, sparklines of the loss and of the
load of hosts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from launcher.history.control import RunControl
from launcher.ids import TaskId
from launcher.lines import screen
from launcher.run.snapshot import Snapshot, TaskView
from tui.curves import sparkline
from tui.gpu_load import GpuWarning, LoadHistory, alert, task_warnings
from tui.log.hints import Hint, TaskContexts, hint_for, known_cause

_TAIL = 4096
_FRESH = 30.0
"""Seconds that a complaint counts; TensorFlow repeats that it waits every ten."""
_AT_ONCE = 64
"""Logs that are read at a time: a screen of thousands of tasks has its keys to answer."""


class TaskMonitor:
    """Looks at metrics and the ends of logs once a second, when `update` is called."""

    def __init__(self, control: RunControl) -> None:
        self.sparklines: dict[TaskId, str] = {}
        self.alert = ""
        """The newest complaint of a live task, while nothing has failed; else what is wrong with
        tasks' GPUs."""
        self.warnings: Mapping[TaskId, GpuWarning] = {}
        self.history = LoadHistory()
        self._control = control
        self._alerts = LogAlerts(control)

    def update(
        self, snapshot: Snapshot, visible: Iterable[TaskId], contexts: TaskContexts, now: float
    ) -> None:
        """Looks at all tasks; sparklines are made for the visible ones."""
        for name in visible:
            self.sparklines[name] = sparkline(list(self._control.series(name).points.losses))
        self.warnings = task_warnings(snapshot, now)
        self.history.take(snapshot)
        self.alert = self._newest_alert(snapshot, contexts, now) or alert(self.warnings)

    def _newest_alert(self, snapshot: Snapshot, contexts: TaskContexts, now: float) -> str:
        newest = self._alerts.newest(snapshot, now)
        if newest is None or snapshot.first_failure is not None:
            return ""
        task, hint = newest
        cause = known_cause(hint, task, contexts)
        return f"! {task}: {hint.kind}" + (f": {cause}" if cause else "")


class LogAlerts:
    """Reads the ends of logs; one that has not grown is not read again."""

    def __init__(self, control: RunControl) -> None:
        self._control = control
        self._seen: dict[TaskId, tuple[int, int, Hint | None]] = {}
        """For each log where its attempt began, its size at the last look, and what its end meant;
        in the order of the looks."""

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
            hints = (hint_for(line) for line in reversed(screen(data)))
            known = begun, size, next((hint for hint in hints if hint is not None), None)
        self._seen[task.id] = known
