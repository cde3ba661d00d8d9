"""Judge of a run that has failed or hangs: gathers what its tasks said last and where they are, and
has the cause found.

Nothing waits for it for long: the others are looked at before they are ended only for a failure
that says itself that another task is at fault, and the last lines are read when all are gone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import re2

from ..cluster.roles import Role
from ..frozen import frozen
from ..ids import TaskId, TaskRank
from ..run import events as ev
from ..run.cause import Verdict
from ..run.gpus import holders
from ..run.last_words import last_exception
from ..run.snapshot import TaskView
from ..run.stack_groups import StackFrame, Stacks, TaskStacks, own_frame
from ..run.states import AT_WORK, Halt, HostState, RunPhase, StoppedBy, TaskState
from ..run.verdict import TaskEvidence, is_ending, judge, judge_waiting
from ..store.figures import figures_of
from .stack_collector import MOST_FRAMES

if TYPE_CHECKING:
    from .run_shell import RunShell

_READ_SECONDS = 2.0
_LINES = 120
_BYTES = 64 * 1024
_MOST_TASKS = 256
"""Tasks whose last lines are read; of more the first."""
_ENDED = "has ended"
"""What the kernel says of a process that waits to be reaped."""
_SECOND_LOOK = 1.0
"""Seconds between two looks at a hang."""
_LEAVE_SECONDS = 0.5
"""Seconds between two looks at a failure, in which a task that is leaving may leave: ended by us,
it would look as if it had worked until then."""
_ONE_MOMENT = 10.0
"""Seconds between two looks that are about the same trouble."""
_MOST_WHOLE = MOST_FRAMES // 128
"""Tasks of which each stack is as long as it was."""
_RUNS = "runs"
"""What a host says of a process in state R, which computes or waits for a processor."""
_IDLE = 0.05
"""Processors that a task takes at most that does nothing."""
_STILL = ("is stopped", Halt.WAITING)
"""Beginnings of what the kernel says of a process that does nothing by itself."""


@frozen
class _Sighting:
    """A task as it was found, and whether more than one look has found it so."""

    stacks: TaskStacks
    seen_twice: bool
    ranks: Mapping[TaskRank, _RankSighting]
    """Ranks that the task has started."""


@frozen
class _RankSighting:
    """A rank below a task's launcher, as it was found."""

    stack: tuple[StackFrame, ...]
    stopped: str
    seen_twice: bool


