"""Stage line: the start order as a picture, each stage filled as its tasks become ready.

`ps ██ 2/2 ▸ chief ▒ starting 3 s ▸ workers ░░░ waiting`; in a narrow row `ps ✓ ▸ chief 0/1 ▸
workers 0/3`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from launcher.quantities import age
from launcher.run.snapshot import Snapshot, TaskView
from launcher.run.states import RunPhase, TaskState
from tui.format import StatusColor, status_color

from .fit import Part

BEFORE = (RunPhase.QUEUED, RunPhase.CONNECTING, RunPhase.STAGING, RunPhase.STARTING)
"""Phases in which stages are still to start."""
_UP = (TaskState.READY, TaskState.RUNNING)
_BEGUN = (TaskState.STAGING, TaskState.WARMING, TaskState.STARTING, TaskState.BACKOFF)
_MOST_CELLS = 8
_READY, _STARTING, _WAITING, _FAILED = "█▒░✗"


class Form(Enum):
    """Forms of the line, from the widest on."""

    FULL = auto()
    NARROW = auto()


@dataclass(frozen=True)
class _Group:
    """Tasks that the line shows as one: those of a job, or one that starts before the others."""

    name: str
    tasks: tuple[TaskView, ...]

    @property
    def up(self) -> int:
        return sum(task.state in _UP for task in self.tasks)

    @property
    def wrong(self) -> int:
        return sum(status_color(task) is StatusColor.BAD for task in self.tasks)

    @property
    def begun(self) -> int:
        return sum(task.state in _BEGUN for task in self.tasks)


def stage_parts(
    snapshot: Snapshot, now: float, form: Form, colours: Mapping[StatusColor, str]
) -> list[Part]:
    """The line as parts of a row, more important before all are up or when one is in trouble."""
    parts: list[Part] = []
    stages = _stages(snapshot.tasks)
    before = snapshot.state in BEFORE
    urgent = before or any(group.wrong for stage in stages for group in stage)
    unready = [i for i, stage in enumerate(stages) if any(g.up < len(g.tasks) for g in stage)]
    for number, stage in enumerate(stages):
        now_starting = snapshot.state is RunPhase.STARTING and unready[:1] == [number]
        for i, group in enumerate(stage):
            text = "" if not parts else " ▸ " if i == 0 else "  "
            text += group.name
            if before and form is Form.FULL:
                text += f" {_cells(group)}{_progress(group, snapshot, now, now_starting)}"
            else:
                text += _count(group, form)
            text += f" !{group.wrong}" if group.wrong else ""
            rank = 1 if urgent else 4 if group.tasks[0].in_cluster else 6
            parts.append(Part(rank, text, _style(group, now_starting, colours), joins=bool(parts)))
    return parts


def _stages(tasks: Sequence[TaskView]) -> list[list[_Group]]:
    """The groups of each stage. A job stands in the last stage that has one of its tasks, with all
    of them; those that start in an earlier one are shown there by themselves too."""
    last: dict[str, int] = {}
    for task in tasks:
        last[task.id.job] = max(task.stage, last.get(task.id.job, 0))
    stages: dict[int, dict[str, _Group]] = {}
    for task in tasks:
        job = task.id.job
        if task.stage < last[job]:
            name = "chief" if task.is_chief else str(task.id)
            stages.setdefault(task.stage, {})[name] = _Group(name, (task,))
    for job, stage in last.items():
        members = tuple(task for task in tasks if task.id.job == job)
        name = job if job in ("ps", "chief") or len(members) == 1 else f"{job}s"
        stages.setdefault(stage, {})[name] = _Group(name, members)
    return [list(stages[number].values()) for number in sorted(stages)]


def _cells(group: _Group) -> str:
    """One cell a task, or of many tasks their shares of eight cells; each state has its glyph."""
    count = len(group.tasks)
    cells = min(count, _MOST_CELLS)
    ready = group.up * cells // count
    begun = (group.up + group.begun) * cells // count - ready
    failed = group.wrong if count == cells else 0
    rest = cells - ready - begun - failed
    return _READY * ready + _FAILED * failed + _STARTING * begun + _WAITING * rest


def _progress(group: _Group, snapshot: Snapshot, now: float, now_starting: bool) -> str:
    count = f" {group.up}/{len(group.tasks)}" if len(group.tasks) > 1 else ""
    if group.up == len(group.tasks):
        return count or " ✓"
    if not now_starting:
        return f"{count if group.up else ''} waiting"
    since = "" if snapshot.waiting_since is None else f" {age(now - snapshot.waiting_since)}"
    return f"{count} starting{since}"


def _count(group: _Group, form: Form) -> str:
    """`2/3`, and a mark when all are ready; the mark alone in a narrow row."""
    count, ready = len(group.tasks), group.up == len(group.tasks)
    alone = count == 1 or form is Form.NARROW
    if ready:
        return " ✓" if alone else f" {group.up}/{count} ✓"
    return f" {group.up}/{count}"


def _style(group: _Group, now_starting: bool, colours: Mapping[StatusColor, str]) -> str:
    if group.wrong:
        return f"bold {colours[StatusColor.BAD]}"
    if group.up == len(group.tasks):
        return f"bold {colours[StatusColor.GOOD]}"
    return f"bold {colours[StatusColor.BUSY]}" if now_starting else ""
