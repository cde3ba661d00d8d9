"""Launcher of one run: its loop, log store, records, lock and control socket together.

It runs in a process of its own (`process`); front ends are clients (`client`).
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from ..agent.folders import FolderError
from ..cluster.model import ClusterModel
from ..errors import LauncherError
from ..hosts.transport import allow_connections
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
from .run_loop import Crash, RunLoop

WRITE_SECONDS = 3.0
"""Longest wait for the disk at the end."""
_END_SECONDS = 1.0
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
        self._prompts = PromptQueue(lambda: self._socket.send_prompts())
        self._socket = ControlSocket(
            folder.run_id, self._command, self._prompts, self._views, crash, self._take_stacks
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
            died=died,
            end=end,
            crash=crash,
        )
        self._crash = crash
        self._ends = end
        self._hooks = HookRunner(
            cluster,
            self._run_loop.run.plan,
            folder.path,
            self._run_loop.snapshot,
            self._add_note,
            self._run_loop.hangs.look,
        )
        allow_connections(len(self._run_loop.run.plan.hosts))
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

    def _views(self) -> Views:
        """The state as it is sent to clients."""
        try:
            return self._run_loop.refresh()
        except Exception as error:
            self._crash("snapshot", error)

    def _add_note(self, text: str) -> None:
        self._run_loop.feed(ev.NoteAdded(time.time(), text))

    async def _main(self, first: socket.socket, lock: int | None, on_close: str) -> Snapshot:
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(self._on_error)
        with launcher_lock.held(self.folder.path, lock):
            async with AsyncExitStack() as stack:
                await self._listen(stack)
                await self._socket.add(first, on_close)
                self._hooks.begin()
                await self._run_loop.main()
                await self._hooks.finish(self._run_loop.finish())
                self._run_loop.finish()
                await self._finish_writing()
                snapshot = self._run_loop.finish()
                await self._socket.finish(self._run_loop.run.views)
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