class Judge:
    """Finds the cause of one run's failure."""

    def __init__(self, shell: RunShell) -> None:
        self._shell = shell
        self._data = shell.data

    async def look(self, task: TaskId) -> None:
        """Takes the stacks of all that live twice, for a failure of `task`."""
        try:
            with suppress(Exception):  # a look is never a reason to end anything
                await self._shell.stacks.take()
                await asyncio.sleep(_LEAVE_SECONDS)
                if self._data.phase in AT_WORK:  # nobody is being ended yet
                    await self._shell.stacks.take()
        finally:
            self._shell.feed(ev.LookedAt(time.time(), task))

    async def judge(self) -> None:
        """Judges a run that has failed; its hosts have been released."""
        verdict = await self._verdict()
        if verdict is not None:
            self._shell.feed(ev.Judged(time.time(), verdict))

    async def judge_attempt(self) -> None:
        """Judges the failure for which all tasks are started again; they have ended."""
        with suppress(Exception):  # it is never a reason to end anything
            verdict = await self._verdict()
            if verdict is not None and self._data.phase is RunPhase.RESTARTING:
                self._shell.feed(ev.Judged(time.time(), verdict))
                number = self._data.run.attempt
                text = f"cause of the failure of attempt {number}: {verdict.text}"
                self._shell.note(text)

    async def _verdict(self) -> Verdict | None:
        views = self._views()
        tails, sightings = await self._tails(views), self._best_look()
        if looks := self._shell.hosts.stats.gpus.looks:
            await asyncio.wait(looks.values())
        return judge([self._evidence(v, tails.get(v.id, ()), sightings.get(v.id)) for v in views])

    async def judge_hang(
        self, found: Stacks, hanging: Mapping[TaskId, float], moving: Collection[TaskId]
    ) -> Verdict | None:
        """The cause of a hang, by the stacks that were taken now, and a second look; `hanging` are
        the tasks that seem to hang, and for how many seconds, `moving` those whose metric lines
        come as usual."""
        await asyncio.sleep(_SECOND_LOOK)
        return judge(await self._facts((found, await self._shell.stacks.take()), hanging, moving))

    async def judge_waiting(
        self,
        found: Stacks,
        moving: Collection[TaskId],
        outputs: Mapping[TaskId, float | None],
        seconds: float = _SECOND_LOOK,
    ) -> tuple[Verdict | None, frozenset[TaskId]]:
        """The task for which all others wait, in a run of which nothing says that it hangs, by the
        stacks that were taken now, and, where there is one, a second look some seconds later; and
        the tasks that have written since their last outputs were these `outputs`."""
        facts = await self._facts((found,), {}, moving)
        if judge_waiting([replace(one, seen_twice=True) for one in facts]) is None:
            return None, frozenset()
        await asyncio.sleep(seconds)
        again = await self._shell.stacks.take()
        facts = await self._facts((found, again), {}, moving)
        now = self.outputs()
        wrote = frozenset(task for task, last in now.items() if last != outputs.get(task))
        return judge_waiting([replace(one, wrote=one.task in wrote) for one in facts]), wrote

    def outputs(self) -> dict[TaskId, float | None]:
        """When each task that is judged wrote last."""
        return {view.id: view.last_output for view in self._views()}

    async def _facts(
        self,
        found: Sequence[Stacks],
        hanging: Mapping[TaskId, float],
        moving: Collection[TaskId],
    ) -> list[TaskEvidence]:
        """What is known of the tasks now, and by these looks."""
        looks = [{one.task: one for one in look.tasks} for look in found]
        sightings = {task: _sighting(task, looks) for look in looks for task in look}
        views = self._views()
        tails = await self._tails(views)
        facts = []
        for view in views:
            tail = tails.get(view.id, ())
            if not view.state.ended:
                tail = _since_last_figures(tail)
            one = self._evidence(view, tail, sightings.get(view.id))
            usage = self._data.hosts[view.host].usage.get(view.id)
            seen = (look[view.id] for look in looks if view.id in look)
            busy = any(process.state == _RUNS for stacks in seen for process in stacks.processes)
            facts.append(
                replace(
                    one,
                    hangs_for=hanging.get(view.id, 0.0),
                    moves=view.id in moving,
                    idle=usage is not None and usage[0] < _IDLE and not busy,
                )
            )
        return facts

    async def exceptions_in_exit(self, tasks: Collection[TaskId]) -> Mapping[TaskId, str]:
        """The exceptions of those tasks that have raised, and whose interpreters are ending: the
        text of a traceback alone is none, for programs print it and go on."""
        tails = await self._tails([self._data.tasks[task] for task in tasks])
        raised = {}
        for task, tail in tails.items():
            exception, rest = last_exception(tail)
            if exception and not _has_figures(rest):
                raised[task] = exception
        if not raised:
            return {}
        found = await self._shell.stacks.take(tuple(raised))
        return {one.task: raised[one.task] for one in found.tasks if is_ending(one.stack)}

    def _views(self) -> list[TaskView]:
        """The tasks that are judged: those of the cluster, and what has failed beside them."""
        plan = self._data.plan
        views = [view for view in self._data.tasks.values() if view.attempt]
        alone = not any(task.role.in_cluster for task in plan.tasks)
        return [
            view
            for view in views
            if alone
            or plan.task(view.id).role.in_cluster
            or (plan.task(view.id).role is Role.PREPARE and view.state is TaskState.FAILED)
        ][:_MOST_TASKS]

    def _best_look(self) -> Mapping[TaskId, _Sighting]:
        """The look of this attempt that found most tasks at work, the newest of equal ones, and
        what those around it say: after a failure some have ended already, and wait to be reaped."""
        looks = []
        for look in self._shell.stacks.looks:
            found = {
                one.task: one
                for one in look.tasks
                if one.main.state != _ENDED
                and look.time >= (self._data.tasks[one.task].started or 0.0)
            }
            looks.append((look.time, found))
        if not looks:
            return {}
        time_of_best, best = max(looks, key=lambda look: (len(look[1]), look[0]))
        near = [found for at, found in looks if abs(at - time_of_best) < _ONE_MOMENT]
        return {task: _sighting(task, near) for task in best}

    async def _tails(self, tasks: list[TaskView]) -> Mapping[TaskId, tuple[str, ...]]:
        """The last lines of their present attempts; of those that a disk keeps to itself none."""
        loop, found = asyncio.get_running_loop(), dict[TaskId, tuple[str, ...]]()
        all_read = asyncio.Event()

        def add(task: TaskId, lines: tuple[str, ...]) -> None:
            found[task] = lines
            if len(found) == len(tasks):
                all_read.set()

        for view in tasks:

            def told(lines: tuple[str, ...], task: TaskId = view.id) -> None:
                with suppress(RuntimeError):  # the loop has ended
                    loop.call_soon_threadsafe(add, task, lines)

            begun = view.attempts[-1].log_start if view.attempts else 0
            size = min(_BYTES, max(0, self._shell.outputs.monitor.size(view.id) - begun))
            self._shell.outputs.monitor.tail(view.id, told, lines=_LINES, size=size)
        if tasks:
            with suppress(TimeoutError):
                await asyncio.wait_for(all_read.wait(), _READ_SECONDS)
        return found

    def _evidence(
        self, view: TaskView, tail: tuple[str, ...], sighting: _Sighting | None
    ) -> TaskEvidence:
        plan = self._data.plan.task(view.id)
        rank = plan.env.get("RANK") or plan.env.get("JAX_PROCESS_ID") or ""
        name, _, _ = view.address.rpartition(":")
        on_host = [one.id for one in self._data.on_host(view.host)]
        names = (view.address, *([name.strip("[]")] if len(on_host) == 1 else []))
        stack: tuple[StackFrame, ...] = ()
        state = ""
        if sighting is not None:
            state = _still(sighting.stacks)
            stack = () if state else sighting.stacks.stack
            if len(self._data.tasks) > _MOST_WHOLE and stack:
                stack = (*stack, StackFrame("…"))
        gpus = self._shell.hosts.stats.gpus.of_task(view)
        one = TaskEvidence(
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
            sighting is not None and sighting.seen_twice,
            lost_at=self._lost_at(view),
            out_of_memory=view.out_of_memory,
            serves=plan.role is Role.PS,
            gpu_fault=next((gpu.fault for gpu in gpus if gpu.fault), ""),
            gpu_holders=holders(gpus, view.id),
            started=_started(plan.argv),
        )
        if sighting is None or not sighting.ranks:
            return one
        parts = [
            replace(
                one, part=rank, stack=seen.stack, stopped=seen.stopped, seen_twice=seen.seen_twice
            )
            for rank, seen in sorted(sighting.ranks.items(), key=lambda found: found[0].rank)
        ]
        return replace(one, ranks=tuple(parts))

    def _lost_at(self, view: TaskView) -> float | None:
        """When the task's host was heard last, where that is lost, or was until its agent acted
        alone."""
        lost = HostState.LOST is self._data.hosts[view.host].state or view.state is TaskState.LOST
        at = self._data.host_records[view.host].lost_at
        return at if lost or (view.stopped_by is StoppedBy.AGENT and at) else None


