"""A run on the launcher's own loop, in the launcher's own thread.

A terminal that stalls blocks Textual's loop for seconds; heartbeats, links and kills must not
notice. So the engine lives here, and a front end only holds a `Session`: it reads immutable
snapshots and logs, and its wishes are handed over without waiting.
"""

from __future__ import annotations

import asyncio
import queue
import subprocess
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..cluster.spec import Cluster
from ..hosts.ssh import Question
from ..ids import TaskId, new_run_id
from ..plan.plan import make_plan
from ..run import events as ev
from ..run.snapshot import Snapshot
from ..store.disk import OtherProcess
from ..store.logs import LogStore
from ..store.metrics import Series
from ..store.metrics_file import MetricsFile
from ..store.run_writer import RunWriter
from ..store.runs import LauncherLock, RunFolder
from .engine import Engine
from .past import Past
from .questions import Questions
from .wishes import open_door

WRITE_SECONDS = 3.0
"""How long the end waits for the disk."""
_END_SECONDS = 1.0

Records = queue.SimpleQueue[dict[str, Any] | None]


class Session:
    """One run, launched or attached to; implements `control.RunControl`."""

    def __init__(
        self,
        folder: RunFolder,
        cluster: Cluster,
        *,
        resume: str | None = None,
        past: Past | None = None,
    ) -> None:
        """Use `launch`, or `attach.StoredRun.attach`, which knows the `past` of a run."""
        self.folder = folder
        self._disk = OtherProcess()
        self.logs = LogStore(folder.path, disk=self._disk)
        self._writer = RunWriter(folder, self._disk, self._broken)
        self._metrics = past.metrics if past else MetricsFile(folder.metrics)
        self._listeners: list[Callable[[Snapshot], None]] = []
        self._records: list[Records] = []
        self._asker: Callable[[Question], Awaitable[str | None]] | None = None
        self._questions = Questions()
        self._engine = Engine(
            cluster,
            folder.run_id,
            self.logs,
            publish=self.publish,
            record=self.record,
            writer=self._writer,
            ask=self.ask,
            resume=resume,
            past=past,
        )
        self._snapshot = self._engine.snapshot()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready = threading.Event()
        self._done = threading.Event()
        self._detach_command: Sequence[str] = ()
        self._thread = threading.Thread(target=self._run, name="launcher", daemon=True)

    @classmethod
    def launch(cls, cluster: Cluster, text: str, *, resume: str | None = None) -> Session:
        """Prepares a new run of a cluster; `text` is its file as it stands."""
        run_id = new_run_id(cluster.name)
        make_plan(cluster, run_id, resume=resume)  # what is wrong shows before a folder is made
        return cls.begin(RunFolder.create(run_id, text, cluster), cluster, resume=resume)

    @classmethod
    def begin(cls, folder: RunFolder, cluster: Cluster, *, resume: str | None = None) -> Session:
        """Prepares a new run whose folder is made already."""
        return cls(folder, cluster, resume=resume)

    # --- life -----------------------------------------------------------------------------

    def start(self) -> None:
        """Starts the launcher's thread, and the run."""
        self._thread.start()
        self._ready.wait()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits for the end: hosts let go, logs collected. False when it has not come yet. Where
        the launcher itself failed, the snapshot says so then."""
        return self._done.wait(timeout)

    def on_question(self, asker: Callable[[Question], Awaitable[str | None]]) -> None:
        """Who answers passphrases and the like; awaited on the launcher's loop."""
        self._asker = asker

    def ask_viewers(self) -> None:
        """Passphrases and the like are asked of whoever looks at the run from elsewhere."""
        self._asker = self._questions

    def detach_with(self, command: Sequence[str]) -> None:
        """The command that takes the run over without a screen when `detach` is called."""
        self._detach_command = tuple(command)

    # --- RunControl -----------------------------------------------------------------------

    @property
    def living(self) -> bool:
        """The run has not ended."""
        return not self._done.is_set()

    def snapshot(self) -> Snapshot:
        """The run as it stands."""
        return self._snapshot

    def subscribe(self, listener: Callable[[Snapshot], None]) -> None:
        """Calls `listener` with each new snapshot, on the launcher's thread."""
        self._listeners.append(listener)

    def records(self) -> Records:
        """A queue that gets every public record from now on, and None at the end."""
        records: Records = queue.SimpleQueue()
        self._records.append(records)
        return records

    def series(self, task: TaskId) -> Series:
        """What the task's metric lines said over time."""
        self._metrics.read()
        return self._metrics.series(task)

    def kill_all(self, *, by_person: bool = True) -> None:
        """Ends everything; a second call at once."""
        self._feed(ev.KillAll(time.time(), by_person))

    def restart(self, task: TaskId, *, hard: bool = False) -> None:
        """Ends a task and starts it again."""
        self._feed(ev.Restart(time.time(), task, hard))

    def signal(self, task: TaskId, name: str) -> None:
        """`TERM` or `KILL` to one task."""
        self._feed(ev.SignalTask(time.time(), task, name))

    def detach(self) -> None:
        """Starts a launcher without a screen; when it has taken over, this one ends."""
        threading.Thread(target=self._detach, name="detach", daemon=True).start()

    def close(self) -> None:
        """The run's own launcher closes all when the run has ended."""

    # --- the launcher's thread ------------------------------------------------------------

    def publish(self, snapshot: Snapshot) -> None:
        """Called by the engine."""
        self._snapshot = snapshot
        for listener in self._listeners:
            listener(snapshot)

    def record(self, record: dict[str, Any]) -> None:
        """Called by the engine: to who listens, and to disk when that takes it."""
        for records in self._records:
            records.put(record)
        self._writer.public(record)

    async def ask(self, question: Question) -> str | None:
        """Called by the engine when only a person can answer."""
        return None if self._asker is None else await self._asker(question)

    def _feed(self, event: ev.Event) -> None:
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # the loop has ended, and the run with it
                loop.call_soon_threadsafe(self._engine.feed, event)

    def _broken(self, error: BaseException) -> None:
        """Something in the thread that records failed."""
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._engine.fail, "events", error)

    def _run(self) -> None:
        error: BaseException | None = None
        loop = asyncio.new_event_loop()
        try:
            loop.run_until_complete(self._main())
        except BaseException as caught:
            error = caught
        try:
            self._snapshot = self._engine.final(error)
            _end(loop)
            self._close_files()
        finally:
            self._ready.set()
            self._done.set()
            for records in self._records:
                records.put(None)
            self.publish(self._snapshot)

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ready.set()
        with LauncherLock(self.folder, self._disk):
            async with open_door(self.folder.run_id, self, self._questions):
                await self._engine.main()
            await self._finish_writing()

    async def _finish_writing(self) -> None:
        """Waits for what is not on disk yet, but not for a disk that does not answer."""
        monitor, journal = self._engine.outputs.monitor, self._writer
        deadline = time.monotonic() + WRITE_SECONDS
        while not (monitor.idle and journal.idle):
            if time.monotonic() > deadline:
                what = f"{journal.unwritten} events and {monitor.unstored} log bytes"
                text = f"{what} are not stored here: the disk does not take them"
                self._engine.feed(ev.NoteAdded(time.time(), text))
                return
            await asyncio.sleep(0.01)

    def _close_files(self) -> None:
        monitor, journal = self._engine.outputs.monitor, self._writer
        monitor.close()
        journal.close()

        def close() -> None:
            while not (monitor.idle and journal.idle):
                time.sleep(0.1)
            self._disk.close()

        if monitor.idle and journal.idle:
            close()
        else:  # when the disk answers again
            threading.Thread(target=close, name="close", daemon=True).start()

    def _detach(self) -> None:
        log = Path(self.folder.path / "launcher.log")
        with log.open("ab") as output:
            process = subprocess.Popen(
                self._detach_command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # the logs have their files already
                stderr=output,
                start_new_session=True,
            )
        status: int | None = None
        with suppress(subprocess.TimeoutExpired):
            status = process.wait(3)
        if status is not None and not self._done.is_set():
            text = f"could not detach: the background launcher ended with {status}; see {log}"
            self._feed(ev.NoteAdded(time.time(), text))


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
