"""Formatting of figures, times and task states, the same everywhere in the interface."""

from __future__ import annotations

import shlex
import time
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from launcher.quantities import thousands
from launcher.run.states import Outcome, TaskState

if TYPE_CHECKING:
    from launcher.run.snapshot import TaskView
    from launcher.slurm.script import JobRequest


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


class StateMark(NamedTuple):
    """Letter of a task's state or mark of a run's outcome, and its colour."""

    letter: str
    color: StatusColor


STATE_MARKS: dict[TaskState, StateMark] = {
    TaskState.PENDING: StateMark("·", StatusColor.WAITING),
    TaskState.STAGING: StateMark("c", StatusColor.WAITING),
    TaskState.WARMING: StateMark("w", StatusColor.WAITING),
    TaskState.STARTING: StateMark("s", StatusColor.BUSY),
    TaskState.READY: StateMark("r", StatusColor.GOOD),
    TaskState.RUNNING: StateMark("R", StatusColor.GOOD),
    TaskState.BACKOFF: StateMark("b", StatusColor.BUSY),
    TaskState.LOST: StateMark("?", StatusColor.BAD),
    TaskState.EXITED: StateMark("E", StatusColor.OFF),
    TaskState.FAILED: StateMark("✗", StatusColor.BAD),
    TaskState.STOPPED: StateMark("S", StatusColor.OFF),
    TaskState.KILLED: StateMark("■", StatusColor.OFF),
}
"""The status strip shows them, and the help screen lists them; what has failed or was killed has
the mark of such a run."""

_OUTCOME_MARKS: dict[Outcome, StateMark] = {
    Outcome.SUCCESS: StateMark("✓", StatusColor.GOOD),
    Outcome.FAILED: StateMark("✗", StatusColor.BAD),
    Outcome.PREFLIGHT: StateMark("✗", StatusColor.BAD),
    Outcome.KILLED: StateMark("■", StatusColor.OFF),
    Outcome.TERMINATED: StateMark("■", StatusColor.OFF),
    Outcome.TAKEN_OVER: StateMark("…", StatusColor.BAD),
    Outcome.DETACHED: StateMark("…", StatusColor.BUSY),
}


UNCONFIRMED = "not confirmed on every host"
"""Verdict of a receipt with which some host has not confirmed that no process is left."""


def outcome_mark(outcome: Outcome | None, *, clean: bool = True) -> StateMark:
    """The mark of a run's outcome; in the colour of trouble if its receipt is not `clean`."""
    mark = _OUTCOME_MARKS[outcome] if outcome else StateMark("?", StatusColor.OFF)
    return mark if clean else mark._replace(color=StatusColor.BAD)


def state_mark(task: TaskView) -> StateMark:
    """The mark of a task; one that exited with another status than 0 has failed."""
    failed = task.state is TaskState.EXITED and task.exit_code
    return STATE_MARKS[TaskState.FAILED if failed else task.state]


def status_color(task: TaskView) -> StatusColor:
    """The colour of a task."""
    return state_mark(task).color


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


def time_of_day(seconds: float) -> str:
    """Time of day of a moment: `18:30:02`."""
    return time.strftime("%H:%M:%S", time.localtime(seconds))


def request_text(request: JobRequest) -> str:
    """The request for nodes: a line that says how it is made, and the batch script. A line that no
    screen holds and nobody reads (the agent's program) is cut; `--json` has it."""
    where = f" on {request.login}" if request.login else ""
    lines = request.script.splitlines()
    lines = [line if len(line) <= _LONGEST else _cut(line) for line in lines]
    command = shlex.join(request.argv)
    title = f"asks for nodes{where} by: {command}, which reads this batch script:"
    return "\n".join([title, *lines]) + "\n"


def _cut(line: str) -> str:
    return f"{line[:_SHOWN]}… ({thousands(len(line))} characters; whole with --json)"


def bar(share: float, cells: int) -> str:
    """A bar of `cells`, filled up to `share` (0–1); the empty part is drawn too, so that it
    reads without colours. What has begun is not empty, and what has not ended is not full."""
    halves = round(min(1.0, max(0.0, share)) * 2 * cells)
    if 0.0 < share < 1.0:
        halves = min(max(1, halves), 2 * cells - 1)
    return "█" * (halves // 2) + "▋" * (halves % 2) + "░" * (cells - (halves + 1) // 2)
