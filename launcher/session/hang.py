"""Hangs of a run: tasks that have stalled, and the stacks of all tasks when the run seems to hang.

All hosts are asked for stacks at once, and none is waited for for long. A run is looked at when a
task stalls, and before one is called not ready in time or is ended for its silence, so that no end
waits for a look.
"""

from __future__ import annotations

import asyncio
import json
import math
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from ..agent.wire import STACK_SECONDS
from ..errors import AgentError
from ..hosts import frames
from ..hosts.link import Link
from ..ids import TaskId, named_tasks
from ..plan.planner import Plan
from ..printable import printable
from ..run import events as ev
from ..run.cause import Verdict
from ..run.machine import RunStateMachine
from ..run.snapshot import HangView, Metric, TaskView
from ..run.stack_groups import (
    ProcessStack,
    StackFrame,
    Stacks,
    TaskStacks,
    ThreadStack,
    Unanswered,
    record,
)
from ..run.states import AT_WORK, Hang, TaskState

_HOST_SECONDS = STACK_SECONDS + 1.0


MOST_FRAMES = 40_000
"""Of all that a client is told at once: some megabytes."""
_LEAST_FRAMES = 8
"""Of the place where a task stands."""
_LONGEST_TEXT = 600
_FRAMES_A_PROCESS = 4
"""So many frames take as much room as what is told of a process beside them."""


@dataclass
class StackCollector:
    """Asks the hosts of one run. What several ask for at the same time is taken once, and each look
    waits for the one before: an agent makes one at a time."""

    run: RunStateMachine
    links: Mapping[str, Link]
    looks: deque[Stacks] = field(default_factory=lambda: deque(maxlen=4))
    """What the last looks at all tasks have found, the newest last."""
    _under_way: dict[frozenset[TaskId] | None, asyncio.Task[Stacks]] = field(default_factory=dict)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def take(self, tasks: tuple[TaskId, ...] | None = None) -> Stacks:
        """Where these tasks stand now, or all that live; hosts and tasks that do not answer in time
        are named."""
        wanted = None if tasks is None else frozenset(tasks)
        taking = self._under_way.get(wanted)
        if taking is None:
            taking = asyncio.create_task(self._take_in_turn(wanted), name="stacks")
            self._under_way[wanted] = taking
            taking.add_done_callback(lambda _: self._under_way.pop(wanted, None))
        return await asyncio.shield(taking)

    async def aclose(self) -> None:
        """Gives up what is under way."""
        left = list(self._under_way.values())
        for taking in left:
            taking.cancel()
        if left:
            await asyncio.wait(left, timeout=1.0)

    async def _take_in_turn(self, wanted: frozenset[TaskId] | None) -> Stacks:
        async with self._turn:
            return await self._take(wanted)

    async def _take(self, wanted: frozenset[TaskId] | None) -> Stacks:
        plan, began = self.run.data.plan, time.time()
        missing: list[Unanswered] = []
        asked: dict[str, list[TaskId]] = {}
        for task in plan.tasks:
            if wanted is not None and task.id not in wanted:
                continue
            state = self.run.data.tasks[task.id].state
            if state.live:
                asked.setdefault(task.host, []).append(task.id)
            elif wanted is not None:
                missing.append(Unanswered(str(task.id), f"it does not run ({state})"))
        answers = await asyncio.gather(
            *(self._ask(host, None if wanted is None else ids) for host, ids in asked.items())
        )
        found: dict[TaskId, TaskStacks] = {}
        for (host, ids), answer in zip(asked.items(), answers, strict=True):
            if isinstance(answer, str):
                missing.append(Unanswered(host, f"{answer} ({named_tasks(ids)})"))
                continue
            found |= stacks_of(plan, host, answer)
            for task_id in ids:
                if (
                    task_id not in found
                    and self.run.data.tasks[task_id].state is not TaskState.LOST
                ):
                    missing.append(Unanswered(str(task_id), "no process of it was found"))
            if answer.unlisted:
                missing.append(Unanswered(host, f"{answer.unlisted} more processes of tasks"))
        tasks = [found[task.id] for task in plan.tasks if task.id in found]
        verdict = self.run.data.run.verdict
        stacks = Stacks(began, bounded(tasks), tuple(missing), verdict)
        if wanted is None and stacks.tasks:
            self.looks.append(stacks)
        return stacks

    async def _ask(self, host: str, tasks: list[TaskId] | None) -> frames.StacksAnswer | str:
        """What a host answers, or why there is no answer."""
        link = self.links.get(host)
        if link is None or not link.connected:
            return "cannot be reached"
        try:
            question = frames.Stacks(None if tasks is None else tuple(tasks))
            return await link.ask(question, _HOST_SECONDS)
        except AgentError as error:
            return error.reason


