"""Titles of panes."""

from __future__ import annotations

from typing import NamedTuple

from launcher.quantities import age, thousands
from launcher.run.snapshot import TaskView
from tui.format import StatusColor, figure, status_color

_SPARKS = "▁▂▃▄▅▆▇█"
SPARK_CELLS = 12


class TitlePart(NamedTuple):
    """Part of a title; a larger rank goes first when the pane is narrow. `kind` is one of
    the pane's component classes."""

    rank: int
    text: str
    kind: str


def task_title(
    task: TaskView, now: float, spark: str, stalled: float | None, pinned: bool
) -> tuple[TitlePart, ...]:
    """`worker:1 @tf3  running  step 4 113  loss 0.21  ⏱ 2 s`."""
    parts = [
        TitlePart(0, f"{task.id}", "name"),
        TitlePart(4, f" @{task.host}", "title"),
    ]
    if pinned:
        parts.append(TitlePart(6, " ⌖", "title"))
    if stalled is not None:
        parts.append(TitlePart(1, f"  ⚠ no step for {age(stalled)}", StatusColor.BAD))
    else:
        parts.append(TitlePart(1, f"  {task.exit_text}", status_color(task)))
    if task.attempt > 1:
        parts.append(TitlePart(2, f"  try {task.attempt}", "title"))
    if task.step is not None:
        parts.append(TitlePart(2, f"  step {thousands(task.step)}", "title"))
    if task.loss is not None:
        parts.append(TitlePart(3, f"  loss {figure(task.loss)}", "title"))
        if spark:
            parts.append(TitlePart(7, f" {spark}", "title"))
    if task.last_output is not None and task.state.live:
        parts.append(TitlePart(5, f"  ⏱ {age(now - task.last_output)}", "title"))
    if task.url:
        parts.append(TitlePart(2, f"  {task.url}", "name"))
    return tuple(parts)


def sparkline(values: list[float], cells: int = SPARK_CELLS) -> str:
    """The last values as a row of blocks, each cell the mean of its share."""
    finite = [value for value in values if abs(value) < float("inf")]
    if len(finite) < cells:
        return ""
    means = []
    for i in range(cells):
        share = finite[len(finite) * i // cells : len(finite) * (i + 1) // cells]
        means.append(sum(share) / len(share))
    low, high = min(means), max(means)
    if high == low:
        return _SPARKS[0] * cells
    top = len(_SPARKS) - 1
    return "".join(_SPARKS[round((mean - low) / (high - low) * top)] for mean in means)
