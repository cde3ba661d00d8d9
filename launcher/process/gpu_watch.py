"""GPUs of a run's hosts as their agents tell of them: shown, recorded, and said once where one of
them fails."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from ..errors import AgentError
from ..hosts.frames import GpusQuestion
from ..ids import TaskId
from ..plan.environment import VISIBLE
from ..reading.looks import GpuSentences, Look
from ..run.gpus import GpuSample, GpuView, gpu_memory, gpu_sample
from ..run.snapshot import TaskView
from .core import Core

_RECORD_SECONDS = 30.0
"""A host is recorded with its GPUs at most so often, when their processes change."""
_LOOK_SECONDS = 5.0
"""Longest wait for the GPUs of a host on which a task has failed, before the host is released; no
kill waits for them. Without persistence mode `nvidia-smi` takes a second and more each time."""
_MOST_SAID = 100
"""Sentences about GPUs in a run: a host may lie."""


class GpuWatch:
    """Keeps the GPUs of all hosts in their views."""

    def __init__(self, core: Core, record: Callable[[GpuSample], None]) -> None:
        self._core, self._data, self._record = core, core.data, record
        self._recorded: dict[str, tuple[float, tuple[object, ...]]] = {}
        """When each host was recorded with its GPUs last, and what was known of them then."""
        self._said: set[str] = set()
        self._told: set[tuple[object, ...]] = set()
        """Troubles of GPUs about which somebody has been asked."""
        self._with_task: dict[TaskId, tuple[GpuView, ...]] = {}
        """GPUs of the last look that found a process of the task on one of them."""
        self._compared: set[str] = set()
        """Hosts whose GPUs were compared with what the plan gives away."""
        self._looks: dict[str, asyncio.Task[None]] = {}
        """Questions about GPUs of hosts on which a task has failed, which are open, not for
        long."""
        self._errors: dict[tuple[str, str], int] = {}
        """ECC errors that each GPU had when it was seen first."""

    def seen(self, host: str, told: Sequence[GpuView], problem: str) -> None:
        """Takes what an agent says of a host's GPUs."""
        with self._core.bulkhead.around(Look.GPUS):
            self._see(host, told, problem)

    def _see(self, host: str, told: Sequence[GpuView], problem: str) -> None:
        now = time.time()
        gpus = self._views(host, told, now)
        self._core.gauges.gpus(host, gpus, problem)
        if not gpus:
            return
        self._record(gpu_sample(host, gpus, now))
        self._look_for_sentences(host, gpus)
        for task in gpu_memory(gpus):
            self._with_task[task] = gpus
        facts = tuple(map(_facts, gpus))
        recorded_at, recorded = self._recorded.get(host, (0.0, ()))
        if facts != recorded and now - recorded_at >= _RECORD_SECONDS:
            self._recorded[host] = now, facts
            self._core.gauges.record_host(host)

    def look(self, host: str) -> None:
        """Asks for the GPUs of a host on which a task has failed: an Xid error of the last seconds
        would come with the next report, which is never made."""
        if self._data.hosts[host].gpus and host not in self._looks:
            look = self._looks[host] = self._core.spawn(self._ask(host), f"GPUs of {host}")
            look.add_done_callback(lambda _: self._looks.pop(host, None))

    async def answered(self, host: str | None = None) -> None:
        """Waits for open questions about the GPUs of a host, or of all; not for long."""
        looks = [look for name, look in self._looks.items() if host in (None, name)]
        if looks:
            await asyncio.wait(looks)

    def give_up(self) -> None:
        """Cancels the open questions."""
        for look in self._looks.values():
            look.cancel()

    async def _ask(self, host: str) -> None:
        with suppress(AgentError, TimeoutError):
            async with asyncio.timeout(_LOOK_SECONDS):
                answer = await self._core.links[host].ask(GpusQuestion())
            if answer.gpus:
                self.seen(host, answer.gpus, answer.why)

    def of_task(self, task: TaskView) -> tuple[GpuView, ...]:
        """The GPUs of a task, or their MIG instances, with the processes that were there beside its
        own, and what has been told of them since. Where it has been given none, and none is known,
        all."""
        now = [part for gpu in self._data.hosts[task.host].gpus for part in gpu.parts]
        before = self._with_task.get(task.id)
        then = now if before is None else [part for gpu in before for part in gpu.parts]
        own = [gpu for gpu in then if gpu.is_of(task.id, task.gpus)]
        if not own and not task.gpus:
            given = self._data.plan.task(task.id).env.get(VISIBLE)
            own = list(then) if given is None else []
        newest = {gpu.uuid: gpu for gpu in now}
        return tuple(
            replace(newest.get(gpu.uuid, gpu), memory_used=gpu.memory_used, processes=gpu.processes)
            for gpu in own
        )

    def _look_for_sentences(self, host: str, gpus: tuple[GpuView, ...]) -> None:
        """Has said, once, which GPUs fail, and who holds those that the plan gives away, as `check`
        does before a launch."""
        tasks = [task for task in self._data.tasks.values() if task.host == host]
        given = frozenset(name for task in tasks for name in task.gpus)
        if host in self._compared:
            given = frozenset()
        elif given:
            self._compared.add(host)
        troubles = {(host, gpu.uuid, gpu.xids, gpu.problem, gpu.new_ecc_errors) for gpu in gpus}
        troubles = {one for one in troubles if any(one[2:])} - self._told
        if (given or troubles) and len(self._told) < _MOST_SAID:
            self._told |= troubles
            at_work = any(task.attempt for task in tasks)
            question = GpuSentences(host, gpus, given, at_work)
            self._core.spawn(self._ask_for_sentences(question), f"sentences about {host}")

    async def _ask_for_sentences(self, question: GpuSentences) -> None:
        for sentence in await self._core.bulkhead.ask(question) or ():
            self._say(sentence)

    def _say(self, sentence: str) -> None:
        if sentence not in self._said and len(self._said) < _MOST_SAID:
            self._said.add(sentence)
            self._core.note(sentence)

    def _views(self, host: str, told: Sequence[GpuView], now: float) -> tuple[GpuView, ...]:
        """The GPUs of a host with what no agent knows: errors since the run began, and since when
        those of its tasks have been idle."""
        views = self._data.tasks.values()
        running = [view for view in views if view.host == host and view.state.up]
        before = {gpu.index: gpu.idle_since for gpu in self._data.hosts[host].gpus}
        known = {gpu.uuid: gpu for gpu in self._data.hosts[host].gpus}
        gpus = []
        for gpu in told:
            # What has failed stays so while nvidia-smi does not answer, and says no figures.
            last = known.get(gpu.uuid)
            new, xids = (last.new_ecc_errors, gpu.xids or last.xids) if last else (0, gpu.xids)
            idle_since = None
            if gpu.ecc_errors is not None:
                had = self._errors.setdefault((host, gpu.uuid), gpu.ecc_errors)
                new = max(0, gpu.ecc_errors - had)
            if gpu.utilisation == 0 and any(gpu.is_of(task.id, task.gpus) for task in running):
                idle_since = before.get(gpu.index) or now
            gpus.append(replace(gpu, xids=xids, new_ecc_errors=new, idle_since=idle_since))
        return tuple(gpus)


def _facts(gpu: GpuView) -> tuple[object, ...]:
    """What seldom changes of a GPU."""
    processes = tuple((one.pid, one.task) for one in gpu.processes)
    return gpu.uuid, gpu.problem, gpu.xids, gpu.ecc_errors, processes
