"""Formatting of figures, times and task states, the same everywhere in the interface."""

from __future__ import annotations

import shlex
import time
from enum import StrEnum
from typing import TYPE_CHECKING

from launcher.quantities import thousands
from launcher.run.states import TaskState

if TYPE_CHECKING:
    from launcher.engines.slurm_script import JobRequest
    from launcher.run.snapshot import TaskView


_LONGEST, _SHOWN = 1000, 40
"""Characters of the longest line of a batch script that is shown whole, and of a longer one."""


class StatusColor(StrEnum):
    """Meaning of a state for the person watching; each has a colour in the theme. A letter or a
    word always stands beside the colour."""

    WAITING = "waiting"
    BUSY = "busy"
    GOOD = "good"
    OFF = "off"
    BAD = "bad"


STATE_COLORS: dict[TaskState, StatusColor] = {
    TaskState.PENDING: StatusColor.WAITING,
    TaskState.STAGING: StatusColor.WAITING,
    TaskState.WARMING: StatusColor.WAITING,
    TaskState.STARTING: StatusColor.BUSY,
    TaskState.READY: StatusColor.BUSY,
    TaskState.RUNNING: StatusColor.GOOD,
    TaskState.BACKOFF: StatusColor.BUSY,
    TaskState.LOST: StatusColor.BAD,
    TaskState.EXITED: StatusColor.OFF,
    TaskState.FAILED: StatusColor.BAD,
    TaskState.STOPPED: StatusColor.OFF,
    TaskState.KILLED: StatusColor.OFF,
}

LETTERS: dict[TaskState, str] = {
    TaskState.PENDING: "·",
    TaskState.STAGING: "c",
    TaskState.WARMING: "w",
    TaskState.STARTING: "s",
    TaskState.READY: "r",
    TaskState.RUNNING: "R",
    TaskState.BACKOFF: "b",
    TaskState.LOST: "?",
    TaskState.EXITED: "E",
    TaskState.FAILED: "F",
    TaskState.STOPPED: "S",
    TaskState.KILLED: "K",
}
"""One letter a state, for the status strip; the help screen lists them."""


def status_color(task: TaskView) -> StatusColor:
    """The colour of a task; one that exited with another status than 0 is bad."""
    if task.state is TaskState.EXITED and task.exit_code:
        return StatusColor.BAD
    return STATE_COLORS[task.state]


def figure(number: float) -> str:
    """A loss or a rate in about four characters: `0.4512`, `12.3`, `331`, `1.2e-05`."""
    size = abs(number)
    if number != number or size in (float("inf"), 0.0):
        return f"{number:g}"
    if size >= 1e6 or size < 1e-3:
        return f"{number:.1e}"
    if size >= 100:
        return thousands(number)
    return f"{number:.4f}"[:5] if size < 10 else f"{number:.1f}"


def clock(seconds: float) -> str:
    """A span as a clock: `0:23`, `1:02:03`."""
    whole = max(0, int(seconds))
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def time_of_day(seconds: float) -> str:
    """Time of day of a moment: `18:30:02`."""
    return time.strftime("%H:%M:%S", time.localtime(seconds))


def request_text(request: JobRequest, *, whole: bool) -> str:
    """The request for nodes: a line that says how it is made, and the batch script. Without
    `whole`, a line that no screen holds (the agent's program) is cut."""
    where = f" on {request.login}" if request.login else ""
    lines = request.script.splitlines()
    if not whole:
        lines = [line if len(line) <= _LONGEST else _cut(line) for line in lines]
    command = shlex.join(request.argv)
    title = f"asks for nodes{where} by: {command}, which reads this batch script:"
    return "\n".join([title, *lines]) + "\n"


def _cut(line: str) -> str:
    return f"{line[:_SHOWN]}… ({thousands(len(line))} characters)"


def bar(share: float, cells: int) -> str:
    """A bar of `cells`, filled up to `share` (0–1); the empty part is drawn too, so that it
    reads without colours."""
    filled = round(min(1.0, max(0.0, share)) * cells)
    return "━" * filled + "╌" * (cells - filled)
