"""Titles of panes: what the borders of a pane say of its task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from launcher.ids import named_tasks
from launcher.quantities import age, size, thousands
from launcher.run.cause import Verdict
from launcher.run.snapshot import HostView, Snapshot, TaskView
from launcher.run.states import HostState, TaskState
from tui.format import StatusColor, bar, figure, status_color
from tui.gpu_load import GpuWarning

from .fit import Part

NAME, NOTE = "name", "note"
"""Styles of parts that depend on the pane."""
QUIET_AFTER = 2.0
"""Seconds of silence from which on a title shows them."""
LONG_QUIET = 30.0
"""Seconds of silence that tell more than the step and the loss before them."""
_PROGRESS_CELLS = 12
_DONE_BEFORE = (TaskState.READY, TaskState.RUNNING, TaskState.EXITED)
"""States of a task that the next stage does not wait for."""


class Title(NamedTuple):
    """Parts of the upper border, and of the lower one, which stand behind the others where a pane
    has no lower border."""

    upper: tuple[Part, ...] = ()
    lower: tuple[Part, ...] = ()
    bad: bool = False
    """The task is in trouble: its border has the colour of that."""


def empty_text(task: TaskView, snapshot: Snapshot, now: float, *, hidden: bool = False) -> str:
    """What a task does of whose log no line is shown: `starts when ps:0 is ready`. `hidden`: it has
    lines, which are hidden."""
    none = "no other output" if hidden else "no output"
    host = next((host for host in snapshot.hosts if host.name == task.host), None)
    since = f", {age(now - task.started)}" if task.started is not None else ""
    if snapshot.ended is not None and not task.attempt:
        return "was not started"
    match task.state:
        case TaskState.PENDING if task.restart_due:
            return "starts again when its processes have ended"
        case TaskState.PENDING if host is not None and host.state is HostState.CONNECTING:
            return f"waits for the connection to {task.host}"
        case TaskState.PENDING:
            return _start_text(task, snapshot)
        case TaskState.STAGING:
            return f"gets its files{_staged(host)}; {_start_text(task, snapshot)}"
        case TaskState.WARMING:
            return f"imports its modules{since}; {_start_text(task, snapshot)}"
        case TaskState.STARTING:
            return f"starting{since}: {none} yet"
        case TaskState.READY | TaskState.RUNNING:
            return f"{task.state}{since}: {none} yet"
        case TaskState.BACKOFF:
            return "waits before its next attempt"
        case TaskState.LOST:
            return f"its host is lost: {task.reason}" if task.reason else "its host is lost"
    return f"{task.exit_text}: {none}"


def _start_text(task: TaskView, snapshot: Snapshot) -> str:
    """What has to come before a task's start."""
    first = [
        other
        for other in snapshot.tasks
        if other.stage < task.stage and other.state not in _DONE_BEFORE
    ]
    stage = max((other.stage for other in first), default=0)
    names = [other.id for other in first if other.stage == stage]
    if not names:
        return "starts next"
    return f"starts when {named_tasks(names)} {'is' if len(names) == 1 else 'are'} ready"


def _staged(host: HostView | None) -> str:
    if host is None or not host.staged_total:
        return ""
    return f", {size(host.staged_bytes)} of {size(host.staged_total)}"


def task_title(
    task: TaskView,
    now: float,
    colours: Mapping[StatusColor, str],
    spark: str,
    pinned: bool,
    total: float | None,
    warning: GpuWarning | None = None,
    verdict: Verdict | None = None,
) -> Title:
    """`worker:1 @tf3  running  GPU idle 75 s  step 4113  loss 0.21  quiet 2 s`; below, where the
    `total` of the steps is known the progress, and the sparkline of the loss. `verdict`: it names
    this task, and not all."""
    bad = f"bold {colours[StatusColor.BAD]}"
    color = status_color(task)
    trouble = task.stalled_since is not None or bool(task.halted) or color is StatusColor.BAD
    trouble |= verdict is not None
    # Where something is wrong, the host is what a person needs next.
    upper = [Part(0, f"{task.id}", NAME), Part(2 if trouble else 4, f" @{task.host}", joins=True)]
    if pinned:
        upper.append(Part(6, "pinned"))
    if task.halted_since is not None:
        upper.append(Part(1, f"! {task.halted} for {age(now - task.halted_since)}", bad))
    elif task.stalled_since is not None:
        upper.append(Part(1, f"! no step for {age(now - task.stalled_since)}", bad))
    else:
        style = bad if color is StatusColor.BAD else colours[color]
        upper.append(Part(1, task.exit_text, style))
    if verdict is not None:
        upper.append(Part(1, "! cause" if verdict.sure else "? cause", bad))
    if warning is not None:
        style = f"bold {colours[warning.color]}"
        upper.append(Part(2, warning.title, style, shortens=True))
    if task.attempt > 1:
        upper.append(Part(2, f"attempt {task.attempt}"))
    if task.step is not None:
        upper.append(Part(2, f"step {thousands(task.step)}"))
    if task.loss is not None:
        upper.append(Part(3, f"loss {figure(task.loss)}"))
    # What serves the others, a ps or TensorBoard, is silent for hours and well.
    talks = task.state.live and task.state is not TaskState.READY
    if talks and task.last_output is not None and now - task.last_output >= QUIET_AFTER:
        silent = now - task.last_output
        tells = silent >= LONG_QUIET and task.stalled_since is None
        upper.append(Part(1 if tells else 5, f"quiet {age(silent)}"))
    if task.url:
        upper.append(Part(2, task.url, NAME))
    lower = []
    if total and task.step is not None:
        share = min(1.0, task.step / total)
        lower.append(Part(8, bar(share, _PROGRESS_CELLS)))
        lower.append(Part(8, f"{share * 100:.0f} %"))
    if spark:
        lower.append(Part(8, spark))
    return Title(tuple(upper), tuple(lower), trouble)