TICK = 1.0
"""Seconds between two looks for tasks that have stalled."""
_RECENT = 50
"""The last metric lines of a task, by which its usual pace is known."""
_LATE = 10
"""Times the usual distance of two metric lines."""
_AT_LEAST = 10.0
"""Seconds: a line a second is no reason for alarm when one takes ten."""
_AT_WORK = (TaskState.READY, TaskState.RUNNING)


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

    def observe(self, task: TaskView, values: Mapping[str, float]) -> None:
        """Takes note of a task's metric line, which has named these figures, or none."""
        now, pace = self._now, self._paces.get(task.id)
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
            elif view.state not in _AT_WORK:  # starting, or lost: it is we who hear nothing
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


LOOK_SECONDS = 4.0
"""So long before its end a hanging task is looked at."""
_MOST_LOOKS, _AGAIN_SECONDS = 10, 600.0
"""Looks for one reason within that time; a note of it is made once."""
_PAUSE_SECONDS = 5.0
_REASONS = {
    Hang.STALLED: "stalled",
    Hang.NOT_READY: "not ready yet",
    Hang.AT_END: "silent since others have ended",
}


def look_after(seconds: float) -> float:
    """The time after which something is looked at that is ended after `seconds`."""
    return max(seconds / 2, seconds - LOOK_SECONDS)


Judged = Callable[[Stacks, Mapping[TaskId, float], Collection[TaskId]], Awaitable[Verdict | None]]
"""Finds the cause of a hang (`judge.Judge.judge_hang`)."""


class HangWatch:
    """Finds tasks that have stalled, looks at a run that seems to hang, and keeps what it has found
    in the run's record and folder, until the run goes on."""

    def __init__(
        self,
        taker: StackCollector,
        folder: Path,
        feed: Callable[[ev.Event], None],
        changed: Callable[[], None],
        told: Callable[[Collection[TaskId]], None],
        judge: Judged,
    ) -> None:
        """`changed` is called when the record of a task has changed, `told` with tasks that have
        stalled, when `judge` has found out what it could."""
        self._taker = taker
        self._folder = folder
        self._feed = feed
        self._changed = changed
        self._told = told
        self._judge = judge
        self._stalls = StallDetector()
        self._looks: dict[Hang, deque[float]] = {}
        self._noted: dict[Hang, float] = {}
        self._under_way: set[asyncio.Task[None]] = set()

    # --- stalls ---------------------------------------------------------------------------

    async def watch(self) -> None:
        """Looks for tasks that have stalled, and whether a run that hung goes on; never ends by
        itself."""
        run = self._taker.run
        while True:
            await asyncio.sleep(TICK)
            if run.data.phase not in AT_WORK:
                continue
            stalled = self._stalls.find(run.data.tasks)
            for task, seconds in stalled.items():
                run.data.update_task(task, stalled_since=time.time() - seconds)
            if stalled:
                self._changed()
                self.begin(Hang.STALLED, *stalled)
            elif run.data.run.verdict is not None and self._goes_on():
                self._feed(ev.HangJudged(time.time(), None))

    def _goes_on(self) -> bool:
        """What the run was last found to hang of is over."""
        hang, tasks = self._taker.run.data.run.hang, self._taker.run.data.tasks.values()
        match hang and hang.reason:
            case Hang.STALLED:
                return not any(view.stalled_since is not None for view in tasks)
            case Hang.NOT_READY:
                return not any(_is_starting(view) for view in tasks)
            case Hang.AT_END:
                last = max((v.last_output or 0.0 for v in tasks if v.state.live), default=0.0)
                return hang is not None and last > hang.time
            case _:
                return False

    def observe(self, metric: Metric) -> None:
        """Takes note of a metric line: its task goes on."""
        views = self._taker.run.data
        view = views.tasks[metric.id]
        self._stalls.observe(view, metric.values)
        if view.stalled_since is not None:
            views.update_task(metric.id, stalled_since=None)
            self._changed()

    # --- looks ----------------------------------------------------------------------------

    def begin(self, reason: Hang, *about: TaskId) -> None:
        """Begins to look; nobody waits for it. `about` are the tasks that seem to hang."""
        looking = asyncio.create_task(self._look(reason, about), name="hang")
        self._under_way.add(looking)
        looking.add_done_callback(self._under_way.discard)

    async def _look(self, reason: Hang, about: Collection[TaskId]) -> None:
        if self._may_look(reason):
            try:
                await self._record_places(reason, about)
            except Exception as error:  # a look is never a reason to end anything
                self._feed(ev.NoteAdded(time.time(), f"no stacks could be taken: {error!r}"))
        if reason is Hang.STALLED:
            self._told(about)

    def _may_look(self, reason: Hang) -> bool:
        """Whether a look is due: tasks are disturbed seldom."""
        now, looks = time.monotonic(), self._looks.setdefault(reason, deque(maxlen=_MOST_LOOKS))
        if looks and now - looks[-1] < _PAUSE_SECONDS:
            return False
        if len(looks) == _MOST_LOOKS and now - looks[0] < _AGAIN_SECONDS:
            return False
        looks.append(now)
        return self._taker.run.data.phase in AT_WORK

    async def _record_places(self, reason: Hang, about: Collection[TaskId]) -> None:
        """Records where the tasks are, and what they hang of, for whoever follows the run."""
        data, found = self._taker.run.data, await self._taker.take()
        if reason is Hang.NOT_READY:
            about = [view.id for view in data.tasks.values() if _is_starting(view)]
        lasts = ((view.id, view.last_output) for view in data.tasks.values())
        silent = {task: found.time - last for task, last in lasts if last is not None}
        text = found.headline(silent, about)
        if not text:
            return
        hanging = {task: max(1.0, silent.get(task, 0.0)) for task in about}
        hanging |= self._stalls.stalled
        verdict = await self._judge(found, hanging, self._stalls.moving)
        if data.phase not in AT_WORK:
            return
        file = self._folder / f"stacks-{reason}.json"
        _write_in_thread(file, record(replace(found, verdict=verdict)))
        view = HangView(reason, printable(text, _LONGEST_TEXT), file.name, found.time)
        data.update_run(hang=view)
        self._feed(ev.HangJudged(time.time(), verdict))
        now = time.monotonic()
        if now - self._noted.get(reason, -_AGAIN_SECONDS) >= _AGAIN_SECONDS:
            self._noted[reason] = now
            names = f"{named_tasks(about)} " if about else ""
            why = view.text if verdict is None else verdict.text
            note = f"{names}{_REASONS[reason]}: {why} (all stacks: {file.name})"
            self._feed(ev.NoteAdded(time.time(), note))


