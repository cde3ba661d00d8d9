"""Shell of one run: feeds the state machine with events, carries its instructions out, records what
has changed and has clients told.

It runs in a process of its own (`process`), on the loop that is the control loop: it beats, kills
and hears receipts, so nothing on it reads log text or touches a file. That is done by workers in
threads of their own (`output`, `store.run_writer`), which tell it what they have found. Everything
that waits is a task here that is kept and reaped; everything that decides is in `run`, and nothing
else changes the record. Its parts are made in `assembly`.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

from ..agent.folders import FolderError
from ..cluster.file_model import ClusterModel
from ..crossing import loop_caller
from ..decision import Decision
from ..errors import LauncherError
from ..frozen import frozen
from ..hosts.link import Link
from ..ids import TaskId
from ..plan.run_plan import Plan, unset_names, unset_note
from ..printable import printable
from ..quantities import age, span
from ..run import events as ev
from ..run.machine import RunStateMachine
from ..run.snapshot import Metric, Receipt, RunView, Snapshot
from ..run.stack_groups import Stacks
from ..run.states import AT_WORK, RunPhase
from ..run.views import Views
from ..secret_values import SecretValues
from ..store import launcher_lock
from ..store.logs import LogStore
from ..store.run_writer import RunWriter
from ..store.runs import RunFolder
from ..store.stream import Line, Summary
from ..subprocesses import Workers
from .assembly import Doors, assemble
from .bulkhead import Bulkhead
from .control_socket import ControlSocket
from .executor import Executor
from .hang import TICK
from .prompt_queue import PromptQueue

Crash = Callable[[str, BaseException, Iterable[str]], NoReturn]
"""Ends the launcher; gets what was being done, what nobody expected there, and the story of the
run, line by line."""
WRITE_SECONDS = 3.0
"""Longest wait for the disk at the end."""
_CLOCK_STEP = 1.0
"""Seconds by which a clock that was set differs from one that is kept in step."""
_PAUSE, _LONG_PAUSE = 4.0, 60.0
"""Seconds without a look at the run that are told, the least and the most."""
_STATS = "stats of hosts"
_LOCK = "lock"
RENEW_SECONDS = 10.0
"""Between two looks whether the run is in the index of living runs."""
_UNLISTED = "a run without its folder is not found; going on"
_END_SECONDS = 1.0
_THREADS = "worker"
"""How the names of the loop's threads begin."""
_PACKAGE = __name__.partition(".")[0]
_SAID = (ev.Judged, ev.HangJudged, ev.TaskExited, ev.NoteAdded)
"""Events with words of programs, in which values of secret variables are masked."""


@frozen
class Beginning:
    """How a launcher begins with its run."""

    first: ev.Begin | ev.Attached
    """The machine's first event."""
    died: str = ""
    """What the previous launcher process has died of."""
    ends: bool = False
    """Launchers have died again and again: this one does nothing but end the run."""
    kills: bool = False
    """This launcher was started for a kill, which a client is about to order."""


