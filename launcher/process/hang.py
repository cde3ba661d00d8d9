"""Hangs of a run: tasks that have stalled, tasks that have raised and do not come to their end, and
what all tasks wait for then.

A run is looked at when a task stalls or hangs in its exit, and before one is called not ready in
time or is ended for its silence, so that no end waits for a look.
"""

from __future__ import annotations

import asyncio
import json
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from ..ids import TaskId, named_tasks
from ..printable import printable
from ..reading.looks import Headline, Look
from ..run import events as ev
from ..run.cause import Kind, Verdict
from ..run.snapshot import HangView, Metric, TaskView
from ..run.stack_groups import Stacks, record
from ..run.states import AT_WORK, Hang, TaskState
from .core import Core
from .judge import Judge
from .output import Outputs
from .stack_collector import StackCollector

_LONGEST_TEXT = 600
TICK = 1.0
"""Seconds between two looks for tasks that have stalled."""
_RECENT = 50
"""The last metric lines of a task, by which its usual pace is known."""
_LATE = 10
"""Times the usual distance of two metric lines."""
_AT_LEAST = 10.0
"""Seconds: a line a second is no reason for alarm when one takes ten."""


@dataclass
class _Pace:
    """The metric lines of one attempt of a task."""

    attempt: int
    moved: float
    """When a line came last that shows that the task works, whether it had figures or not."""
    times: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))
    """When the last lines with figures came."""
    total: float | None = None
    """The total of steps that the last one named."""
    has_loss: bool = False
    over: bool = False
    """The last line was a bar's at its total, which knows no loss: nothing of it is to come."""
    told: bool = False
    """The task has been found stalled since its last line."""


class StallDetector:
    """Finds tasks whose next metric line is long overdue: after ten times their usual pace, at
    least ten seconds.

    A line without figures, of an evaluation or of data that are prepared, shows that the task works
    and says nothing of its pace. Time is that of a clock that nobody sets, without the time in
    which this process did not run (a busy loop, Ctrl-Z, a lid) and has heard nothing.
    """

    def __init__(self) -> None:
        self._paces: dict[TaskId, _Pace] = {}
        self._looked = time.monotonic()
        self._slept = 0.0
        """Seconds in which nothing could be heard."""

    @property
    def _now(self) -> float:
        return time.monotonic() - self._slept

    def observe(self, task: TaskView, values: Mapping[str, float], ago: float = 0.0) -> None:
        """Takes note of a task's metric line, which has named these figures, or none, so many
        seconds ago."""
        now, pace = self._now - ago, self._paces.get(task.id)
        if pace is None or pace.attempt != task.attempt:
            pace = self._paces[task.id] = _Pace(task.attempt, now)
        pace.moved, pace.told = now, False
        if not values:
            return
        total = values.get("total")
        if "step" in values and total != pace.total:  # another bar, with a pace of its own
            pace.times.clear()
            pace.total = total
        pace.has_loss |= "loss" in values
        pace.over = not pace.has_loss and total is not None and values.get("step") == total
        pace.times.append(now)

    def find(self, tasks: Mapping[TaskId, TaskView]) -> dict[TaskId, float]:
        """The tasks that have stalled since this was asked last, and for how many seconds. To be
        asked once a `TICK`."""
        clock = time.monotonic()
        late = clock - self._looked - TICK
        self._looked = clock
        if late > TICK:
            self._slept += late
        found = {}
        for task, pace in list(self._paces.items()):
            view = tasks[task]
            if not view.state.live or view.attempt != pace.attempt:
                del self._paces[task]
            elif not view.state.up:  # starting, or lost: it is we who hear nothing
                pace.moved = self._now
            elif not (pace.over or pace.told) and (silent := self._now - pace.moved) > _limit(pace):
                pace.told = True
                found[task] = silent
        return found

    @property
    def stalled(self) -> dict[TaskId, float]:
        """All that have stalled and not gone on, and for how many seconds."""
        return {task: self._now - one.moved for task, one in self._paces.items() if one.told}

    @property
    def moving(self) -> frozenset[TaskId]:
        """Tasks whose metric lines come as usual."""
        now = self._now
        usual = {task: _limit(one) / 2 for task, one in self._paces.items()}
        return frozenset(
            task for task, most in usual.items() if now - self._paces[task].moved < most < math.inf
        )


