"""Judge of a run that has failed or hangs: gathers what its tasks said last and where they are, and
has the cause found.

Nothing waits for it for long: the others are looked at before they are ended only for a failure
that says itself that another task is at fault, and the last lines are read when all are gone.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from ..agent.not_found import NOT_STARTED
from ..cluster.roles import Role
from ..crossing import loop_caller
from ..ids import TaskId
from ..reading.looks import (
    CauseOfFailure,
    CauseOfHang,
    CauseOfWaiting,
    EndingTasks,
    Exceptions,
    Look,
    TaskReport,
)
from ..run import events as ev
from ..run.cause import Verdict
from ..run.snapshot import TaskView
from ..run.stack_groups import Stacks
from ..run.states import AT_WORK, HostState, RunPhase, StoppedBy, TaskState
from .core import Core
from .gpu_watch import GpuWatch
from .output import LogMonitor
from .stack_collector import MOST_FRAMES, StackCollector

_READ_SECONDS = 2.0
_BYTES = 64 * 1024
_MOST_TASKS = 256
"""Tasks whose last lines are read; of more the first."""
_SECOND_LOOK = 1.0
"""Seconds between two looks at a hang."""
_LEAVE_SECONDS = 0.5
"""Seconds between two looks at a failure, in which a task that is leaving may leave: ended by us,
it would look as if it had worked until then."""
_MOST_WHOLE = MOST_FRAMES // 128
"""Tasks of which each stack is as long as it was."""


class Judge:
    """Finds the cause of one run's failure: gathers what is known, and asks the bulkhead."""

    def __init__(
        self, core: Core, stacks: StackCollector, monitor: LogMonitor, gpus: GpuWatch
    ) -> None:
        self._core, self._data = core, core.data
        self._stacks, self._monitor, self._gpus = stacks, monitor, gpus
        self._ask = core.bulkhead.ask

    async def look(self, task: TaskId) -> None:
        """Takes the stacks of all that live twice, for a failure of `task`."""
        try:
            with self._core.bulkhead.around(Look.VERDICT):
                await self._stacks.take()
                await asyncio.sleep(_LEAVE_SECONDS)
                if self._data.phase in AT_WORK:  # nobody is being ended yet
                    await self._stacks.take()
        finally:
            self._core.feed(ev.LookedAt(time.time(), task))

    async def judge(self) -> None:
        """Judges a run that has failed; its hosts have been released."""
        verdict = await self._verdict()
        if verdict is not None:
            self._core.feed(ev.Judged(time.time(), verdict))

    async def judge_attempt(self) -> None:
        """Judges the failure for which all tasks are started again; they have ended."""
        verdict = await self._verdict()
        if verdict is not None and self._data.phase is RunPhase.RESTARTING:
            self._core.feed(ev.Judged(time.time(), verdict))
            number = self._data.run.attempt
            text = f"cause of the failure of attempt {number}: {verdict.text}"
            self._core.note(text)

    async def _verdict(self) -> Verdict | None:
        with self._core.bulkhead.around(Look.VERDICT):
            views = self._views()
            logs = await self._logs(views)
            await self._gpus.answered()
            reports = self._with_logs(views, logs)
            looked = tuple(self._stacks.looks)
            return await self._ask(CauseOfFailure(reports, looked, self._cut))
        return None

    async def judge_hang(
        self, found: Stacks, hanging: Mapping[TaskId, float], moving: Collection[TaskId]
    ) -> Verdict | None:
        """The cause of a hang, by the stacks that were taken now, and a second look; `hanging` are
        the tasks that seem to hang, and for how many seconds, `moving` those whose metric lines
        come as usual."""
        await asyncio.sleep(_SECOND_LOOK)
        looks = (found, await self._stacks.take())
        reports = await self._reports(hanging, moving)
        return await self._ask(CauseOfHang(reports, looks, self._cut))

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
        reports = await self._reports({}, moving)
        if await self._ask(CauseOfWaiting(reports, (found,), self._cut)) is None:
            return None, frozenset()
        await asyncio.sleep(seconds)
        again = await self._stacks.take()
        reports = await self._reports({}, moving)
        now = self.outputs()
        wrote = frozenset(task for task, last in now.items() if last != outputs.get(task))
        reports = tuple(replace(one, wrote=one.task in wrote) for one in reports)
        return await self._ask(CauseOfWaiting(reports, (found, again), self._cut)), wrote

    def outputs(self) -> dict[TaskId, float | None]:
        """When each task that is judged wrote last."""
        return {view.id: view.last_output for view in self._views()}

    async def exceptions_in_exit(self, tasks: Collection[TaskId]) -> Mapping[TaskId, str]:
        """The exceptions of those tasks that have raised, and whose interpreters are ending: the
        text of a traceback alone is none, for programs print it and go on."""
        logs = await self._logs([self._data.tasks[task] for task in tasks])
        raised = await self._ask(Exceptions({task: log for task, log in logs.items() if log}))
        if not raised:
            return {}
        found = await self._stacks.take(tuple(raised))
        ending = await self._ask(EndingTasks(found)) or ()
        return {task: raised[task] for task in ending if task in raised}

    async def _reports(
        self, hanging: Mapping[TaskId, float], moving: Collection[TaskId]
    ) -> tuple[TaskReport, ...]:
        """What is known of the tasks now."""
        views = self._views()
        logs = await self._logs(views)
        return tuple(
            replace(one, hangs_for=hanging.get(one.task, 0.0), moves=one.task in moving)
            for one in self._with_logs(views, logs)
        )

    @property
    def _cut(self) -> bool:
        """The stacks of so many tasks may be shorter than they were."""
        return len(self._data.tasks) > _MOST_WHOLE

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

    async def _logs(self, tasks: Sequence[TaskView]) -> Mapping[TaskId, bytes]:
        """The ends of the logs of their present attempts; of those that a disk keeps to itself
        none."""
        call, found = loop_caller(), dict[TaskId, bytes]()
        all_read = asyncio.Event()

        def add(task: TaskId, data: bytes) -> None:
            found[task] = data
            if len(found) == len(tasks):
                all_read.set()

        def told(task: TaskId, data: bytes) -> None:
            call(partial(add, task, data))

        for view in tasks:
            begun = view.attempts[-1].log_start if view.attempts else 0
            size = min(_BYTES, max(0, self._monitor.size(view.id) - begun))
            self._monitor.read_end(view.id, size, partial(told, view.id))
        if tasks:
            with suppress(TimeoutError):
                await asyncio.wait_for(all_read.wait(), _READ_SECONDS)
        return found

    def _with_logs(
        self, views: Sequence[TaskView], logs: Mapping[TaskId, bytes]
    ) -> tuple[TaskReport, ...]:
        """What is known of tasks, and the ends of their logs."""
        beside = Counter(view.host for view in self._data.tasks.values())
        return tuple(
            self._report(view, logs.get(view.id, b""), alone=beside[view.host] == 1)
            for view in views
        )

    def _report(self, view: TaskView, log: bytes, *, alone: bool) -> TaskReport:
        """What is known of a task; `alone`: its host has no other."""
        plan = self._data.plan.task(view.id)
        rank = plan.env.get("RANK") or plan.env.get("JAX_PROCESS_ID") or ""
        name, _, _ = view.address.rpartition(":")
        usage = self._data.hosts[view.host].usage.get(view.id)
        return TaskReport(
            view.id,
            view.host,
            int(rank) if rank.isdecimal() else None,
            (view.address, *([name.strip("[]")] if alone else [])),
            view.exit_code,
            view.exit_signal,
            by_us=view.stopped_by is not StoppedBy.NOBODY or view.state is TaskState.KILLED,
            lives=not view.state.ended,
            started=view.started or 0.0,
            ended=view.ended,
            lost_at=self._lost_at(view),
            out_of_memory=view.out_of_memory,
            full_disks=view.full_disks,
            serves=plan.role is Role.PS,
            argv=tuple(plan.argv),
            gpus=self._gpus.of_task(view),
            busy=None if usage is None else usage[0],
            log=log,
            not_started=view.reason if view.exit_code in NOT_STARTED else "",
        )

    def _lost_at(self, view: TaskView) -> float | None:
        """When the task's host was heard last, where that is lost, or was until its agent acted
        alone."""
        lost = HostState.LOST is self._data.hosts[view.host].state or view.state is TaskState.LOST
        at = self._data.host_records[view.host].lost_at
        return at if lost or (view.stopped_by is StoppedBy.AGENT and at) else None
