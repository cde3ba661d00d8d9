"""Judge of a run that has failed: gathers what its tasks said last and where they were, and has the
cause found.

Nothing waits for it for long: the others are looked at before they are ended only for a failure
that says itself that another task is at fault, and the last lines are read when all are gone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from ..ids import TaskId
from ..run import events as ev
from ..run.machine import RunStateMachine
from ..run.snapshot import TaskView
from ..run.stack_groups import StackFrame, TaskStacks
from ..run.states import HostState, Outcome, StoppedBy, TaskState
from ..run.verdict import TaskEvidence, judge
from .hang import StackCollector
from .output import LogMonitor

_READ_SECONDS = 2.0
_LINES = 120
_BYTES = 64 * 1024
_MOST_TASKS = 256
"""Tasks whose last lines are read; of more the first."""
_ENDED = "has ended"
"""What the kernel says of a process that waits to be reaped."""
_STILL = ("is stopped", "waits in the kernel")
"""Beginnings of what the kernel says of a process that does nothing by itself."""


class Judge:
    """Finds the cause of one run's failure."""

    def __init__(
        self,
        run: RunStateMachine,
        monitor: LogMonitor,
        stacks: StackCollector,
        feed: Callable[[ev.Event], None],
    ) -> None:
        self._run = run
        self._monitor = monitor
        self._stacks = stacks
        self._feed = feed

    async def look(self, task: TaskId) -> None:
        """Takes the stacks of all that live, for a failure of `task`."""
        try:
            with suppress(Exception):  # a look is never a reason to end anything
                await self._stacks.take()
        finally:
            self._feed(ev.LookedAt(time.time(), task))

    async def judge(self) -> None:
        """Judges a run that has failed; its hosts have been released."""
        if self._run.data.run.outcome is not Outcome.FAILED:
            return
        views = [view for view in self._run.data.tasks.values() if view.attempt][:_MOST_TASKS]
        tails = await self._tails([view.id for view in views])
        stacks = self._best_look()
        verdict = judge([self._evidence(v, tails.get(v.id, ()), stacks.get(v.id)) for v in views])
        if verdict is not None:
            self._feed(ev.Judged(time.time(), verdict))

    def _best_look(self) -> Mapping[TaskId, TaskStacks]:
        """The look of this attempt that found most tasks at work, the newest of equal ones: after a
        failure some have ended already, and wait to be reaped."""
        best: dict[TaskId, TaskStacks] = {}
        for look in self._stacks.looks:
            found = {
                one.task: one
                for one in look.tasks
                if one.main.state != _ENDED
                and look.time >= (self._run.data.tasks[one.task].started or 0.0)
            }
            if len(found) >= len(best):
                best = found
        return best

    async def _tails(self, tasks: list[TaskId]) -> Mapping[TaskId, tuple[str, ...]]:
        """The last lines of their logs; of those that a disk keeps to itself none."""
        loop, found = asyncio.get_running_loop(), dict[TaskId, tuple[str, ...]]()
        all_read = asyncio.Event()

        def add(task: TaskId, lines: tuple[str, ...]) -> None:
            found[task] = lines
            if len(found) == len(tasks):
                all_read.set()

        for task in tasks:

            def told(lines: tuple[str, ...], task: TaskId = task) -> None:
                with suppress(RuntimeError):  # the loop has ended
                    loop.call_soon_threadsafe(add, task, lines)

            self._monitor.tail(task, told, lines=_LINES, size=_BYTES)
        if tasks:
            with suppress(TimeoutError):
                await asyncio.wait_for(all_read.wait(), _READ_SECONDS)
        return found

    def _evidence(
        self, view: TaskView, tail: tuple[str, ...], stacks: TaskStacks | None
    ) -> TaskEvidence:
        plan = self._run.data.plan.task(view.id)
        rank = plan.env.get("RANK") or plan.env.get("JAX_PROCESS_ID") or ""
        name, _, _ = view.address.rpartition(":")
        on_host = [one.id for one in self._run.data.on_host(view.host)]
        names = (view.address, *([name.strip("[]")] if len(on_host) == 1 else []))
        stack: tuple[StackFrame, ...] = ()
        state = ""
        if stacks is not None:
            state = next((p.state for p in stacks.processes if p.state.startswith(_STILL)), "")
            stack = () if state else stacks.stack
        return TaskEvidence(
            view.id,
            view.host,
            int(rank) if rank.isdecimal() else None,
            names,
            view.exit_code,
            view.exit_signal,
            view.stopped_by is not StoppedBy.NOBODY or view.state is TaskState.KILLED,
            view.ended,
            tail,
            stack,
            state,
            self._run.data.hosts[view.host].state is HostState.LOST or view.state is TaskState.LOST,
        )
