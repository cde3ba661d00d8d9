"""Executor of a run's instructions: what takes time becomes work of the launcher's loop."""

from __future__ import annotations

import asyncio
import os
import time

from ..agent import wire
from ..cluster.readiness import LogMatches
from ..hosts.frames import Kill, Release, Start
from ..ids import TaskId, tag
from ..plan.run_plan import TaskPlan, unset_names, unset_note
from ..plan.shell import shell_prefix, with_exports
from ..run import events as ev
from ..run import instructions as do
from ..run.instructions import Instruction
from ..run.states import Hang, Outcome
from .assembly import Parts
from .core import Core
from .hang import look_after


class Executor:
    """Carries instructions out."""

    def __init__(self, core: Core, parts: Parts, ended: asyncio.Event) -> None:
        """`ended` is set when all is done that the end of the run asks for."""
        self._core, self._parts, self._ended = core, parts, ended
        self._data, self._links = core.data, core.links
        self._timers: dict[ev.Timer, asyncio.TimerHandle] = {}
        self._looks: dict[ev.Timer, asyncio.TimerHandle] = {}
        """Looks at tasks some seconds before they are called not ready in time."""
        self._releases: list[asyncio.Task[None]] = []
        self._starts: dict[str, list[do.StartTask | do.ReleaseTask]] = {}
        """Tasks to be started or let go on, by their hosts."""

    def carry_out(self, what: Instruction) -> None:
        """Does what an instruction says, or starts it."""
        core, parts = self._core, self._parts
        match what:
            case do.KillHost(host, tasks, grace, final):
                if tasks is None:
                    self._starts.pop(host, None)
                else:
                    self._start_waiting(host)
                if host in self._links:  # else it is told when it is up
                    self._links[host].send(Kill(0, tasks, grace, final))
            case do.SetTimer(timer, seconds):
                self._set_timer(timer, seconds)
            case do.StartTask(task) | do.ReleaseTask(task):
                self._start_soon(task.host, what)
                core.bulkhead.prepare()
            case do.CheckHosts(ports):
                core.spawn(parts.preparation.check(ports=ports), "check of hosts")
            case do.PickPorts(tasks):
                core.spawn(self._pick_ports(tasks), "ports")
            case do.StageHost(host):
                core.spawn(parts.preparation.stage(host), f"files to {host}")
            case do.WatchSilence(task_id, seconds):
                parts.hangs.watch_silence(task_id, seconds)
            case do.ReleaseHost(host):
                work = core.spawn(self._release(host), f"release of {host}")
                self._releases.append(work)
            case do.AskLeases():
                parts.hosts.ask_leases()
            case do.ConnectHosts():
                parts.hosts.connect()
            case do.LookAtOthers(task_id):
                core.spawn(parts.judge.look(task_id), "look at the others")
            case do.ReleaseAllocation():
                core.spawn(self._release_allocation(), "release of the allocation")
            case do.End():
                self._starts.clear()
                core.spawn(self._finish(), "end")

    async def _release(self, host: str) -> None:
        await self._parts.gpus.answered(host)
        await self._parts.teardown.release(host)

    async def _pick_ports(self, tasks: tuple[TaskId, ...]) -> None:
        """Picks ports for the next attempt, when the cause of the last one's failure is known."""
        await self._parts.judge.judge_attempt()
        await self._parts.preparation.pick_ports(tasks)

    def _start_soon(self, host: str, what: do.StartTask | do.ReleaseTask) -> None:
        """Starts a task when those before it have been started: thousands take seconds, and
        beats and a kill do not wait for them."""
        if not self._starts:
            self._core.spawn(self._start_all(), "starts")
        self._starts.setdefault(host, []).append(what)

    async def _start_all(self) -> None:
        while self._starts:
            self._start_waiting(next(iter(self._starts)))
            await asyncio.sleep(0)

    def _start_waiting(self, host: str) -> None:
        waiting = self._starts.pop(host, ())
        for what in () if self._data.end_decided else waiting:
            if isinstance(what, do.StartTask):
                self._start(what.task, what.attempt, what.gated)
            else:
                self._await_line(what.task, what.attempt)
                self._links[host].send(Release(what.task.id, what.attempt))

    def stop_timers(self) -> None:
        """No timer fires any more."""
        for handle in (*self._timers.values(), *self._looks.values()):
            handle.cancel()

    def _set_timer(self, timer: ev.Timer, seconds: float) -> None:
        if timer in self._timers:
            self._timers[timer].cancel()

        def fire() -> None:
            self._timers.pop(timer, None)
            if self._data.awaits(timer):  # those of thousands of tasks that are ready end together
                self._core.feed(ev.TimerFired(time.time(), timer))

        loop = asyncio.get_running_loop()
        self._timers[timer] = loop.call_later(seconds, fire)
        if isinstance(timer, ev.ReadyTimeout):
            if timer in self._looks:
                self._looks[timer].cancel()
            self._looks[timer] = loop.call_later(look_after(seconds), self._look, timer)

    def _look(self, timer: ev.ReadyTimeout) -> None:
        self._looks.pop(timer, None)
        if self._data.awaits(timer) and self._data.must_be_ready(timer.task):
            self._parts.hangs.begin(Hang.NOT_READY, timer.task)

    def _await_line(self, task: TaskPlan, attempt: int) -> None:
        if isinstance(task.ready, LogMatches):
            self._parts.outputs.monitor.await_line(task.id, attempt, task.ready.pattern)

    def _start(self, task: TaskPlan, attempt: int, gated: bool) -> None:
        if not gated:
            self._await_line(task, attempt)
        secrets = {name: os.environ[name] for name in task.env_from if name in os.environ}
        if attempt > 1:  # the shell that attached may not have what the first one had
            for name in unset_names([task], os.environ):
                self._core.note(f"{unset_note(name, [task.id])} restarts without it")
        try:
            self._send_start(task, attempt, gated, secrets)
        except wire.WireError as error:
            started = ev.TaskStarted(time.time(), task.id, attempt, 0, error=str(error))
            self._core.feed(started)

    def _send_start(
        self, task: TaskPlan, attempt: int, gated: bool, secrets: dict[str, str]
    ) -> None:
        """Sends what a task needs to start.

        Raises:
            WireError: its command and environment are too long for a frame.
        """
        argv = task.warm.argv(task.argv) if gated and task.warm else task.argv
        variables = {"TFMUX_ATTEMPT": str(attempt), **task.env, **secrets}
        env = with_exports(variables, task.shell)
        shells = shell_prefix(task.setup, task.shell, gated=gated)
        start = Start(
            task=task.id,
            attempt=attempt,
            argv=(*shells, *argv),
            shell_words=len(shells),
            env={**env, "TFMUX_TASK": tag(self._data.plan.run_id, task.id, attempt)},
            cwd=task.cwd,
            log_limit=task.log_limit,
            port=task.port,
            pty=task.pty,
            gated=gated,
            stop=task.stop,
            stop_signal=task.stop_signal,
            logdir=task.logdir if task.makes_logdir else "",
        )
        self._links[task.host].send(start)

    async def _release_allocation(self) -> None:
        """Gives the nodes back when all that was there of the run is here."""
        await asyncio.gather(*self._releases, return_exceptions=True)
        allocation = self._parts.allocation
        assert allocation is not None
        await allocation.release()

    async def _finish(self) -> None:
        try:
            await self._settle()
        finally:
            self._ended.set()

    async def _settle(self) -> None:
        """Waits until all hosts have been released; what failed there has been told."""
        await asyncio.gather(*self._releases, return_exceptions=True)
        await self._parts.outputs.settle()
        if self._data.run.outcome is Outcome.FAILED:
            await self._parts.judge.judge()
        if self._data.run.outcome is Outcome.TAKEN_OVER:
            await self._parts.hosts.let_go()
