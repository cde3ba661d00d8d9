"""Executor of a run's instructions: each is carried out, or begun, as soon as it is given."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ..agent import wire
from ..cluster.readiness import LogMatches
from ..hosts.frames import Kill, Release, Start
from ..ids import tag
from ..plan.plan import TaskPlan, unset_names, unset_note
from ..plan.shell import shell_prefix, with_exports
from ..run import events as ev
from ..run import instructions as do
from ..run.run import RunStateMachine
from ..run.states import Hang
from ..run.timers import ReadyTimeout, Timer
from .allocation import Allocation
from .connections import Connections
from .launch_preparation import LaunchPreparation
from .outputs import Outputs
from .stacks import HangWatch, look_after
from .teardown import Teardown

END = "end"
Spawn = Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]]
"""Starts work that is named, kept and reaped."""


@dataclass
class Executor:
    """Carries instructions out; what takes time becomes a task of the launcher's loop."""

    run: RunStateMachine
    connections: Connections
    outputs: Outputs
    preparation: LaunchPreparation
    teardown: Teardown
    feed: Callable[[ev.Event], None]
    spawn: Spawn
    allocation: Allocation | None
    hangs: HangWatch | None = None
    _timers: dict[Timer, asyncio.TimerHandle] = field(default_factory=dict)
    _looks: dict[Timer, asyncio.TimerHandle] = field(default_factory=dict)
    """Looks at tasks some seconds before they are called not ready in time."""
    _releases: list[asyncio.Task[None]] = field(default_factory=list)
    _starts: dict[str, list[Callable[[], None]]] = field(default_factory=dict)
    """Tasks to be started or let go on, by their hosts."""

    def carry_out(self, what: do.Instruction) -> None:
        """Does what an instruction says, or starts it."""
        run = self.run
        match what:
            case do.CheckHosts(ports):
                self.spawn(self.preparation.check(run.plan, ports=ports), "check of hosts")
            case do.PickPorts(tasks):
                self.spawn(self.preparation.pick_ports(run.plan, tasks), "ports")
            case do.StageHost(host):
                work = self.preparation.stage(run.plan, run.plan.host(host))
                self.spawn(work, f"files to {host}")
            case do.StartTask(task, attempt, gated):
                self._begin_soon(task.host, partial(self._start, task, attempt, gated))
            case do.ReleaseTask(task, attempt):
                self._begin_soon(task.host, partial(self._release, task, attempt))
            case do.KillHost(host, tasks, grace):
                if tasks is None:
                    self._starts.pop(host, None)
                else:
                    self._begin(host)
                if host in self.connections.links:  # else it is told when it is up
                    self.connections.links[host].send(Kill(0, tasks, grace))
            case do.SetTimer(timer, seconds):
                self._set_timer(timer, seconds)
            case do.WatchSilence(task_id, seconds):
                if self.outputs.watch_silence(task_id, seconds):
                    self.spawn(self.outputs.check_silences(), "silence")
            case do.ReleaseHost(host):
                work = self.teardown.release(run.plan.host(host), self.connections.tasks[host])
                self._releases.append(self.spawn(work, f"release of {host}"))
            case do.ConnectHosts():
                self.connections.connect()
            case do.ReleaseAllocation():
                self.spawn(self._release_allocation(), "release of the allocation")
            case do.End():
                self._starts.clear()
                self.spawn(self._finish(), END)

    def _begin_soon(self, host: str, start: Callable[[], None]) -> None:
        """Starts a task when those before it have been started: thousands take seconds, and
        beats and a kill do not wait for them."""
        if not self._starts:
            self.spawn(self._begin_all(), "starts")
        self._starts.setdefault(host, []).append(start)

    async def _begin_all(self) -> None:
        while self._starts:
            self._begin(next(iter(self._starts)))
            await asyncio.sleep(0)

    def _begin(self, host: str) -> None:
        for start in self._starts.pop(host, ()):
            start()

    def stop_timers(self) -> None:
        """No timer fires any more."""
        for handle in (*self._timers.values(), *self._looks.values()):
            handle.cancel()

    def _set_timer(self, timer: Timer, seconds: float) -> None:
        if timer in self._timers:
            self._timers[timer].cancel()

        def fire() -> None:
            self._timers.pop(timer, None)
            if self.run.awaits(timer):  # those of thousands of tasks that are ready end together
                self.feed(ev.TimerFired(time.time(), timer))

        loop = asyncio.get_running_loop()
        self._timers[timer] = loop.call_later(seconds, fire)
        if isinstance(timer, ReadyTimeout):
            if timer in self._looks:
                self._looks[timer].cancel()
            self._looks[timer] = loop.call_later(look_after(seconds), self._look, timer)

    def _look(self, timer: ReadyTimeout) -> None:
        self._looks.pop(timer, None)
        if self.hangs is not None and self.run.awaits(timer):
            self.hangs.begin(Hang.NOT_READY, timer.task)

    def _await_line(self, task: TaskPlan, attempt: int) -> None:
        if isinstance(task.ready, LogMatches):
            self.outputs.monitor.await_line(task.id, attempt, task.ready.pattern)

    def _release(self, task: TaskPlan, attempt: int) -> None:
        self._await_line(task, attempt)
        self.connections.links[task.host].send(Release(task.id, attempt))

    def _start(self, task: TaskPlan, attempt: int, gated: bool) -> None:
        if not gated:
            self._await_line(task, attempt)
        secrets = {name: os.environ[name] for name in task.env_from if name in os.environ}
        if attempt > 1:  # the shell that attached may not have what the first one had
            for name in unset_names([task], os.environ):
                text = f"{unset_note(name, [task.id])} restarts without it"
                self.feed(ev.NoteAdded(time.time(), text))
        try:
            self._send_start(task, attempt, gated, secrets)
        except wire.WireError as error:
            self.feed(ev.TaskStarted(time.time(), task.id, attempt, 0, error=str(error)))

    def _send_start(
        self, task: TaskPlan, attempt: int, gated: bool, secrets: dict[str, str]
    ) -> None:
        """Sends what a task needs to start.

        Raises:
            WireError: its command and environment are too long for a frame.
        """
        link = self.connections.links[task.host]
        argv = task.warm.argv(task.argv) if gated and task.warm else task.argv
        variables = {"TFMUX_ATTEMPT": str(attempt), **task.env, **secrets}
        env = with_exports(variables, task.shell)
        start = Start(
            task=task.id,
            attempt=attempt,
            argv=(*shell_prefix(task.setup, task.shell, gated=gated), *argv),
            env={**env, "TFMUX_TASK": tag(self.run.plan.run_id, task.id, attempt)},
            cwd=task.cwd,
            log_limit=task.log_limit,
            port=task.port,
            pty=task.pty,
            gated=gated,
        )
        link.send(start)

    async def _release_allocation(self) -> None:
        """Gives the nodes back when all that was there of the run is here."""
        await asyncio.gather(*self._releases, return_exceptions=True)
        assert self.allocation is not None
        await self.allocation.release()

    async def _finish(self) -> None:
        """Waits until all hosts have been released; what failed there has been told."""
        await asyncio.gather(*self._releases, return_exceptions=True)
