"""Launcher of one run: the machine's shell, its records, its lock and its clients together.

It runs in a process of its own (`process`), on the loop that is the control loop: it beats, kills
and hears receipts, so nothing on it reads log text or touches a file. That is done by workers in
threads of their own (`output`, `store.run_writer`), which tell it what they have found. Everything
that waits is a task here that is kept and reaped; everything that decides is in `run`.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from ..agent import wire
from ..agent.folders import FolderError
from ..cluster.file_model import ClusterModel
from ..cluster.readiness import LogMatches
from ..errors import LauncherError
from ..hosts.auth_prompt import PromptHandler
from ..hosts.frames import Kill, Release, Start
from ..hosts.transport import allow_connections
from ..ids import TaskId, tag
from ..plan.facts import Resume
from ..plan.planner import Plan, TaskPlan, unset_names, unset_note
from ..plan.shell import shell_prefix, with_exports
from ..printable import printable
from ..run import events as ev
from ..run import instructions as do
from ..run.instructions import Instruction
from ..run.machine import RunStateMachine
from ..run.snapshot import Metric, Receipt, RunView, Snapshot
from ..run.stack_groups import Stacks
from ..run.state import named
from ..run.states import Hang, Outcome, RunPhase
from ..run.views import Views
from ..store import launcher_lock
from ..store.logs import LogStore
from ..store.metrics import latest_metrics
from ..store.run_writer import RunWriter
from ..store.runs import RunFolder
from ..store.stream import Line, Summary
from ..subprocesses import Workers
from .connections import (
    Connections,
    Forwarding,
    HostStats,
    LaunchPreparation,
    Teardown,
    Transfers,
)
from .control_socket import ControlSocket
from .hang import HangWatch
from .hooks import HookRunner
from .judge import Judge
from .output import DiskWatch, Outputs
from .prompts import PromptQueue
from .stack_collector import StackCollector, look_after
from .stored import StoredRun

if TYPE_CHECKING:
    from ..files.collecting import Results
    from ..files.trees import HostFiles
    from .slurm_allocation import Allocation

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
    judge: Judge | None = None
    _timers: dict[ev.Timer, asyncio.TimerHandle] = field(default_factory=dict)
    _looks: dict[ev.Timer, asyncio.TimerHandle] = field(default_factory=dict)
    """Looks at tasks some seconds before they are called not ready in time."""
    _releases: list[asyncio.Task[None]] = field(default_factory=list)
    _starts: dict[str, list[Callable[[], None]]] = field(default_factory=dict)
    """Tasks to be started or let go on, by their hosts."""

    def carry_out(self, what: do.Instruction) -> None:
        """Does what an instruction says, or starts it."""
        run = self.run
        match what:
            case do.CheckHosts(ports):
                self.spawn(self.preparation.check(run.data.plan, ports=ports), "check of hosts")
            case do.PickPorts(tasks):
                self.spawn(self._pick_ports(run.data.plan, tasks), "ports")
            case do.StageHost(host):
                work = self.preparation.stage(run.data.plan, run.data.plan.host(host))
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
                work = self.teardown.release(run.data.plan.host(host), self.connections.tasks[host])
                self._releases.append(self.spawn(work, f"release of {host}"))
            case do.ConnectHosts():
                self.connections.connect()
            case do.LookAtOthers(task_id):
                if self.judge is not None:
                    self.spawn(self.judge.look(task_id), "look at the others")
            case do.ReleaseAllocation():
                self.spawn(self._release_allocation(), "release of the allocation")
            case do.End():
                self._starts.clear()
                self.spawn(self._finish(), END)

    async def _pick_ports(self, plan: Plan, tasks: tuple[TaskId, ...]) -> None:
        """Picks ports for the next attempt, when the cause of the last one's failure is known."""
        if self.judge is not None:
            await self.judge.judge_attempt()
        await self.preparation.pick_ports(plan, tasks)

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

    def _set_timer(self, timer: ev.Timer, seconds: float) -> None:
        if timer in self._timers:
            self._timers[timer].cancel()

        def fire() -> None:
            self._timers.pop(timer, None)
            if self.run.data.awaits(
                timer
            ):  # those of thousands of tasks that are ready end together
                self.feed(ev.TimerFired(time.time(), timer))

        loop = asyncio.get_running_loop()
        self._timers[timer] = loop.call_later(seconds, fire)
        if isinstance(timer, ev.ReadyTimeout):
            if timer in self._looks:
                self._looks[timer].cancel()
            self._looks[timer] = loop.call_later(look_after(seconds), self._look, timer)

    def _look(self, timer: ev.ReadyTimeout) -> None:
        self._looks.pop(timer, None)
        if self.hangs is not None and self.run.data.awaits(timer):
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
            env={**env, "TFMUX_TASK": tag(self.run.data.plan.run_id, task.id, attempt)},
            cwd=task.cwd,
            log_limit=task.log_limit,
            port=task.port,
            pty=task.pty,
            gated=gated,
            stop=task.stop,
            stop_signal=task.stop_signal,
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
        if self.judge is not None:
            await self.judge.judge()