def _is_starting(view: TaskView) -> bool:
    return view.state is TaskState.STARTING


def _write_in_thread(path: Path, made: dict[str, Any]) -> None:
    """Writes a file; on a disk that hangs the thread is left behind."""

    def write() -> None:
        text = json.dumps(made, indent=2) + "\n"
        with suppress(OSError):  # it is full: the sentence has been told
            new = path.with_suffix(".new")
            new.write_text(text, encoding="utf-8", errors="replace")
            new.replace(path)

    threading.Thread(target=write, name="stacks", daemon=True).start()


def bounded(tasks: Sequence[TaskStacks], room: int = MOST_FRAMES) -> tuple[TaskStacks, ...]:
    """The stacks with so many frames in all: half of them for where each task stands, the rest for
    other threads and processes, as far as they suffice."""
    share = max(_LEAST_FRAMES, room // (2 * max(1, len(tasks))))
    room -= sum(len(one.stack[:share]) for one in tasks)
    kept = []
    for one in tasks:
        processes = []
        for process in one.processes:
            first = process is one.main
            cost = _FRAMES_A_PROCESS + len(process.files)
            if not first and cost > room:
                continue
            room -= cost
            threads = []
            for at, thread in enumerate(process.threads):
                if first and at == 0:
                    threads.append(replace(thread, frames=thread.frames[:share]))
                elif len(thread.frames) + 1 <= room:
                    room -= len(thread.frames) + 1
                    threads.append(thread)
            unlisted = process.unlisted + len(process.threads) - len(threads)
            files = process.files if room > 0 else ()
            processes.append(
                replace(process, threads=tuple(threads), unlisted=unlisted, files=files)
            )
        kept.append(replace(one, processes=tuple(processes)))
    return tuple(kept)


def stacks_of(plan: Plan, host: str, answer: frames.StacksAnswer) -> dict[TaskId, TaskStacks]:
    """The tasks of a host as it has described them."""
    stacks = [tuple(StackFrame(*frame) for frame in stack) for stack in answer.stacks]
    found: dict[TaskId, list[ProcessStack]] = {}
    for one in answer.processes:
        threads = tuple(ThreadStack(name, stacks[number]) for name, number in one.threads)
        process = ProcessStack(
            one.pid, one.command, one.way, one.state, threads, one.note, one.unlisted, one.files
        )
        found.setdefault(one.task, []).append(process)
    own = {task.id for task in plan.on_host(host)}
    return {
        task: TaskStacks(task, host, tuple(processes))
        for task, processes in found.items()
        if task in own
    }
