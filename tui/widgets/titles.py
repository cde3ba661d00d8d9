"""Titles of panes: what the borders of a pane say of its task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from launcher.quantities import age, thousands
from launcher.run.snapshot import TaskView
from launcher.run.states import TaskState
from tui.format import StatusColor, bar, figure, status_color
from tui.gpu_load import GpuWarning

from .fit import Part

NAME, NOTE = "name", "note"
"""Styles of parts that depend on the pane."""
QUIET_AFTER = 2.0
"""Seconds of silence from which on a title shows them."""
_PROGRESS_CELLS = 12


class Title(NamedTuple):
    """Parts of the upper border, and of the lower one, which stand behind the others where a pane
    has no lower border."""

    upper: tuple[Part, ...] = ()
    lower: tuple[Part, ...] = ()
    bad: bool = False
    """The task is in trouble: its border has the colour of that."""


def task_title(
    task: TaskView,
    now: float,
    colours: Mapping[StatusColor, str],
    spark: str,
    pinned: bool,
    total: float | None,
    warning: GpuWarning | None = None,
) -> Title:
    """`worker:1 @tf3  running  GPU idle 75 s  step 4113  loss 0.21  quiet 2 s`; below, where the
    `total` of the steps is known the progress, and the sparkline of the loss."""
    bad = f"bold {colours[StatusColor.BAD]}"
    color = status_color(task)
    upper = [Part(0, f"{task.id}", NAME), Part(4, f" @{task.host}", joins=True)]
    if pinned:
        upper.append(Part(6, "pinned"))
    if task.stalled_since is not None:
        upper.append(Part(1, f"! no step for {age(now - task.stalled_since)}", bad))
    else:
        style = bad if color is StatusColor.BAD else colours[color]
        upper.append(Part(1, task.exit_text, style))
    if warning is not None:
        style = f"bold {colours[warning.color]}"
        upper.append(Part(2, warning.title, style, shortens=True))
    if task.attempt > 1:
        upper.append(Part(2, f"try {task.attempt}"))
    if task.step is not None:
        upper.append(Part(2, f"step {thousands(task.step)}"))
    if task.loss is not None:
        upper.append(Part(3, f"loss {figure(task.loss)}"))
    # What serves the others, a ps or TensorBoard, is silent for hours and well.
    talks = task.state.live and task.state is not TaskState.READY
    if talks and task.last_output is not None and now - task.last_output >= QUIET_AFTER:
        upper.append(Part(5, f"quiet {age(now - task.last_output)}"))
    if task.url:
        upper.append(Part(2, task.url, NAME))
    lower = []
    if total and task.step is not None:
        share = min(1.0, task.step / total)
        lower.append(Part(8, bar(share, _PROGRESS_CELLS)))
        lower.append(Part(8, f"{share * 100:.0f} %"))
    if spark:
        lower.append(Part(8, spark))
    trouble = task.stalled_since is not None or color is StatusColor.BAD
    return Title(tuple(upper), tuple(lower), trouble)
