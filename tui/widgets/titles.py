"""Titles of panes: state, step, loss and sparkline of a task."""

from __future__ import annotations

from launcher.quantities import age, thousands
from launcher.run.snapshot import TaskView
from tui.format import StatusColor, figure, status_color

from .fit import Part
from .pane_frame import Title

QUIET_AFTER = 2.0
"""Seconds of silence from which on a title shows them."""


def task_title(
    task: TaskView,
    now: float,
    spark: str,
    stalled: float | None,
    pinned: bool,
    total: float | None,
) -> Title:
    """`worker:1 @tf3  running  step 4 113  loss 0.21  quiet 2 s`, the sparkline of the loss, and
    where the `total` of the steps is known the progress."""
    parts = [
        Part(0, f"{task.id}", "name"),
        Part(4, f" @{task.host}", "title"),
    ]
    if pinned:
        parts.append(Part(6, "  pinned", "title"))
    if stalled is not None:
        parts.append(Part(1, f"  ! no step for {age(stalled)}", StatusColor.BAD))
    else:
        parts.append(Part(1, f"  {task.exit_text}", status_color(task)))
    if task.attempt > 1:
        parts.append(Part(2, f"  try {task.attempt}", "title"))
    if task.step is not None:
        parts.append(Part(2, f"  step {thousands(task.step)}", "title"))
    if task.loss is not None:
        parts.append(Part(3, f"  loss {figure(task.loss)}", "title"))
    if task.last_output is not None and task.state.live and now - task.last_output >= QUIET_AFTER:
        parts.append(Part(5, f"  quiet {age(now - task.last_output)}", "title"))
    if task.url:
        parts.append(Part(2, f"  {task.url}", "name"))
    share = min(1.0, task.step / total) if total and task.step is not None else None
    return Title(tuple(parts), spark, share)
