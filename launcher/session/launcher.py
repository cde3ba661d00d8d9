"""Launcher of one run: its loop, log store, records, lock and control socket together.

It runs in a process of its own (`process`); front ends are clients (`client`).
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from contextlib import AsyncExitStack, suppress

from ..agent.folders import FolderError
from ..cluster.model import ClusterModel
from ..hosts.open_files import allow_connections
from ..ids import TaskId
from ..plan.plan import Resume
from ..run import events as ev
from ..run.snapshot import Snapshot
from ..run.stacks import Stacks
from ..run.states import RunPhase
from ..run.views import Views
from ..store import launcher_lock
from ..store.logs import LogStore
from ..store.run_writer import RunWriter
from ..store.runs import RunFolder
from .attach import StoredRun
from .control_socket import ControlSocket
from .hooks import HookRunner
from .prompts import PromptQueue
from .run_loop import RunLoop

WRITE_SECONDS = 3.0
"""Longest wait for the disk at the end."""
_END_SECONDS = 1.0


class Launcher:
    """One run, from its files to its clients; everything but `run` belongs to its loop."""

    def __init__(
        self,
        folder: RunFolder,
        cluster: ClusterModel,
        *,
        resume: Resume | None = None,
        past: StoredRun | None = None,
    ) -> None:
        """`past` is that of a run which an earlier launcher has begun."""
        self.folder = folder
        self._taken_up = past is not None
        self.logs = LogStore(folder.path, only_writes=True)
        self._writer = RunWriter(folder, self._broken)
        self._prompts = PromptQueue(lambda: self._socket.send_prompts())
        self._socket = ControlSocket(
            folder.run_id, self._command, self._prompts, self._views, self._take_stacks
        )
        self._run_loop = RunLoop(
            cluster,
            folder.run_id,
            self.logs,
            publish=self._socket.changed,
            observe=lambda line: self._hooks.observe(line),
            writer=self._writer,
            ask=self._prompts,
            resume=resume,
            past=past,
        )
        self._hooks = HookRunner(
            cluster, self._run_loop.run.plan, folder.path, self._snapshot, self._add_note
        )
        allow_connections(len(self._run_loop.run.plan.hosts))
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, first: socket.socket, lock: int | None, *, on_close: str) -> Snapshot:
        """Runs the run to its end, on a loop of its own; returns the last snapshot.

        Args:
            first: the connection of the client that has started this process.
            lock: a descriptor that holds the run's lock.
            on_close: what it means when that client disappears (`control_socket`).
        """
        loop = asyncio.new_event_loop()
        try:
            return loop.run_until_complete(self._main(first, lock, on_close))
        finally:
            _end(loop)
            # Their threads may wait for a disk: the process ends without them.
            self._run_loop.outputs.monitor.close()
            self._writer.close()

    def _command(self, event: ev.Event) -> None:
        """Carries out what a client wants.

        Raises:
            KeyError: the run has no such task.
        """
        if isinstance(event, ev.Restart | ev.SignalTask):
            self._run_loop.run.task(event.task)
        ended = self._run_loop.run.phase is RunPhase.ENDED
        if isinstance(event, ev.KillAll) and event.force and ended:
            self._hooks.stop()
        self._run_loop.feed(event)

    async def _take_stacks(self, tasks: tuple[TaskId, ...] | None) -> Stacks:
        """Where these tasks stand, or all.

        Raises:
            KeyError: the run has no such task.
        """
        for task in tasks or ():
            self._run_loop.run.task(task)
        return await self._run_loop.stacks.take(tasks)

    def terminate(self) -> None:
        """Ends everything because this process was told to end; safe in a signal handler."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._terminate)

    def _terminate(self) -> None:
        ended = self._run_loop.run.phase is RunPhase.ENDED  # then nothing is waited for any more
        self._command(ev.KillAll(time.time(), by_person=False, force=ended))

    # --- its loop -------------------------------------------------------------------------

    def _views(self) -> Views | None:
        """The state as it is sent to clients; None if it cannot be made."""
        try:
            return self._run_loop.refresh()
        except Exception as error:
            self._run_loop.fail("snapshot", error)
            return None

    def _snapshot(self) -> Snapshot | None:
        views = self._views()
        return None if views is None else views.snapshot()

    def _add_note(self, text: str) -> None:
        self._run_loop.feed(ev.NoteAdded(time.time(), text))

    def _broken(self, error: BaseException) -> None:
        """Something in the thread that writes the records failed."""
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._run_loop.fail, "events", error)

    async def _main(self, first: socket.socket, lock: int | None, on_close: str) -> Snapshot:
        self._loop = asyncio.get_running_loop()
        error: BaseException | None = None
        with launcher_lock.held(self.folder.path, lock):
            async with AsyncExitStack() as stack:
                add = self._socket.add(first, on_close)
                adding = asyncio.create_task(add, name="first client")
                try:
                    await self._listen(stack)
                    self._hooks.begin()
                    await self._run_loop.main()
                    await self._hooks.finish(self._run_loop.final())
                    self._run_loop.final()
                    await self._finish_writing()
                except Exception as caught:
                    error = caught
                    await self._hooks.finish(self._run_loop.final(error))
                await adding
                snapshot = self._run_loop.final(error)
                await self._socket.finish(self._run_loop.run.views)
        return snapshot

    async def _listen(self, stack: AsyncExitStack) -> None:
        """Accepts clients. A run that is taken up has tasks, and whoever wants to end it is
        connected already: it goes on without others."""
        try:
            await stack.enter_async_context(self._socket.listening())
        except (OSError, FolderError) as error:
            if not self._taken_up:
                raise
            self._add_note(f"no other client can connect: {error}")

    async def _finish_writing(self) -> None:
        """Waits for what is not on disk yet, but not for a disk that does not answer."""
        monitor, writer = self._run_loop.outputs.monitor, self._writer
        deadline = time.monotonic() + WRITE_SECONDS
        while not (monitor.idle and writer.idle):
            if time.monotonic() > deadline:
                what = f"{writer.unwritten} events and {monitor.unstored} log bytes"
                text = f"{what} are not stored here: the disk does not take them"
                self._run_loop.feed(ev.NoteAdded(time.time(), text))
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
    threads = [t for t in threading.enumerate() if t.name.startswith("asyncio_")]
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
