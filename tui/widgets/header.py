"""Header of a run in one row: its name, how far it is, and what went wrong first.

Until all tasks are up the start order is drawn as a picture, each stage filled as its tasks become
ready: `ps ██ 2/2 ▸ chief ▒ starting 3 s ▸ workers ░░░ waiting`, in a narrow row `ps ✓ ▸ chief ▸
workers 0/3`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from functools import partial

from rich.text import Text
from textual.widget import Widget

from launcher.cluster.problems import PREPARE
from launcher.cluster.roles import plural
from launcher.frozen import frozen
from launcher.ids import named_tasks
from launcher.printable import printable
from launcher.quantities import age, clock, counted, thousands
from launcher.run.snapshot import Snapshot, TaskView
from launcher.run.states import Cause, Hang, HostState, RunPhase, TaskState
from tui.format import StatusColor, bar, figure, status_color
from tui.keys import key_of
from tui.log.hints import known_cause, task_contexts
from tui.outcome import failure_hint, lead_text, outcome_text, queue_status, receipt_verdict
from tui.widgets.colours import status_colours

from .fit import Importance, Part, fit, row_width

BEFORE = (RunPhase.QUEUED, RunPhase.CONNECTING, RunPhase.STAGING, RunPhase.STARTING)
"""Phases in which stages are still to start."""
_BEGUN = (TaskState.STAGING, TaskState.WARMING, TaskState.STARTING, TaskState.BACKOFF)
_MOST_CELLS = 8
_READY, _STARTING, _WAITING, _FAILED = "█▒░✗"
_GAP = "  "
_LONGEST_NAME = 24
_MOST_RANGES = 2
"""Ranges of tasks that are named, such as `worker:0–2`."""


class HeaderForm(Enum):
    """Forms of the picture, from the widest on."""

    FULL = auto()
    NARROW = auto()


class RunHeader(Widget):
    """Shows the last snapshot it was given; called each second, it moves its clocks on."""

    def __init__(self) -> None:
        super().__init__()
        self._snapshot: Snapshot | None = None
        self._trouble = ""
        self._summary = False
        self._row = Text()

    def show(self, snapshot: Snapshot, trouble: str = "", *, summary: bool = False) -> None:
        """Shows a snapshot, and the newest alert while nothing has failed yet. `summary`: how the
        run ended is told below the panes."""
        self._snapshot, self._trouble = snapshot, trouble
        self._summary = summary
        row = self._make()
        if row != self._row:
            self._row = row
            self.refresh()

    def on_resize(self) -> None:
        self._row = self._make()
        self.refresh()

    async def on_click(self) -> None:
        """Opens the page of the cause, where the row names one."""
        snapshot = self._snapshot
        if snapshot is not None and (snapshot.culprit or snapshot.stalled or snapshot.halted):
            await self.app.run_action("cause")

    def render(self) -> Text:
        return self._row

    def _make(self) -> Text:
        if self._snapshot is None or not self.size:
            return Text()
        colours = status_colours(self.app)
        now, width, key = time.time(), self.size.width, partial(key_of, self)
        for form in HeaderForm:
            parts = header_parts(self._snapshot, now, colours, key, form, summary=self._summary)
            if self._snapshot.state not in (RunPhase.KILLING, RunPhase.ENDED):
                if self._snapshot.halted or self._snapshot.stalled:
                    style = f"bold {colours[StatusColor.BAD]}"
                    parts.insert(1, Part(Importance.NEWS, _stall(self._snapshot, now), style))
                    hang = self._snapshot.hang
                    told = self._snapshot.verdict is not None
                    if not told and hang is not None and hang.reason is Hang.STALLED:
                        parts.insert(2, Part(Importance.CLOCK, printable(hang.text), style))
                if lost := _lost(self._snapshot, now):
                    style = f"bold {colours[StatusColor.BAD]}"
                    parts.insert(1, Part(Importance.NEWS, lost, style))
                if self._trouble:
                    style = f"bold {colours[StatusColor.BUSY]}"
                    parts.append(Part(Importance.CLOCK, self._trouble, style, shortens=True))
            if row_width([part for part in parts if part.rank < Importance.NAME], _GAP) <= width:
                break
        return fit(parts, width, _GAP)


def _stall(snapshot: Snapshot, now: float) -> str:
    """`! worker:3 on tf4 stalled for 2:05`."""
    stalled = snapshot.halted or snapshot.stalled
    first = stalled[0]
    what = str(first.halted) or "stalled"
    since = f"{what} for {clock(now - (first.halted_since or first.stalled_since or now))}"
    hosts = {task.host for task in stalled}
    where = f" on {min(hosts)}" if len(hosts) == 1 else ""
    return printable(f"! {named_tasks((task.id for task in stalled), _MOST_RANGES)}{where} {since}")


def _lost(snapshot: Snapshot, now: float) -> str:
    """`! tf4 lost for 0:30`, of several hosts that one that was heard first; empty if none is."""
    lost = [host for host in snapshot.hosts if host.state is HostState.LOST]
    if not lost:
        return ""
    lost.sort(key=lambda host: host.last_heard or now)
    more = f" and {counted(len(lost) - 1, 'more host')}" if len(lost) > 1 else ""
    return printable(f"! {lost[0].name}{more} lost for {clock(now - (lost[0].last_heard or now))}")


def _unanswered(snapshot: Snapshot) -> str:
    """The lost hosts, for which a kill waits: `tf4`, `tf4 and 2 more hosts`; empty if none is."""
    lost = [host.name for host in snapshot.hosts if host.state is HostState.LOST]
    more = f" and {counted(len(lost) - 1, 'more host')}" if len(lost) > 1 else ""
    return printable(f"{lost[0]}{more}") if lost else ""


def header_parts(
    snapshot: Snapshot,
    now: float,
    colours: Mapping[StatusColor, str],
    key: Callable[[str], str],
    form: HeaderForm = HeaderForm.FULL,
    *,
    summary: bool = False,
) -> list[Part]:
    """The parts of the header; `key` gives the displayed key of a command, `form` is that of the
    picture of the start order. With `summary` failure and clean receipt are told elsewhere."""
    bad, busy = (f"bold {colours[m]}" for m in (StatusColor.BAD, StatusColor.BUSY))
    name = snapshot.name
    if len(name) > _LONGEST_NAME:
        name = f"{name[: _LONGEST_NAME - 1]}…"
    parts = [Part(Importance.NAME, name, "bold", shortens=True)]
    if snapshot.state is RunPhase.KILLING:
        left = max(0.0, (snapshot.kill_deadline or now) - now)
        alive = sum(task.state.live for task in snapshot.tasks)
        text = f"KILL in {left:.0f} s" if left > 0 else "KILL sent"
        if left <= 0 and (silent := _unanswered(snapshot)):
            text += f", waiting for {silent}"
        if snapshot.allocation is not None and snapshot.allocation.releasing:
            text = f"every agent has answered, waiting for {snapshot.waiting}"
            if not any(task.attempt for task in snapshot.tasks):
                text = f"cancelling {snapshot.allocation.title}: nothing has started"
            return [*parts, Part(Importance.NEWS, text, busy)]
        rule = snapshot.cause is Cause.RULE
        ends = "ending the remaining tasks" if rule else "killing all"
        parts.append(Part(Importance.NEWS, f"{ends}: TERM sent, {text}", busy if rule else bad))
        parts.append(Part(Importance.STATE, f"{alive} of {len(snapshot.tasks)} alive"))
        if left > 0 and snapshot.kill_asked:
            parts.append(Part(Importance.CLOCK, f"{key('kill_all')} again: KILL now"))
        return parts
    if snapshot.state is RunPhase.ENDED:
        return [*parts, *_ended(snapshot, bad, colours, summary=summary)]
    if queue := queue_status(snapshot, now):
        parts.append(Part(Importance.NEWS, queue, busy))
        if snapshot.allocation is not None and snapshot.allocation.advice:
            parts.append(Part(Importance.STATE, snapshot.allocation.advice, bad))
        return [*parts, *stage_parts(snapshot, now, form, colours)]
    if snapshot.state is RunPhase.RESTARTING:
        text = f"{snapshot.attempt_text} — ending all tasks"
        text += f" on {snapshot.waiting}" if snapshot.waiting else ""
        return [*parts, Part(Importance.NEWS, text, busy)]
    if snapshot.attempt_text:
        parts.append(Part(Importance.STATE, snapshot.attempt_text, busy))
    if snapshot.state in BEFORE:
        parts += stage_parts(snapshot, now, form, colours)
        parts.append(Part(Importance.NEWS, _waiting(snapshot, now, form), busy))
    else:
        parts.append(Part(Importance.STATE, f"{snapshot.state} {clock(now - snapshot.started)}"))
    parts += _alive(snapshot, bad)
    return [*parts, *_first_failure(snapshot, bad), *_progress(snapshot, now)]


def _alive(snapshot: Snapshot, bad: str) -> list[Part]:
    """`3/4 tasks alive`, once one has ended; lines of `prepare` are no tasks of the cluster."""
    tasks = [task for task in snapshot.tasks if task.id.job != PREPARE]
    alive = sum(not task.state.ended for task in tasks)
    if alive == len(tasks):
        return []
    failed = any(status_color(task) is StatusColor.BAD for task in tasks)
    return [Part(Importance.STATE, f"{alive}/{len(tasks)} tasks alive", bad if failed else "")]


def _waiting(snapshot: Snapshot, now: float, form: HeaderForm) -> str:
    """Text of what the run waits for, and for how long if the picture does not say that."""
    if not snapshot.waiting:
        return f"{snapshot.state}"
    text = f"waiting for {snapshot.waiting}"
    if form is HeaderForm.FULL:
        text = f"{snapshot.state}: {text}"
    if snapshot.waiting_since is not None and (
        form is HeaderForm.NARROW or snapshot.state is not RunPhase.STARTING
    ):
        text += f" — {age(now - snapshot.waiting_since)}"
    return text


def _progress(snapshot: Snapshot, now: float) -> list[Part]:
    step, total, rate = snapshot.step, snapshot.total_steps, snapshot.rate
    if step is None:
        return []
    parts = []
    if total:
        share = min(1.0, step / total)
        parts.append(Part(Importance.STATE, f"step {thousands(step)}/{thousands(total)}"))
        parts.append(Part(Importance.BAR, bar(share, 10)))
        parts.append(Part(Importance.SHARE, f"{share * 100:.0f} %"))
    else:
        parts.append(Part(Importance.STATE, f"step {thousands(step)}"))
    if snapshot.loss is not None:
        parts.append(Part(Importance.LOSS, f"loss {figure(snapshot.loss)}"))
    if snapshot.state is not RunPhase.ENDED and rate is not None:
        parts.append(Part(Importance.RATE, f"{figure(rate)} steps/s"))
        if total and rate > 0 and step < total:
            parts.append(Part(Importance.RATE, f"ETA {clock((total - step) / rate)}"))
    return parts


def _first_failure(snapshot: Snapshot, bad: str) -> list[Part]:
    """`cause: worker:1 on tf3 raised ValueError: …`, where it is known; else `first failure:
    worker:1 @tf3 exit 1, 4.1 s before worker:0`."""
    failure = snapshot.first_failure
    if snapshot.verdict is not None:
        return [
            Part(Importance.NEWS, f"cause: {printable(snapshot.verdict.text)}", bad, shortens=True)
        ]
    if failure is None:
        return []
    text = (
        f"first failure: {failure.task} @{failure.host} {failure.how}{lead_text(snapshot, failure)}"
    )
    hint = failure_hint(snapshot, failure)
    if hint is not None:
        text += f" — {hint.kind}"
        if known := known_cause(hint, failure.task, task_contexts(snapshot)):
            text += f": {known}"
    return [Part(Importance.NEWS, text, bad)]


def _ended(
    snapshot: Snapshot, bad: str, colours: Mapping[StatusColor, str], *, summary: bool
) -> list[Part]:
    parts = [Part(Importance.NEWS, *outcome_text(snapshot, colours))]
    if snapshot.ended is not None:
        parts.append(Part(Importance.CLOCK, f"after {clock(snapshot.ended - snapshot.started)}"))
    if not summary:
        parts += _first_failure(snapshot, bad)
    if snapshot.receipt is not None and not (summary and snapshot.clean):
        rank = Importance.STATE if snapshot.clean else Importance.NEWS
        parts.append(Part(rank, *receipt_verdict(snapshot, colours)))
    return [*parts, *_progress(snapshot, snapshot.started)]


@frozen
class _Group:
    """Tasks that the picture shows as one: those of a job, or one that starts before the others."""

    name: str
    tasks: tuple[TaskView, ...]

    @property
    def up(self) -> int:
        return sum(task.state.up for task in self.tasks)

    @property
    def wrong(self) -> int:
        return sum(status_color(task) is StatusColor.BAD for task in self.tasks)

    @property
    def begun(self) -> int:
        return sum(task.state in _BEGUN for task in self.tasks)


def stage_parts(
    snapshot: Snapshot, now: float, form: HeaderForm, colours: Mapping[StatusColor, str]
) -> list[Part]:
    """The start order as parts of a row."""
    parts: list[Part] = []
    stages = _stages(snapshot.tasks)
    unready = [i for i, stage in enumerate(stages) if any(g.up < len(g.tasks) for g in stage)]
    for number, stage in enumerate(stages):
        now_starting = snapshot.state is RunPhase.STARTING and unready[:1] == [number]
        for i, group in enumerate(stage):
            text = "" if not parts else " ▸ " if i == 0 else "  "
            text += group.name
            if form is HeaderForm.FULL:
                text += f" {_cells(group)}{_standing(group, snapshot, now, now_starting)}"
            else:
                count = len(group.tasks)
                waits = f" {group.up}/{count}" if count > 1 else ""
                text += " ✓" if group.up == count else waits
            text += f" !{group.wrong}" if group.wrong else ""
            style = _style(group, now_starting, colours)
            parts.append(Part(Importance.STATE, text, style, joins=bool(parts)))
    return parts


def _stages(tasks: Sequence[TaskView]) -> list[list[_Group]]:
    """The groups of each stage: a job in the last one that has any of its tasks; those that start
    earlier by themselves, and then the others by their numbers, `worker:1–3`."""
    last: dict[str, int] = {}
    for task in tasks:
        last[task.id.job] = max(task.stage, last.get(task.id.job, 0))
    stages: dict[int, dict[str, _Group]] = {}
    for task in tasks:
        job = task.id.job
        if task.stage < last[job]:
            stages.setdefault(task.stage, {})[str(task.id)] = _Group(str(task.id), (task,))
    for job, stage in last.items():
        whole = [task for task in tasks if task.id.job == job]
        members = tuple(task for task in whole if task.stage == stage)
        name = plural(job, len(members))
        if len(members) < len(whole):
            name = named_tasks((task.id for task in members), _MOST_RANGES)
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


def _standing(group: _Group, snapshot: Snapshot, now: float, now_starting: bool) -> str:
    count = f" {group.up}/{len(group.tasks)}" if len(group.tasks) > 1 else ""
    if group.up == len(group.tasks):
        return count or " ✓"
    if not now_starting:
        return f"{count if group.up else ''} waiting"
    since = "" if snapshot.waiting_since is None else f" {age(now - snapshot.waiting_since)}"
    return f"{count} starting{since}"


def _style(group: _Group, now_starting: bool, colours: Mapping[StatusColor, str]) -> str:
    if group.wrong:
        return f"bold {colours[StatusColor.BAD]}"
    if group.up == len(group.tasks):
        return f"bold {colours[StatusColor.GOOD]}"
    return f"bold {colours[StatusColor.BUSY]}" if now_starting else ""