def _still(stacks: TaskStacks) -> str:
    """What the kernel says of a process that does nothing by itself; empty where there is none."""
    return next((p.state for p in stacks.processes if p.state.startswith(_STILL)), "")


def _sighting(task: TaskId, looks: Sequence[Mapping[TaskId, TaskStacks]]) -> _Sighting:
    """Where a task was at these looks, the newest last: still only where each of them says so, for
    who reads and writes much, or is ending, waits in the kernel now and then."""
    seen = [look[task] for look in looks if task in look]
    ranks = {}
    for rank in seen[-1].ranks:
        processes = [one.ranks[rank] for one in seen if rank in one.ranks]
        processes = [one for one in processes if not one.state.startswith(_STILL)] or processes
        last = processes[-1]
        spot = own_frame(last.stack).spot
        twice = sum(own_frame(one.stack).spot == spot for one in processes) > 1
        still = last.state if last.state.startswith(_STILL) else ""
        ranks[rank] = _RankSighting(() if still else last.stack, still, twice)
    seen = [one for one in seen if not _still(one)] or seen
    newest = seen[-1]
    return _Sighting(newest, sum(one.spot == newest.spot for one in seen) > 1, ranks)


_RANKS = re2.compile(r"(?:^|\s)--?nproc[-_]per[-_]node[= ](\d{1,4})(?:\s|$)")


def _started(argv: Sequence[str]) -> int:
    """How many ranks a command starts on its host; 0 where it does not say."""
    found = _RANKS.search(" ".join(argv)[:4096])
    return 0 if found is None else int(found[1])


def _since_last_figures(tail: tuple[str, ...]) -> tuple[str, ...]:
    """The lines behind the last step of a task that lives: what it said of its peers before that is
    over."""
    for number in reversed(range(len(tail))):
        if _has_figures(tail[number : number + 1]):
            return tail[number + 1 :]
    return tail


def _has_figures(lines: Sequence[str]) -> bool:
    found = (figures_of(line.encode(errors="replace")) for line in lines)
    return any(figures is not None and figures.step is not None for figures in found)
