"""Collector of the stacks of a run's tasks: asks all hosts at once, and waits for none for long."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from ..agent.wire import STACK_SECONDS
from ..errors import AgentError
from ..hosts import frames
from ..ids import TaskId, named_tasks
from ..plan.run_plan import Plan
from ..run.stack_groups import ProcessStack, StackFrame, Stacks, TaskStacks, ThreadStack, Unanswered
from ..run.states import AT_WORK, TaskState
from .core import Core

_HOST_SECONDS = STACK_SECONDS + 1.0


MOST_FRAMES = 40_000
"""Frames of all that a client is told at once: some megabytes."""
_LEAST_FRAMES = 8
"""Frames that are kept of the place where a task is."""
_FRAMES_A_PROCESS = 4
"""Cost of a process's other fields, in frames."""


class StackCollector:
    """Asks the hosts of one run. What several ask for at the same time is taken once, and each look
    waits for the one before: an agent makes one at a time."""

    def __init__(self, core: Core) -> None:
        self._core, self._data = core, core.data
        self.looks: deque[Stacks] = deque(maxlen=4)
        """What the last looks at all tasks have found, the newest last."""
        self._under_way: dict[frozenset[TaskId] | None, asyncio.Future[Stacks]] = {}
        self._turn = asyncio.Lock()

    async def take(self, tasks: tuple[TaskId, ...] | None = None) -> Stacks:
        """Where these tasks stand now, or all that live; hosts and tasks that do not answer in time
        are named."""
        wanted = None if tasks is None else frozenset(tasks)
        taking = self._under_way.get(wanted)
        if taking is None:
            taking = self._under_way[wanted] = asyncio.get_running_loop().create_future()
            taking.add_done_callback(lambda _: self._under_way.pop(wanted, None))
            self._core.spawn(self._take_in_turn(wanted, taking), "stacks")
        return await asyncio.shield(taking)

    async def _take_in_turn(
        self, wanted: frozenset[TaskId] | None, taking: asyncio.Future[Stacks]
    ) -> None:
        try:
            async with self._turn:
                taking.set_result(await self._take(wanted))
        except Exception as error:  # whoever has asked handles it
            taking.set_exception(error)
        finally:
            taking.cancel()

    async def _take(self, wanted: frozenset[TaskId] | None) -> Stacks:
        plan, began = self._data.plan, time.time()
        # Of tasks that are being ended nobody learns where they had been.
        at_work = self._data.phase in AT_WORK
        missing: list[Unanswered] = []
        asked: dict[str, list[TaskId]] = {}
        for task in plan.tasks:
            if wanted is not None and task.id not in wanted:
                continue
            state = self._data.tasks[task.id].state
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
            found |= await asyncio.to_thread(stacks_of, plan, host, answer)
            for task_id in ids:
                if task_id not in found and self._data.tasks[task_id].state is not TaskState.LOST:
                    missing.append(Unanswered(str(task_id), "no process of it was found"))
            if answer.unlisted:
                missing.append(Unanswered(host, f"{answer.unlisted} more processes of tasks"))
        tasks = [found[task.id] for task in plan.tasks if task.id in found]
        verdict = self._data.run.verdict
        stacks = Stacks(began, await asyncio.to_thread(bounded, tasks), tuple(missing), verdict)
        if wanted is None and stacks.tasks and at_work:
            self.looks.append(stacks)
        return stacks

    async def _ask(self, host: str, tasks: list[TaskId] | None) -> frames.StacksAnswer | str:
        """What a host answers, or why there is no answer."""
        link = self._core.links.get(host)
        if link is None or not link.connected:
            return "cannot be reached"
        try:
            question = frames.StacksQuestion(None if tasks is None else tuple(tasks))
            return await link.ask(question, _HOST_SECONDS)
        except AgentError as error:
            return error.reason


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
            program = process.program
            for thread in process.threads:
                if first and thread is program:
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
            one.pid,
            one.command,
            one.way,
            one.state,
            threads,
            one.note,
            one.unlisted,
            one.files,
            one.rank,
            one.parent,
        )
        found.setdefault(one.task, []).append(process)
    own = {task.id for task in plan.on_host(host)}
    return {
        task: TaskStacks(task, host, tuple(processes))
        for task, processes in found.items()
        if task in own
    }