Crash = Callable[[str, BaseException], NoReturn]
"""Ends the launcher; called with what was being done, and what nobody expected there."""
_CLOCK_SECONDS = 1.0
_CLOCK_STEP = 1.0
"""Seconds by which a clock that was set differs from one that is kept in step."""
_STATS = "stats of hosts"
_LONGEST_TEXT = 1 << 16


class RunLoop:
    """Runs one run from connecting to the receipt.

    `publish` is called on this loop when the views have changed, with True for what a client must
    hear at once, and must only hand over.
    """

    def __init__(
        self,
        cluster: ClusterModel,
        run_id: str,
        logs: LogStore,
        *,
        publish: Callable[[bool], None],
        writer: RunWriter,
        ask: PromptHandler | None = None,
        resume: Resume | None = None,
        past: StoredRun | None = None,
        died: str = "",
        end: bool = False,
        crash: Crash,
    ) -> None:
        """`writer` keeps the records; `past` is a run to be taken up, after a launcher that died
        as `died` says, and with `end` in order to end it. `crash` gets what nobody expected, in
        any thread, and ends this process."""
        self.run = (
            past.run if past else RunStateMachine(cluster, run_id, time.time(), resume=resume)
        )
        now = time.time()
        self._first: ev.Event = ev.Attached(now, past.complete) if past else ev.Begin(now)
        self._first_instructions = self.run.handle(self._first)
        self._cluster = cluster
        self._past = past
        self._publish = publish
        self._writer = writer
        self.connections = Connections(
            self.run,
            logs.folder,
            feed=self.feed,
            failed=crash,
            ask=ask,
            persistent=past is not None,
        )
        links, views = self.connections.links, self.run.data
        self.hooks = HookRunner(
            cluster, self.run.data.plan, logs.folder, self.snapshot, self.add_note
        )
        self.stacks = StackCollector(self.run, links)
        self._disk = DiskWatch(writer, self.feed)
        self.outputs = Outputs(
            self.run,
            logs,
            links,
            latest=latest_metrics(past.folder.metrics) if past else {},
            feed=self.feed,
            metrics=self._on_metric,
            publish=self._changed,
            trouble=self._disk.complain,
            failed=crash,
            silent=lambda task: self._hangs.begin(Hang.AT_END, task),
        )
        judge = Judge(self.run, self.outputs.monitor, self.stacks, self.feed)
        self._hangs = HangWatch(
            self.run,
            self.stacks,
            judge,
            logs.folder,
            self.feed,
            self._changed,
            self.hooks.stalled,
        )
        self._transfers = Transfers(views, self._changed)
        self._forwarding = Forwarding(views, links, self.feed, self._changed)
        self._stats = HostStats(views, links, self._changed)
        self._teardown = Teardown(
            self.run, links, self.outputs, self.feed, self._disk, self._results(logs.folder)
        )
        self._allocation = self._allocation_of(cluster, attached=past is not None)
        welcomes = self.connections.welcomes
        self._executor = Executor(
            self.run,
            self.connections,
            self.outputs,
            LaunchPreparation(
                links,
                welcomes,
                self._transfers,
                self.feed,
                self.run.data.ports,
                self._allocation.check_names if self._allocation is not None else None,
                self._host_files(),
            ),
            self._teardown,
            feed=self.feed,
            spawn=self._spawn,
            allocation=self._allocation,
            hangs=self._hangs,
            judge=judge,
        )
        self._forwarded = [task.id for task in self.run.data.plan.tasks if task.forward]
        self._work: set[asyncio.Task[None]] = set()
        self._early: list[ev.Event] | None = []
        """Events that came before `main` had begun."""
        self._died, self._ends = died, end
        self._crash = crash
        self._over = asyncio.Event()
        self._end_is_last = False
        """The end of the stream has been written, and nothing behind it."""

    # What only some runs need is imported for these alone, and before the run begins: the loop that
    # kills waits for no disk.

    def _host_files(self) -> HostFiles | None:
        """What sends files; None where all hosts are this machine."""
        if self.run.data.allocation is None and all(
            host.local for host in self.run.data.plan.hosts
        ):
            return None
        from ..files.trees import HostFiles

        return HostFiles()

    def _results(self, folder: Path) -> Results | None:
        """What brings results, and says which stay; None where there can be none."""
        hosts = self.run.data.plan.hosts
        if self.run.data.allocation is None and all(
            host.local and not host.collect for host in hosts
        ):
            return None
        from ..files.collecting import Results

        return Results(folder, self.feed, self._transfers.collected)

    def _allocation_of(self, cluster: ClusterModel, *, attached: bool) -> Allocation | None:
        """The allocation of nodes; None without `[slurm]`."""
        if cluster.slurm is None:
            return None
        from .slurm_allocation import Allocation

        logins = self.connections.logins
        return Allocation.of(cluster.slurm, self.run, logins, self.feed, attached=attached)

    # --- life -----------------------------------------------------------------------------

    async def main(self) -> None:
        """Runs until the run has ended and all hosts are released."""
        self.outputs.begin()
        try:
            self._begin()
        except Exception as error:
            self._crash("start", error)
        await self._over.wait()
        await self._close()
        self.finish()

    def _begin(self) -> None:
        past, now = self._past, time.time()
        self._past = None
        early, self._early = self._early or [], None
        self._carry_out(self._first_instructions)
        for event in early:
            self.feed(event)
        if self._ends:
            self.feed(ev.LauncherFailed(now, self._died))
        elif self._died:
            self.add_note(f"the launcher before this one has died: {self._died}")
        for name, tasks in unset_names(self.run.data.plan.tasks, os.environ).items():
            start = "would be restarted without it" if past else "start without it"
            self.add_note(f"{unset_note(name, tasks)} {start}")
        if past is None:
            self._spawn(self._note_mpi(), "look for MPI")
        self.connections.begin(self.outputs, self._on_listening)
        if self._allocation is not None and (self.run.data.awaits_nodes or self.run.data.nodes):
            self._spawn(self._allocation.supervise(), "allocation")
        self._spawn(self._hangs.watch(), "stalls")
        self._spawn(self._stats.poll(), _STATS)
        self._spawn(self._disk.watch(self.outputs), "disk")
        self._spawn(self._follow_clock(), "clock")

    async def _note_mpi(self) -> None:
        """Notes programs of an MPI library, to which `mpi-like` gives no rank, and each `mpirun`
        that several tasks start."""
        for text in await asyncio.to_thread(_mpi_notes, self._cluster, self.run.data.plan):
            self.add_note(text)

    def add_note(self, text: str) -> None:
        """Tells whoever follows the run."""
        self.feed(ev.NoteAdded(time.time(), text))

    def feed(self, event: ev.Event) -> None:
        """Gives the run an event and does what it says; what is recorded comes after that."""
        if self._early is not None:
            self._early.append(event)
            return
        try:
            self._feed(event)
        except Exception as error:
            self._crash(type(event).__name__, error)

    def _feed(self, event: ev.Event) -> None:
        event = shown(event)
        if isinstance(event, ev.KillAll) and event.force:
            self._teardown.force()
        if self._allocation is not None:
            self._watch_allocation(self._allocation, event)
        if isinstance(event, ev.HostUp) and isinstance(self._first, ev.Begin):
            self._expect_files(event.host)
        self._carry_out(self.run.handle(event))
        if isinstance(event, ev.TaskStarted) and isinstance(self._first, ev.Attached):
            self.outputs.await_line(event)

    def _expect_files(self, host: str) -> None:
        """Has a host that is up make ready for its files while others are still logged in to."""
        plan = self.run.data.plan
        if self.run.data.phase is RunPhase.CONNECTING and plan.sends_files(plan.host(host)):
            self._executor.preparation.begin_program(host)

    def _watch_allocation(self, allocation: Allocation, event: ev.Event) -> None:
        match event:
            case ev.HostLost() | ev.TaskExited():
                allocation.poll_soon()
            case ev.KillAll(force=True) if self.run.data.releasing:
                allocation.force()

    def _carry_out(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            self._executor.carry_out(instruction)
        self._changed()

    def _on_listening(self, task: TaskId) -> None:
        plan = self.run.data.plan.task(task)
        if plan.forward:
            self._spawn(self._forwarding.open(plan), f"forward of {task}")

    async def _close(self) -> None:
        self._executor.stop_timers()
        await self.stacks.aclose()
        await self._executor.preparation.aclose()
        await self.connections.aclose()
        rest = list(self._work)
        for task in rest:
            task.cancel()
        if rest:
            await asyncio.wait(rest, timeout=1.0)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._work.add(task)
        task.add_done_callback(self._reap)
        return task

    def _reap(self, task: asyncio.Task[None]) -> None:
        self._work.discard(task)
        if task.get_name() == END:
            self._over.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            if task.get_name() == _STATS:  # nice to have: no reason to end anything
                self.add_note(f"no {_STATS} any more: {error!r}")
            else:
                self._crash(task.get_name(), error)

    # --- what others see ------------------------------------------------------------------

    async def _follow_clock(self) -> None:
        """Moves the times by which a person is told how long the run has lasted when the machine's
        clock is set; never ends by itself."""
        offset = _clock_offset()
        while True:
            await asyncio.sleep(_CLOCK_SECONDS)
            by = _clock_offset() - offset
            run = self.run.data.run
            if abs(by) < _CLOCK_STEP or run.ended is not None:
                continue
            offset += by
            since = run.waiting_since
            self.run.data.update_run(
                started=max(0.0, run.started + by),
                waiting_since=since and max(0.0, since + by),
            )
            for task, view in list(self.run.data.tasks.items()):
                if (stalled := view.stalled_since) is not None:
                    self.run.data.update_task(task, stalled_since=max(0.0, stalled + by))
            self._changed()

    def _changed(self) -> None:
        """Records what is different now, and has it published."""
        try:
            self._record()
        except Exception as error:
            self._crash("records", error)

    def _record(self) -> None:
        views = self.run.data
        for task in self._unreachable_pages():
            views.update_task(task, url="")
        records = views.pop_changed(time.time())
        for record in records:
            self._put(record)
        # A client that hears nothing of a kill takes the launcher for dead.
        self._publish(any(isinstance(record, RunView | Receipt) for record in records))

    def _unreachable_pages(self) -> list[TaskId]:
        """Tasks that have ended and whose ports were forwarded."""
        tasks = self.run.data.tasks
        views = [tasks[task] for task in self._forwarded]
        return [view.id for view in views if view.url and not view.state.live]

    def _put(self, line: Line) -> None:
        self._end_is_last = False
        if self.run.data.run.outcome is not Outcome.DETACHED:  # the record is another launcher's
            self._writer.put(line)

    def _on_metric(self, metric: Metric) -> None:
        self._put(metric)
        self._hangs.observe(metric)
        self._publish(False)

    def refresh(self) -> Views:
        """The views, with figures that nobody tells of but that change with the time."""
        waiting = None
        if self.run.data.phase is RunPhase.STAGING:
            waiting = named(map(self._transfers.describe, self.run.data.unstaged_hosts))
        self.run.data.refresh_waiting(waiting)
        self._stats.note_heard()
        return self.run.data

    def snapshot(self) -> Snapshot:
        """The run as it stands."""
        return self.refresh().snapshot()

    def finish(self) -> Snapshot:
        """The run at its end, which is recorded, with what was said since it was recorded last."""
        final = self.snapshot()
        if final.outcome is not Outcome.DETACHED and not self._end_is_last:
            self.run.data.flush_figures()
            self._changed()
            self._put(Summary.of(final, time.time()))
            self._end_is_last = True
        return final


def shown(event: ev.Event) -> ev.Event:
    """An event whose texts are safe to show, but for facts, which go back to hosts as they are."""
    if isinstance(event, ev.HostsChecked):
        return event
    made: ev.Event = _shown(event)
    return made


def _shown(value: Any) -> Any:
    if type(value) is str:
        return printable(value, _LONGEST_TEXT)
    if type(value) is tuple:
        return tuple(map(_shown, value))
    if isinstance(value, Mapping):
        return {_shown(key): _shown(item) for key, item in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        before = {field.name: getattr(value, field.name) for field in fields(value)}
        after = {name: _shown(item) for name, item in before.items()}
        news = {name: item for name, item in after.items() if item != before[name]}
        return replace(value, **news) if news else value
    return value


WRITE_SECONDS = 3.0
"""Longest wait for the disk at the end."""
_END_SECONDS = 1.0
_THREADS = "worker"
"""How the names of the loop's threads begin."""
_PACKAGE = __name__.partition(".")[0]


class Launcher:
    """One run, from its files to its clients; everything but `run` belongs to its loop."""

    def __init__(
        self,
        folder: RunFolder,
        cluster: ClusterModel,
        *,
        resume: Resume | None = None,
        past: StoredRun | None = None,
        died: str = "",
        end: bool = False,
        crash: Crash,
    ) -> None:
        """`past` is that of a run which an earlier launcher has begun; `died` says what that died
        of, and with `end` this one does nothing but end the run. `crash` ends this process."""
        self.folder = folder
        self._taken_up = past is not None
        self.logs = LogStore(folder.path, only_writes=True)
        self._writer = RunWriter(folder, partial(crash, "records"))
        prompts = PromptQueue()
        self._socket = ControlSocket(
            folder.run_id, self._command, prompts, self._views, crash, self._take_stacks
        )
        self._run_loop = RunLoop(
            cluster,
            folder.run_id,
            self.logs,
            publish=self._socket.changed,
            writer=self._writer,
            ask=prompts,
            resume=resume,
            past=past,
            died=died,
            end=end,
            crash=crash,
        )
        self._crash = crash
        self._ends = end
        allow_connections(len(self._run_loop.run.data.plan.hosts))
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, first: socket.socket, lock: int | None, *, on_close: str) -> Snapshot:
        """Runs the run to its end, on a loop of its own; returns the last snapshot.

        Args:
            first: the connection of the client that has started this process.
            lock: a descriptor that holds the run's lock.
            on_close: what it means when that client disappears (`control_socket`).

        Raises:
            LauncherError: nothing could be begun.
        """
        loop = asyncio.new_event_loop()
        loop.set_default_executor(Workers(thread_name_prefix=_THREADS))
        try:
            return loop.run_until_complete(self._main(first, lock, on_close))
        except LauncherError:
            raise
        except Exception as error:
            self._crash("run", error)
        finally:
            _end(loop)
            # Their threads may wait for a disk: the process ends without them.
            self._run_loop.outputs.monitor.close()
            self._writer.close()

    def _command(self, event: ev.Event) -> None:
        """Carries out what a client wants; a launcher that ends the run does that already.

        Raises:
            KeyError: the run has no such task.
        """
        if self._ends:
            return
        if isinstance(event, ev.Restart | ev.SignalTask):
            self._run_loop.run.data.tasks[event.task]
        ended = self._run_loop.run.data.phase is RunPhase.ENDED
        if isinstance(event, ev.KillAll) and event.force and ended:
            self._run_loop.hooks.stop()
        self._run_loop.feed(event)

    async def _take_stacks(self, tasks: tuple[TaskId, ...] | None) -> Stacks:
        """Where these tasks stand, or all.

        Raises:
            KeyError: the run has no such task.
        """
        for task in tasks or ():
            self._run_loop.run.data.tasks[task]
        return await self._run_loop.stacks.take(tasks)

    def terminate(self) -> None:
        """Ends everything because this process was told to end; safe in a signal handler."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._terminate)

    def _terminate(self) -> None:
        ended = (
            self._run_loop.run.data.phase is RunPhase.ENDED
        )  # then nothing is waited for any more
        self._command(ev.KillAll(time.time(), by_person=False, force=ended))

    # --- its loop -------------------------------------------------------------------------

    def _views(self) -> Views:
        """The state as it is sent to clients."""
        try:
            return self._run_loop.refresh()
        except Exception as error:
            self._crash("snapshot", error)

    async def _main(self, first: socket.socket, lock: int | None, on_close: str) -> Snapshot:
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(self._on_error)
        with launcher_lock.held(self.folder.path, lock):
            async with AsyncExitStack() as stack:
                await self._listen(stack)
                await self._socket.add(first, on_close)
                self._run_loop.hooks.begin()
                await self._run_loop.main()
                await self._run_loop.hooks.finish(self._run_loop.finish())
                self._run_loop.finish()
                await self._finish_writing()
                snapshot = self._run_loop.finish()
                await self._socket.finish(self._run_loop.run.data)
        return snapshot

    def _on_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """What was raised in a callback, where nobody awaits it. What a library raises in its own
        is a matter of that connection."""
        error, callback = (
            context.get("exception"),
            getattr(context.get("handle"), "_callback", None),
        )
        callback = getattr(callback, "func", callback)  # of a `partial`
        if error is not None and getattr(callback, "__module__", "").startswith(_PACKAGE):
            self._crash("callback", error)
        loop.default_exception_handler(context)

    async def _listen(self, stack: AsyncExitStack) -> None:
        """Accepts clients. A run that is taken up has tasks, and whoever wants to end it is
        connected already: it goes on without others.

        Raises:
            LauncherError: nobody could connect to a new run.
        """
        try:
            await stack.enter_async_context(self._socket.listening())
        except (OSError, FolderError) as error:
            if not self._taken_up:
                raise LauncherError(f"no client could connect to the run: {error}") from error
            self._run_loop.add_note(f"no other client can connect: {error}")

    async def _finish_writing(self) -> None:
        """Waits for what is not on disk yet, but not for a disk that does not answer."""
        monitor, writer = self._run_loop.outputs.monitor, self._writer
        deadline = time.monotonic() + WRITE_SECONDS
        while not (monitor.idle and writer.idle):
            if time.monotonic() > deadline:
                what = f"{writer.unwritten} events and {monitor.unstored} log bytes"
                text = f"{what} are not stored here: the disk does not take them"
                self._run_loop.add_note(text)
                return
            await asyncio.sleep(0.01)


def _end(loop: asyncio.AbstractEventLoop) -> None:
    """Ends what is left of a loop; threads of it that wait for a disk are left behind."""
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.wait(left, timeout=_END_SECONDS))
    loop.close()
    deadline = time.monotonic() + _END_SECONDS
    threads = [t for t in threading.enumerate() if t.name.startswith(_THREADS)]
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))


def _mpi_notes(cluster: ClusterModel, plan: Plan) -> list[str]:
    from ..plan import mpi  # off the way to the first task

    notes = [f"the command of {t.id} {why}: {todo}" for t, why, todo in mpi.repeated(plan)]
    if not (size := mpi.size_of(cluster)):
        return notes
    return notes + [
        f"{task.id} {mpi.problem(library, size)}: {mpi.advice(cluster, task.argv)}"
        for task, library in mpi.found_here(plan, plan.tasks)
    ]


def _clock_offset() -> float:
    """Seconds between the machine's clock and one that nobody sets, and that goes on in a sleep."""
    return time.time() - time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
