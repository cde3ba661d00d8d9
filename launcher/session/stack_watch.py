"""Takes the stacks of a run's tasks: asks all hosts at once, and waits for none for long.

A run that seems to hang is looked at by itself: before a task is called not ready in time or ended
for its silence, so that no end waits for a look.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..errors import AgentError
from ..hosts import frames
from ..hosts.link import Link
from ..ids import TaskId
from ..plan.planner import Plan
from ..printable import printable
from ..run import events as ev
from ..run.machine import RunStateMachine
from ..run.snapshot import HangView, TaskView
from ..run.stack_groups import (
    ProcessStack,
    StackFrame,
    Stacks,
    TaskStacks,
    ThreadStack,
    Unanswered,
    named_tasks,
    record,
)
from ..run.states import Hang, RunPhase, TaskState

ANSWER_SECONDS = 3.0
"""Longest wait for a host; its agent answers within a little more than two."""


MOST_FRAMES = 40_000
"""Of all that a client is told at once: some megabytes."""
_LEAST_FRAMES = 8
"""Of the place where a task stands."""
_LONGEST_TEXT = 600
_FRAMES_A_PROCESS = 4
"""So many frames take as much room as what is told of a process beside them."""


@dataclass
class StackTaker:
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
        stacks = Stacks(began, bounded(tasks), tuple(missing))
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
            return await link.ask(question, ANSWER_SECONDS)
        except AgentError as error:
            return error.reason


LOOK_SECONDS = 4.0
"""So long before its end a hanging task is looked at."""
_AGAIN_SECONDS = 600.0
_REASONS = {
    Hang.STALLED: "stalled",
    Hang.NOT_READY: "not ready yet",
    Hang.AT_END: "silent since others have ended",
}
_AT_WORK = (RunPhase.STARTING, RunPhase.RUNNING, RunPhase.FINISHING)


def look_after(seconds: float) -> float:
    """The time after which something is looked at that is ended after `seconds`."""
    return max(seconds / 2, seconds - LOOK_SECONDS)


@dataclass
class HangWatch:
    """Looks at a run that seems to hang, for each reason once in ten minutes, and keeps what it has
    found in the run's folder."""

    taker: StackTaker
    folder: Path
    feed: Callable[[ev.Event], None]
    _looked: dict[Hang, float] = field(default_factory=dict)
    _under_way: set[asyncio.Task[HangView | None]] = field(default_factory=set)

    def begin(self, reason: Hang, *about: TaskId) -> None:
        """Begins to look; nobody waits for it."""
        looking = asyncio.create_task(self.look(reason, about), name="hang")
        self._under_way.add(looking)
        looking.add_done_callback(self._under_way.discard)

    async def look(self, reason: Hang, about: Collection[TaskId]) -> HangView | None:
        """Where the tasks stand, told to whoever follows the run; None where nobody is to be told.
        `about` are the tasks that seem to hang."""
        run, now = self.taker.run, time.monotonic()
        before = self._looked.get(reason)
        if run.data.phase not in _AT_WORK or (before is not None and now - before < _AGAIN_SECONDS):
            return None
        self._looked[reason] = now
        try:
            return await self._look(reason, about)
        except Exception as error:  # a look is never a reason to end anything
            self.feed(ev.NoteAdded(time.time(), f"no stacks could be taken: {error!r}"))
            return None

    async def _look(self, reason: Hang, about: Collection[TaskId]) -> HangView | None:
        run, found = self.taker.run, await self.taker.take()
        if reason is Hang.NOT_READY:
            about = [view.id for view in run.data.tasks.values() if _is_starting(view)]
        lasts = ((view.id, view.last_output) for view in run.data.tasks.values())
        silent = {task: found.time - last for task, last in lasts if last is not None}
        text = found.headline(silent, about)
        if not text or run.data.phase is RunPhase.ENDED:
            return None
        file = self.folder / f"stacks-{reason}.json"
        _write_in_thread(file, record(found))
        view = HangView(reason, printable(text, _LONGEST_TEXT), file.name, found.time)
        run.data.update_run(hang=view)
        names = f"{named_tasks(about)} " if about else ""
        note = f"{names}{_REASONS[reason]}: {view.text} (all stacks: {file.name})"
        self.feed(ev.NoteAdded(time.time(), note))
        return view


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