def _limit(pace: _Pace) -> float:
    """Seconds of silence of a task from which on it has stalled."""
    if len(pace.times) < 3:
        return math.inf
    # Their median: `statistics` imports fractions and decimal, which clients would wait for.
    pauses = sorted(later - earlier for earlier, later in pairwise(pace.times))
    usual = (pauses[(len(pauses) - 1) // 2] + pauses[len(pauses) // 2]) / 2
    return max(_AT_LEAST, _LATE * usual)


_EXIT_TICKS = (5, 20, 80, 320)
"""After so many ticks of silence a task is asked whether it hangs in its exit."""
_MOST_LOOKS, _AGAIN_SECONDS = 10, 600.0
"""Looks for one reason within that time; a note of it is made once."""
_PAUSE_SECONDS = 5.0
_JUDGE_SECONDS = 8.0
_REASONS = {
    Hang.STALLED: "stalled",
    Hang.NOT_READY: "not ready yet",
    Hang.AT_END: "silent since others have ended",
    Hang.IN_EXIT: "hangs in its exit",
    Hang.SILENT: "no task makes progress",
}


_LOOK_SECONDS = 4.0
"""So long before its end a hanging task is looked at."""


def look_after(seconds: float) -> float:
    """The time after which something is looked at that is ended after `seconds`."""
    return max(seconds / 2, seconds - _LOOK_SECONDS)


@dataclass
class _Silence:
    """How often the last output of a task has been seen since it came."""

    last: float | None = None
    ticks: int = 0

    def count(self, last: float | None) -> int:
        """Counts one look at a task whose last output came at `last`."""
        self.ticks = self.ticks + 1 if last == self.last else 0
        self.last = last
        return self.ticks


class Silences:
    """Counts for how long tasks are silent, by looks once a `TICK`: time in which nothing could be
    heard (a busy loop, Ctrl-Z, a lid) is none, whatever clocks say."""

    def __init__(self) -> None:
        self._silences: dict[TaskId, _Silence] = {}
        self._watched: dict[TaskId, tuple[float, _Silence]] = {}
        """Tasks that must not be silent for so many seconds."""

    def find(self, tasks: Mapping[TaskId, TaskView]) -> dict[TaskId, float]:
        """Live tasks that may hang in their exit, and for how many seconds they are silent."""
        due = {}
        for task, view in tasks.items():
            ticks = self._silences.setdefault(task, _Silence()).count(view.last_output)
            if ticks in _EXIT_TICKS and (view.state.up or view.state is TaskState.STARTING):
                due[task] = ticks * TICK
        return due

    def watch(self, task: TaskId, seconds: float, last: float | None) -> None:
        """Watches a task, whose last output came at `last`. The first look may come at once."""
        self._watched[task] = seconds, _Silence(last, -1)

    def find_watched(
        self, tasks: Mapping[TaskId, TaskView], outputs: Mapping[TaskId, float]
    ) -> tuple[list[TaskId], dict[TaskId, float]]:
        """Watched tasks that are to be looked at, since they will have been silent for too long
        soon, and those that have been, for so many seconds, and are not watched any more.
        `outputs` are the times of what counts as output."""
        near, over = [], {}
        for task, (limit, silence) in list(self._watched.items()):
            if tasks[task].state.ended:
                del self._watched[task]
                continue
            seconds = silence.count(outputs.get(task)) * TICK
            if seconds >= look_after(limit) > seconds - TICK:
                near.append(task)
            if seconds >= limit:
                del self._watched[task]
                over[task] = seconds
        return near, over


_QUIET_TICKS = (300, 1200, 4800)
"""After so many ticks in which no task has written anything a run is looked at."""
_SUSPECT_TICKS = (30, 120, 480, 1920)
"""Ticks after which it is where a task's host is lost, or a task is stopped."""
_QUIET_LOOK = 10.0
"""Seconds between the two looks at it."""


class QuietRun:
    """Counts for how long no task of a run has written anything."""

    def __init__(self) -> None:
        self._last: object = 0.0
        """By which it is known whether the run goes on."""
        self._ticks = 0

    def is_due(self, tasks: Iterable[TaskView]) -> bool:
        """The run is to be looked at now. To be asked once a `TICK`, with the tasks of the cluster
        that live. Where one is suspected, the others may say again and again that they wait: only
        steps show then that the run goes on."""
        views = list(tasks)
        lost = [view for view in views if view.state is TaskState.LOST]
        suspects = frozenset(view.id for view in views if view in lost or view.halted)
        wrote = max((view.last_output or 0.0 for view in views), default=0.0)
        last = (suspects, [view.step for view in views]) if suspects else wrote
        at_work = len(views) > 1 and all(view.state.up for view in views if view not in lost)
        quiet = at_work and len(lost) < len(views) and last == self._last
        self._ticks = self._ticks + 1 if quiet else 0
        self._last = last
        return self._ticks in (_SUSPECT_TICKS if suspects else _QUIET_TICKS)


class HangWatch:
    """Finds tasks that have stalled, looks at a run that seems to hang, and keeps what it has found
    in the run's record and folder, until the run goes on."""

    def __init__(
        self,
        core: Core,
        outputs: Outputs,
        stacks: StackCollector,
        judge: Judge,
        folder: Path,
        stalled: Callable[[Collection[TaskId]], None] | None,
    ) -> None:
        """`stalled`, if any, is called with tasks that have stalled."""
        self._core, self._data = core, core.data
        self._outputs, self._stacks, self._judge = outputs, stacks, judge
        self._folder, self._tell_stalled = folder, stalled
        self._stalls = StallDetector()
        self._silences = Silences()
        self._quiet = QuietRun()
        self._in_exit: dict[TaskId, int] = {}
        """Attempts of tasks that hang in their exit."""
        self._serving: set[tuple[TaskId, int]] = set()
        """Attempts of watched tasks that only serve others."""
        self._noted_servers = False
        self._loud: frozenset[TaskId] = frozenset()
        """Tasks of a silent run that say again and again that they wait."""
        self._stood: object = None
        """Where all tasks were when the run was found silent."""
        self._looks: dict[Hang, deque[float]] = {}
        self._noted: dict[Hang, float] = {}

    # --- stalls ---------------------------------------------------------------------------

    def watch_silence(self, task: TaskId, seconds: float) -> None:
        """Says so when a task has written nothing for `seconds`, but that it waits."""
        self._silences.watch(task, seconds, self._outputs.went_on.get(task))

    def watch(self) -> None:
        """Looks for tasks that have stalled, and whether a run that hung goes on. To be called once
        a `TICK` while tasks are at work."""
        core, tasks = self._core, self._data.tasks
        near, over = self._silences.find_watched(tasks, self._outputs.went_on)
        if near:
            core.spawn(self._look_at_ends(near), "hang")
        if over:
            core.spawn(self._tell_silences(over), "silence")
        with core.bulkhead.around(Look.HANGS):
            self._find()

    def _find(self) -> None:
        """Finds what hangs; nothing but a sentence depends on it."""
        data, core = self._data, self._core
        if silent := self._silences.find(data.tasks):
            core.spawn(self._look_for_exits(silent), "hang")
        if self._quiet.is_due(self._cluster) and data.run.verdict is None:
            core.spawn(self._look_at_quiet_run(), "hang")
        stalled = self._stalls.find(data.tasks)
        if stalled:
            now = time.time()
            since = {task: now - seconds for task, seconds in stalled.items()}
            core.feed(ev.TasksStalled(now, since))
            self.begin(Hang.STALLED, *stalled)
        elif data.run.verdict is not None and self._goes_on():
            core.feed(ev.HangJudged(time.time(), None))

    async def _tell_silences(self, over: Mapping[TaskId, float]) -> None:
        for task, seconds in over.items():
            awaits = self._outputs.awaits.get(task)
            serves = (task, self._data.tasks[task].attempt) in self._serving
            self._core.feed(ev.OutputStalled(time.time(), task, seconds, awaits, serves))
            await asyncio.sleep(0)  # thousands may hang, and beats do not wait for them

    def _goes_on(self) -> bool:
        """What the run was last found to hang of is over."""
        hang, tasks = self._data.run.hang, self._data.tasks.values()
        match hang and hang.reason:
            case Hang.STALLED:
                return not any(view.stalled_since is not None for view in tasks)
            case Hang.NOT_READY:
                return not any(_is_starting(view) for view in tasks)
            case Hang.SILENT:
                return self._standing(self._loud) != self._stood
            case Hang.AT_END:
                last = max((v.last_output or 0.0 for v in tasks if v.state.live), default=0.0)
                return hang is not None and last > hang.time
            case Hang.IN_EXIT:
                return not any(map(self._hangs_in_exit, tasks))
            case _:
                return False

    @property
    def _cluster(self) -> Iterator[TaskView]:
        """The tasks of the cluster that live."""
        data = self._data
        ids = (task.id for task in data.plan.tasks if task.role.in_cluster)
        return (view for view in map(data.tasks.__getitem__, ids) if view.state.live)

    def _hangs_in_exit(self, view: TaskView) -> bool:
        return view.state.live and self._in_exit.get(view.id) == view.attempt

    def observe(self, metric: Metric, heard: float) -> None:
        """Takes note of a metric line, which was heard then: its task goes on."""
        views = self._data
        view = views.tasks[metric.id]
        with self._core.bulkhead.around(Look.HANGS):
            self._stalls.observe(view, metric.values, time.monotonic() - heard)
        if view.stalled_since is not None:
            self._core.feed(ev.TaskGoesOn(time.time(), metric.id))

    async def judge_look(self, found: Stacks) -> Verdict | None:
        """The task for which all others wait, by a look that a person has asked for: nobody knows
        whether the run hangs, so it is never sure. A person gets the stacks in any case, and in
        time."""
        with self._core.bulkhead.around(Look.HANGS), suppress(TimeoutError):
            async with asyncio.timeout(_JUDGE_SECONDS):
                judge, moving = self._judge, self._stalls.moving
                verdict, _ = await judge.judge_waiting(found, moving, judge.outputs())
                return None if verdict is None else verdict.doubted()
        return None

    def _standing(self, loud: Collection[TaskId]) -> object:
        """What changes when a silent run goes on: an output, a step, a lost host that is back."""
        return [
            (view.id, view.state, view.step, None if view.id in loud else view.last_output)
            for view in self._cluster
        ]

    async def _look_at_quiet_run(self) -> None:
        """Looks at a run that has been silent for long, as programs are that print no figures.

        Most of them are well, so only this is a hang: the others wait in a framework for one that
        does nothing, or do nothing since a host was lost, and two looks some time apart have found
        it so. It is no stall: nobody knows the pace of such a run, and no hook is run.
        """
        with self._core.bulkhead.around(Look.HANGS):
            if not self._may_look(Hang.SILENT):
                return
            judge = self._judge
            outputs, found = judge.outputs(), await self._stacks.take()
            if self._note_servers(found):
                return
            moving = self._stalls.moving
            verdict, loud = await judge.judge_waiting(found, moving, outputs, _QUIET_LOOK)
            if verdict is None or not verdict.sure:
                return
            if loud and verdict.kind is not Kind.HOST_LOST:
                return
            if self._data.run.verdict is None:
                self._loud = loud
                self._stood = self._standing(self._loud)
                self._tell(Hang.SILENT, (), found, verdict.text, verdict)

    def _note_servers(self, found: Stacks) -> bool:
        """Notes, once, that all tasks that the run waits for only serve others: it has no end of
        its own. Returns whether that is so."""
        waited = [view.id for view in self._data.outcome_tasks() if not view.state.ended]
        serving = {one.task for one in found.tasks if one.only_serves}
        if not waited or not serving.issuperset(waited):
            return False
        if not self._noted_servers:
            self._noted_servers = True
            verb = "serves" if len(waited) == 1 else "serve"
            self._core.note(
                f"{named_tasks(waited)} only {verb} others, and no task is left that asks: the run "
                "ends when somebody ends it"
            )
        return True

    # --- looks ----------------------------------------------------------------------------

    def begin(self, reason: Hang, *about: TaskId) -> None:
        """Begins to look; nobody waits for it. `about` are the tasks that seem to hang."""
        self._core.spawn(self._look(reason, about), "hang")

    async def _look_at_ends(self, tasks: Collection[TaskId]) -> None:
        """Finds those of the silent tasks that only serve others, which is no hang, and looks at
        what the others hang of."""
        with self._core.bulkhead.around(Look.HANGS):
            attempts = {task: self._data.tasks[task].attempt for task in tasks}
            for found in (await self._stacks.take(tuple(tasks))).tasks:
                change = self._serving.add if found.only_serves else self._serving.discard
                change((found.task, attempts[found.task]))
        for task, attempt in attempts.items():
            if (task, attempt) not in self._serving:
                self.begin(Hang.AT_END, task)

    async def _look_for_exits(self, silent: Mapping[TaskId, float]) -> None:
        """Finds those of the silent tasks that have raised, and whose interpreters do not come to
        their end."""
        with self._core.bulkhead.around(Look.HANGS):
            for task, exception in (await self._judge.exceptions_in_exit(silent)).items():
                attempt = self._data.tasks[task].attempt
                self._in_exit[task] = attempt
                event = ev.HangsInExit(time.time(), task, attempt, exception, silent[task])
                self._core.feed(event)
                self.begin(Hang.IN_EXIT, task)

    async def _look(self, reason: Hang, about: Collection[TaskId]) -> None:
        tasks = self._data.tasks
        known = reason is Hang.AT_END and any(self._hangs_in_exit(tasks[task]) for task in about)
        if not known and self._may_look(reason):
            with self._core.bulkhead.around(Look.HANGS):
                await self._record_places(reason, about)
        if reason is Hang.STALLED and self._tell_stalled is not None:
            self._tell_stalled(about)

    def _may_look(self, reason: Hang) -> bool:
        """Whether a look is due: tasks are disturbed seldom."""
        now, looks = time.monotonic(), self._looks.setdefault(reason, deque(maxlen=_MOST_LOOKS))
        if looks and now - looks[-1] < _PAUSE_SECONDS:
            return False
        if len(looks) == _MOST_LOOKS and now - looks[0] < _AGAIN_SECONDS:
            return False
        looks.append(now)
        return self._data.phase in AT_WORK

    async def _record_places(self, reason: Hang, about: Collection[TaskId]) -> None:
        """Records where the tasks are, and what they hang of, for whoever follows the run."""
        data, found = self._data, await self._stacks.take()
        if reason is Hang.NOT_READY:
            about = [view.id for view in data.tasks.values() if _is_starting(view)]
        lasts = ((view.id, view.last_output) for view in data.tasks.values())
        silent = {task: found.time - last for task, last in lasts if last is not None}
        text = await self._core.bulkhead.ask(Headline(found, silent, tuple(about)))
        if not text:
            return
        moving = self._stalls.moving  # a task may make steps, and never listen
        hanging = {task: max(1.0, silent.get(task, 0.0)) for task in about if task not in moving}
        hanging |= self._stalls.stalled
        verdict = await self._judge.judge_hang(found, hanging, moving)
        self._tell(reason, about, found, text, verdict)

    def _tell(
        self,
        reason: Hang,
        about: Collection[TaskId],
        found: Stacks,
        text: str,
        verdict: Verdict | None,
    ) -> None:
        """Records what a look has found."""
        if self._data.phase not in AT_WORK:
            return
        file = self._folder / f"stacks-{reason}.json"
        _write_in_thread(file, replace(found, verdict=verdict))
        view = HangView(reason, printable(text, _LONGEST_TEXT), file.name, found.time)
        self._core.feed(ev.HangJudged(time.time(), verdict, view))
        now = time.monotonic()
        if now - self._noted.get(reason, -_AGAIN_SECONDS) >= _AGAIN_SECONDS:
            self._noted[reason] = now
            names = f"{named_tasks(about)} " if about else ""
            why = view.text if verdict is None else verdict.text
            note = f"{names}{_REASONS[reason]}: {why} (all stacks: {file.name})"
            self._core.note(note)


def _is_starting(view: TaskView) -> bool:
    return view.state is TaskState.STARTING


def _write_in_thread(path: Path, found: Stacks) -> None:
    """Writes a file; on a disk that hangs the thread is left behind."""

    def write() -> None:
        text = json.dumps(record(found), indent=2) + "\n"
        with suppress(OSError):  # it is full: the sentence has been told
            new = path.with_suffix(".new")
            new.write_text(text, encoding="utf-8", errors="replace")
            new.replace(path)

    threading.Thread(target=write, name="stacks", daemon=True).start()