class RunShell:
    """One run, from its files to its clients; everything but `run`, `terminate` and `crash` belongs
    to its loop."""

    _loop: asyncio.AbstractEventLoop | None = None
    _end_is_last = False
    """The end of the stream has been written, and nothing behind it."""

    def __init__(
        self, folder: RunFolder, machine: RunStateMachine, beginning: Beginning, crash: Crash
    ) -> None:
        self._folder, self.machine, self.data = folder, machine, machine.data
        self._beginning, self._crash = beginning, crash
        self._first = machine.handle(beginning.first)
        self._early: list[ev.Event] | None = []
        """Events that came before the run had begun."""
        self._events: deque[ev.Event] = deque()
        """The event that is being handled, and those that have come meanwhile."""
        self._work: set[asyncio.Task[None]] = set()
        self._over = asyncio.Event()
        self._order = Decision()
        """The last order to end the run."""
        names = {name for task in self.data.plan.tasks for name in task.env_from}
        self.secrets = SecretValues({name: os.environ.get(name) for name in names})
        """Values of variables that tasks get from here: no text of a program brings them into the
        record, and so to hooks, notifications and other machines."""
        self.gauges = machine.gauges
        self.links: dict[str, Link] = {}
        self.bulkhead = Bulkhead()
        self._prompts = PromptQueue()
        self._server = ControlSocket(self, folder.run_id, self._prompts)
        opened = folder.opened()
        self.writer = RunWriter(opened, partial(self.crash, "records"))
        doors = Doors(
            self._prompts,
            self.record,
            self.record_metric,
            self.crash,
            attached=self.attached,
            kills=beginning.kills or beginning.ends,
        )
        self.parts = assemble(self, folder, LogStore(opened.path, only_writes=True), doors)
        self._executor = Executor(self, self.parts, self._over)

    @property
    def attached(self) -> bool:
        """An earlier launcher has begun the run."""
        return isinstance(self._beginning.first, ev.Attached)

    # --- life -----------------------------------------------------------------------------

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
            self.crash("run", error)
        finally:
            _end(loop)
            # Their threads may wait for a disk: the process ends without them.
            self.bulkhead.close()
            self.parts.outputs.monitor.close()
            self.writer.close()

    async def _main(self, first: socket.socket, lock: int | None, on_close: str) -> Snapshot:
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(self._on_error)
        with launcher_lock.held(self._folder.path, self._folder.run_id, lock) as held:
            self.spawn(self._renew(held), _LOCK)
            async with AsyncExitStack() as stack:
                await self._listen(stack)
                await self._server.add(first, on_close)
                await self.main()
                if self.parts.hooks is not None:
                    await self.parts.hooks.finish(self.finish())
                    self.finish()
                await self._finish_writing()
                snapshot = self.finish()
                await self._server.finish()
        return snapshot

    async def _renew(self, lock: launcher_lock.LauncherLock) -> None:
        """Keeps the run in the index of living runs, although others clean up there."""
        said = ""
        while True:
            trouble = await asyncio.to_thread(lock.renew, list(self.data.hosts))
            if trouble and trouble != said:
                self.note(f"the index of living runs cannot be written ({trouble}): {_UNLISTED}")
                said = trouble
            await asyncio.sleep(RENEW_SECONDS)

    async def main(self) -> None:
        """Runs until the run has ended and all hosts are released."""
        self.parts.outputs.begin()
        try:
            self._begin()
        except Exception as error:
            self.crash("start", error)
        await self._over.wait()
        await self._close()
        self.finish()

    async def _listen(self, stack: AsyncExitStack) -> None:
        """Accepts clients. A run that is taken up has tasks, and whoever wants to end it is
        connected already: it goes on without others.

        Raises:
            LauncherError: nobody could connect to a new run.
        """
        try:
            await stack.enter_async_context(self._server.listening())
        except (OSError, FolderError) as error:
            if not self.attached:
                raise LauncherError(f"no client could connect to the run: {error}") from error
            self.note(f"no other client can connect: {error}")

    def _begin(self) -> None:
        first, self._first = self._first, []
        early, self._early = self._early or [], None
        for instruction in first:
            self._executor.carry_out(instruction)
        self.publish()
        for event in early:
            self.feed(event)
        if self._beginning.ends:
            self.feed(ev.LauncherFailed(time.time(), self._beginning.died))
        elif self._beginning.died:
            self.note(f"the previous launcher process has died: {self._beginning.died}")
        plan = self.data.plan
        for name, tasks in unset_names(plan.tasks, os.environ).items():
            start = "would be restarted without it" if self.attached else "start without it"
            self.note(f"{unset_note(name, tasks)} {start}")
        if not self.attached:
            self.spawn(self._note_mpi(), "look for MPI")
        if not self.data.awaits_nodes:
            self.parts.hosts.connect()
        parts = self.parts
        if parts.allocation is not None and (self.data.awaits_nodes or self.data.nodes):
            self.spawn(parts.allocation.supervise(), "allocation")
        if parts.hooks is not None:
            parts.hooks.begin()
        self.spawn(self._poll_stats(), _STATS)
        self.spawn(parts.disk.watch(parts.outputs, self.writer), "disk")
        self.spawn(self._watch(), "clock")

    async def _poll_stats(self) -> None:
        """Asks hosts for their figures: nice to have, and no reason to end anything."""
        try:
            await self.parts.stats.poll()
        except Exception as error:
            self.note(f"{_STATS} have stopped: {error!r}")

    async def _note_mpi(self) -> None:
        """Notes programs of an MPI library, to which `mpi-like` gives no rank, and each `mpirun`
        that several tasks start."""
        for text in await asyncio.to_thread(_mpi_notes, self.data.cluster, self.data.plan):
            self.note(text)

    async def _close(self) -> None:
        self._executor.stop_timers()
        for part in (self.parts.preparation, self.parts.hosts):
            with suppress(Exception):  # nothing of the run depends on it any more
                await part.aclose()
        rest = list(self._work)
        for task in rest:
            task.cancel()
        if rest:
            await asyncio.wait(rest, timeout=1.0)

    async def _finish_writing(self) -> None:
        """Waits for what is not on disk yet, but not for a disk that does not answer."""
        monitor, writer = self.parts.outputs.monitor, self.writer
        deadline = time.monotonic() + WRITE_SECONDS
        while not (monitor.idle and writer.idle):
            if time.monotonic() > deadline:
                what = f"{writer.unwritten} events and {monitor.unstored} log bytes"
                self.note(f"{what} could not be stored: the disk here does not answer")
                return
            await asyncio.sleep(0.01)

    # --- what parts ask for ---------------------------------------------------------------

    def feed(self, event: ev.Event) -> None:
        """Gives the run an event and does what it says; what is recorded comes after that. One that
        comes meanwhile waits: its instructions are never carried out among another's."""
        if self._early is not None:
            self._early.append(event)
            return
        self._events.append(event)
        if len(self._events) > 1:
            return
        while self._events:
            self._handle(self._events[0])
            self._events.popleft()

    def _handle(self, event: ev.Event) -> None:
        parts = self.parts
        try:
            match event:
                case ev.KillAll(force=True):
                    parts.teardown.force()
                    parts.gpus.give_up()
                    if parts.allocation is not None and self.data.releasing:
                        parts.allocation.force()
                case ev.HostLost() | ev.TaskExited() if parts.allocation is not None:
                    parts.allocation.poll_soon()
                case ev.HostUp(host=host) if not self.attached:
                    parts.preparation.expect_files(host)
            if isinstance(event, _SAID):
                event = self._masked(event)
            # Whoever ends the run himself does not ask why it ended.
            at_work = self.data.phase in AT_WORK
            if at_work and isinstance(event, ev.TaskExited) and event.status != 0:
                parts.gpus.look(self.data.tasks[event.task].host)
            for instruction in self.machine.handle(event):
                self._executor.carry_out(instruction)
            if isinstance(event, ev.KillAll):
                parts.outputs.tell_now()
            self.publish()
            if self.attached and isinstance(event, ev.TaskStarted):
                parts.outputs.await_line(event)
        except Exception as error:
            self.crash(type(event).__name__, error)

    def _masked(self, event: ev.Event) -> ev.Event:
        """The event without values of secret variables in what programs have said."""
        mask = self.secrets.mask
        match event:
            case ev.Judged(verdict=verdict) | ev.HangJudged(verdict=verdict) if verdict:
                evidence = tuple(replace(one, text=mask(one.text)) for one in verdict.evidence)
                masked = replace(verdict, text=mask(verdict.text), evidence=evidence)
                return replace(event, verdict=masked)
            case ev.TaskExited(tail=tail) if tail:
                return replace(event, tail=tuple(mask("\n".join(tail)).split("\n")))
            case ev.NoteAdded(text=text):
                return replace(event, text=mask(text))
        return event

    def note(self, text: str) -> None:
        """Tells whoever follows the run."""
        self.feed(ev.NoteAdded(time.time(), printable(text)))

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Starts work that is named, kept and reaped."""
        task = asyncio.create_task(work, name=name)
        self._work.add(task)
        task.add_done_callback(self._reap)
        return task

    def _reap(self, task: asyncio.Task[None]) -> None:
        self._work.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.crash(task.get_name(), error)

    def publish(self) -> None:
        """Records what is different now, and has clients told."""
        try:
            records = self.data.pop_changed(time.time())
            for record in records:
                self.record(record)
            # A client that hears nothing of a kill takes the launcher for dead.
            self._server.changed(any(isinstance(record, RunView | Receipt) for record in records))
        except Exception as error:
            self.crash("records", error)

    def record(self, line: Line) -> None:
        """Writes a record, unless the run is another launcher's by now."""
        self._end_is_last = False
        if not self.data.run.taken_by:
            self.writer.put(line)

    def record_metric(self, metric: Metric, heard: float) -> None:
        """Writes a metric line, which was heard at that moment of the clock that nobody sets, and
        has clients told of its task."""
        self.record(metric)
        self.parts.hangs.observe(metric, heard)
        self._server.changed()

    def crash(self, where: str, error: BaseException) -> NoReturn:
        """Ends the launcher for what nobody expected; in any thread."""
        self._crash(where, error, self.machine.story())

    def _on_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """What was raised in a callback, where nobody awaits it. What a library raises in its own
        is a matter of that connection."""
        error = context.get("exception")
        if error is not None and "handle" in context and _is_ours(error):
            self.crash("callback", error)
        loop.default_exception_handler(context)

    # --- clients --------------------------------------------------------------------------

    def command(self, event: ev.Event) -> None:
        """Carries out what a client wants; a launcher that ends the run does that already.

        Raises:
            KeyError: the run has no such task.
        """
        if self._beginning.ends:
            return
        match event:
            case ev.Restart(task=task) | ev.SignalTask(task=task):
                self.data.plan.task(task)
                if isinstance(event, ev.Restart):
                    self.spawn(self.parts.preparation.note_old_files(task), f"files of {task}")
            case ev.KillAll(force=force):
                self._order.is_new()
                if force and self.parts.hooks is not None:
                    self.parts.hooks.stop()
        self.feed(event)

    async def take_stacks(self, tasks: tuple[TaskId, ...] | None) -> Stacks:
        """Where these tasks are, or all; of all also for which one the others probably wait.

        Raises:
            KeyError: the run has no such task.
        """
        for task in tasks or ():
            self.data.plan.task(task)
        found = await self.parts.stacks.take(tasks)
        if tasks is None and found.verdict is None and self.data.phase in AT_WORK:
            found = replace(found, verdict=await self.parts.hangs.judge_look(found))
        return found

    def terminate(self) -> None:
        """Ends everything because this process was told to end; safe in a signal handler."""
        if self._loop is not None:
            loop_caller(self._loop)(self._terminate)

    def _terminate(self) -> None:
        # A run that has ended waits for nothing any more: not where the same signal, to all
        # processes of a service, has just ended it through a client.
        again = self._order.is_new() and self.data.phase is RunPhase.ENDED
        self.command(ev.KillAll(time.time(), by_person=False, force=again))

    # --- what others see ------------------------------------------------------------------

    def refresh(self) -> Views:
        """The views, with figures that nobody tells of but that change with the time."""
        try:
            staging = self.data.phase is RunPhase.STAGING
            self.gauges.waiting(self.parts.preparation.describe_waiting() if staging else None)
            self.parts.stats.note_heard()
        except Exception as error:
            self.crash("snapshot", error)
        return self.data

    def snapshot(self) -> Snapshot:
        """The run as it stands."""
        return self.refresh().snapshot()

    def finish(self) -> Snapshot:
        """The run at its end, which is recorded, with what was said since it was recorded last."""
        final = self.snapshot()
        if not final.taken_by and not self._end_is_last:
            self.data.flush_figures()
            self.publish()
            self.record(Summary.of(final, time.time()))
            self._end_is_last = True
        return final

    async def _watch(self) -> None:
        """Looks at the clock, and for tasks that have stalled; never ends by itself."""
        offset = _clock_offset()
        while True:
            awake, passed = time.monotonic(), _clock_in_sleep()
            await asyncio.sleep(TICK)
            self._note_pause(time.monotonic() - awake, _clock_in_sleep() - passed)
            by = _clock_offset() - offset
            if abs(by) >= _CLOCK_STEP and self.data.run.ended is None:
                offset += by
                self.feed(ev.ClockSet(time.time(), by))
            if self.data.phase in AT_WORK:
                self.parts.hangs.watch()

    def _note_pause(self, awake: float, passed: float) -> None:
        """Says when nobody has watched over the run for a while that hosts notice: in so much time
        that has `passed` this machine was only so long `awake`."""
        run, lease = self.data.run, self.data.plan.settings.lease
        least = max(_PAUSE, min(lease / 2, _LONG_PAUSE))
        asleep = passed - awake >= least
        if run.ended is not None or not (asleep or awake >= least):
            return
        what = f"this machine was asleep for {age(passed - awake)}"
        if not asleep:
            what = f"this launcher process stood still for {age(awake)}"
        longer = run.detached_lease
        held = longer if run.background else run.lease
        if held is None or longer is None or all(host.local for host in self.data.hosts.values()):
            self.note(what)
            return
        told = f"hosts wait {span(held)} for it"
        if not run.background and longer > lease:
            told += f" while a screen shows the run, {span(longer)} once you have detached from it"
        self.note(f"{what}; {told}")


def _is_ours(error: BaseException) -> bool:
    """An error was raised in a callback of this package. A handle that has been cancelled meanwhile
    does not know its callback any more."""
    frames = traceback.walk_tb(error.__traceback__)
    modules = (str(frame.f_globals.get("__name__")) for frame, _ in frames)
    first = next((name for name in modules if name.partition(".")[0] != "asyncio"), "")
    return first.startswith(_PACKAGE)


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


def _mpi_notes(cluster: ClusterModel, plan: Plan) -> Sequence[str]:
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
    return time.time() - _clock_in_sleep()


def _clock_in_sleep() -> float:
    """A clock that nobody sets, and that goes on in a sleep."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
