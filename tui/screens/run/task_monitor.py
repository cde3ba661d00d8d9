"""Monitor of a run's tasks: overdue steps, complaints in logs, sparklines of the loss."""

from __future__ import annotations

import time
from collections.abc import Iterable

from launcher.ids import TaskId
from launcher.run.snapshot import Snapshot
from launcher.session.control import RunControl
from launcher.store.metrics import RECENT, stalled_for
from tui.log.hints import TaskContexts, known_cause
from tui.log_alerts import LogAlerts
from tui.widgets.titles import sparkline


class TaskMonitor:
    """Looks at metrics and the ends of logs once a second, when `update` is called."""

    def __init__(self, control: RunControl) -> None:
        self.stalled: dict[TaskId, float] = {}
        """Tasks whose next step is overdue, and by how many seconds."""
        self.sparklines: dict[TaskId, str] = {}
        self.alert = ""
        """The newest complaint of a live task, while nothing has failed."""
        self._heard: dict[TaskId, tuple[float, float]] = {}
        """The time of each task's last metric line, and when that was on a clock that nobody sets:
        the wall clock may jump, and the silence of a task must not jump with it."""
        self._control = control
        self._alerts = LogAlerts(control)

    def update(
        self, snapshot: Snapshot, visible: Iterable[TaskId], contexts: TaskContexts, now: float
    ) -> None:
        """Looks at all tasks; sparklines are made for the visible ones."""
        self.stalled = {}
        for task in snapshot.tasks:
            times = self._control.series(task.id).points.times[-RECENT:]
            if task.state.live and task.step is not None and times:
                late = stalled_for(times, times[-1] + self._silence(task.id, times[-1], now))
                if late is not None:
                    self.stalled[task.id] = late
        for name in visible:
            self.sparklines[name] = sparkline(list(self._control.series(name).points.losses))
        self.alert = self._newest_alert(snapshot, contexts, now)

    def _silence(self, task: TaskId, last: float, now: float) -> float:
        """Seconds since a task's last metric line, which the wall clock tells only of a line that
        is new here: it may be older than this screen."""
        clock = time.monotonic()
        if self._heard.get(task, (None,))[0] != last:
            self._heard[task] = last, clock - max(0.0, now - last)
        return clock - self._heard[task][1]

    def _newest_alert(self, snapshot: Snapshot, contexts: TaskContexts, now: float) -> str:
        newest = self._alerts.newest(snapshot, now)
        if newest is None or snapshot.first_failure is not None:
            return ""
        task, hint = newest
        cause = known_cause(hint, task, contexts)
        return f"! {task}: {hint.kind}" + (f": {cause}" if cause else "")
