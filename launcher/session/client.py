"""Client of a run: the one way in which front ends launch, follow and command a run.

State and prompts come over the control socket of the run's launcher process, log text and metrics
from the run's files. A thread follows all of them; commands are sent by the calling thread. When
the launcher process dies the client says so, finds another one if there is, and starts one if not:
that takes the run up from its record.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal

from ..cluster.choices import OnHangup
from ..cluster.model import ClusterModel
from ..errors import LauncherError, LockError, TfmuxError
from ..hosts.auth_prompt import PromptHandler
from ..ids import TaskId, new_run_id
from ..printable import printable
from ..run.run import RunStateMachine
from ..run.snapshot import Snapshot
from ..run.stacks import STACKS, Stacks
from ..run.states import RunPhase
from ..run.views import Record, Views
from ..store.logs import LogStore
from ..store.metrics import Series
from ..store.metrics_file import MetricsFile
from ..store.runs import RunFolder
from ..store.stream import PublicEvent, decode, plain, printable_values
from .attach import StoredRun, find_resumed
from .client_snapshots import failed, resumed, unknown
from .control_connection import FLUSH_SECONDS
from .control_socket import PROMPTS
from .launcher_link import HEARD_SECONDS, LauncherLink, take_lock
from .launcher_process import LauncherProcess
from .prompts import PromptResponder

OnClose = Literal["kill", "nothing"]
_ON_HANGUP: dict[OnHangup, OnClose] = {OnHangup.KILL: "kill", OnHangup.DETACH: "nothing"}

MOST_RESTARTS = 3
"""Launcher processes of a run that are started in the place of those that have died, within
`RESTART_SECONDS`; the next one only ends the run."""
RESTART_SECONDS = 600.0
_PACE = 0.1
_UNSUPERVISED = "no launcher supervises this run"
_FIRST_SECONDS = 10.0
"""Longest wait for the state of a run that has a launcher."""
_MOST_NOTES = 100
_NOT_UNDERSTOOD = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


class RunClient:
    """Implements `control.RunControl`, which says what its methods do."""

    def __init__(
        self,
        folder: RunFolder,
        snapshot: Snapshot,
        link: socket.socket | None,
        *,
        process: LauncherProcess | None = None,
        on_close: OnClose = "nothing",
        ask: PromptHandler | None = None,
        on_end: Callable[[], None] | None = None,
    ) -> None:
        """Use `launch` or `attach`.

        Args:
            folder: the run's.
            snapshot: the run as far as it is known.
            link: the connection to the launcher; None to look for one.
            process: the launcher process, where it was started here.
            on_close: what it means when this process disappears without a word.
            ask: puts SSH prompts of the launcher to a person.
            on_end: called on the client's thread when nothing more is followed.
        """
        self.folder = folder
        self.run_id = folder.run_id
        self.logs = LogStore(folder.path, read_only=True)
        self.detached = False
        """The run has been left and goes on."""
        self.lost_launchers = 0
        """Launcher processes that have died, as far as this client has noticed."""
        self._deaths: deque[float] = deque(maxlen=MOST_RESTARTS + 2)
        """When the last ones have died."""
        self.gave_up = False
        """No launcher process stays alive: the state is this client's own."""
        self._metrics = MetricsFile(folder.metrics)
        self._curves = False
        """Somebody wants the metrics: nobody else keeps those of thousands of tasks."""
        self._responder = PromptResponder(ask, self._answer) if ask is not None else None
        self._on_end = on_end
        self._listeners: list[Callable[[Snapshot], None]] = []
        self._views = Views.of(snapshot)
        """All that the launcher has said."""
        self._told = snapshot
        """The run as the launcher said last."""
        self._alone = False
        """No launcher says anything any more."""
        self._notes: tuple[str, ...] = ()
        """This client's own notes, behind those of the launcher."""
        self._snapshot = snapshot
        """All of that together."""
        self._stale = False
        """Something of it has changed since."""
        self._due: list[threading.Event] = []
        """Events that are set when it is no longer stale."""
        self._heard = threading.Event()
        """A launcher has said something."""
        self._done = threading.Event()
        self._closed = threading.Event()
        self._adding = threading.Lock()
        self._looks: dict[int, Future[Stacks]] = {}
        """Questions for stacks whose answers have not come."""
        self._look_id = 0
        subscription = {
            "command": "subscribe",
            "on_close": on_close,
            "prompts": ask is not None,
        }
        self._launcher = LauncherLink(
            folder, subscription, self._note, self._connection_lost, link, process
        )
        self._thread = threading.Thread(target=self._follow, name="client", daemon=True)
        self._thread.start()

    @classmethod
    def launch(
        cls,
        cluster: ClusterModel,
        text: str,
        *,
        resume: str | None = None,
        process: LauncherProcess | None = None,
        on_close: OnClose | None = None,
        ask: PromptHandler | None = None,
        on_end: Callable[[], None] | None = None,
    ) -> RunClient:
        """Launches a new run of a cluster; `text` is its file as it stands.

        Args:
            process: a launcher process that was started beforehand.
            on_close: None for what the cluster file says (`on_hangup`).

        Raises:
            TfmuxError: `resume` is no run; no plan or no folder of the run can be made.
        """
        run_id = new_run_id(cluster.name)
        source = None if resume is None else find_resumed(resume, cluster.name)
        run = RunStateMachine(cluster, run_id, time.time(), resume=source)
        process = process or LauncherProcess()
        try:
            folder = RunFolder.create(run_id, text, cluster)
            try:
                lock = take_lock(folder)
            except LockError:
                folder.remove()  # nothing was launched from it
                raise
        except BaseException:
            process.cancel()
            raise
        on_close = on_close or _ON_HANGUP[run.plan.settings.on_hangup]
        link = process.order({"launch": run_id, "resume": source, "on_close": on_close}, lock)
        snapshot = run.snapshot()
        return cls(
            folder, snapshot, link, process=process, on_close=on_close, ask=ask, on_end=on_end
        )

    @classmethod
    def attach(
        cls,
        folder: RunFolder,
        *,
        process: LauncherProcess | None = None,
        ask: PromptHandler | None = None,
        on_end: Callable[[], None] | None = None,
    ) -> RunClient:
        """Follows a run that goes on; one without a launcher process gets `process`, or a new one,
        which imports what it needs while we read the run's files.

        Raises:
            LauncherError: the run's launcher process stands still.
            TfmuxError: the run's files cannot be read.
        """
        lock = take_lock(folder)
        if lock is None:
            client = cls(folder, unknown(folder), None, ask=ask, on_end=on_end)
            deadline = time.monotonic() + _FIRST_SECONDS
            while time.monotonic() < deadline:
                if client._heard.wait(_PACE):
                    return client
            client.close()
            pid = folder.launcher_pid()
            awake = f"let it go on (kill -CONT {pid}) or " if pid else ""
            raise LauncherError(
                f"{folder.run_id}: its launcher process does not answer; {awake}end the run: "
                f"tfmux kill {folder.run_id}"
            )
        return cls._take_up(folder, lock, process=process, ask=ask, on_end=on_end)

    @classmethod
    def kill(
        cls,
        folder: RunFolder,
        *,
        force: bool = False,
        process: LauncherProcess | None = None,
        ask: PromptHandler | None = None,
    ) -> RunClient:
        """Follows a run that goes on and ends everything of it (with `force` at once), also where
        its launcher process says nothing: what the run's state is nobody waits for.

        Raises:
            TfmuxError: the run has no launcher process, and its files cannot be read.
        """
        lock = take_lock(folder)
        if lock is None:
            client = cls(folder, unknown(folder), None, ask=ask)
        else:
            client = cls._take_up(folder, lock, process=process, ask=ask)
        client.kill_all(force=force)
        return client

    @classmethod
    def _take_up(
        cls,
        folder: RunFolder,
        lock: int | None,
        *,
        process: LauncherProcess | None,
        ask: PromptHandler | None,
        on_end: Callable[[], None] | None = None,
    ) -> RunClient:
        """Follows a run that a launcher process which is started here takes up."""
        try:
            process = process or LauncherProcess()
            snapshot = resumed(StoredRun(folder).run.snapshot())
        except BaseException:
            if process is not None:
                process.cancel()
            if lock is not None:
                os.close(lock)
            raise
        link = process.order({"attach": folder.run_id, "on_close": "nothing"}, lock)
        return cls(folder, snapshot, link, process=process, ask=ask, on_end=on_end)

    # --- RunControl -----------------------------------------------------------------------

    @property
    def living(self) -> bool:
        return not self._done.is_set()

    def snapshot(self) -> Snapshot:
        return self._snapshot

    def subscribe(self, listener: Callable[[Snapshot], None]) -> None:
        """Calls `listener` with each new snapshot, on a thread of the client's: it must only hand
        it over. What came before is in `snapshot`."""
        self._listeners.append(listener)

    def series(self, task: TaskId) -> Series:
        if not self._curves:
            self._curves = True
            if not self._thread.is_alive():
                self._metrics.read()
        return self._metrics.series(task)

    def kill_all(self, *, by_person: bool = True, force: bool = False) -> None:
        self._launcher.kill_all(by_person, force)

    def press_kill(self) -> None:
        kill = self._launcher.kill
        asked = self._snapshot.kill_asked or (kill is not None and kill.by_person)
        self.kill_all(force=asked or self._is_over)

    def terminate(self) -> None:
        """Ends the run because this process was told to end; one that is over waits for nothing
        any more."""
        self.kill_all(by_person=False, force=self._is_over)

    @property
    def _is_over(self) -> bool:
        return self._snapshot.state is RunPhase.ENDED

    def restart(self, task: TaskId, *, hard: bool = False) -> None:
        self._command(f"restart {task}", command="restart", task=str(task), hard=hard)

    def signal(self, task: TaskId, name: str) -> None:
        self._command(f"{name} to {task}", command="signal", task=str(task), name=name)

    def request_stacks(self, tasks: Sequence[TaskId] | None = None) -> Future[Stacks]:
        future: Future[Stacks] = Future()
        with self._adding:
            ident = self._look_id = self._look_id + 1
            self._looks[ident] = future
        names = None if tasks is None else list(map(str, tasks))
        if not self._launcher.send({"command": "stacks", "id": ident, "tasks": names}):
            self._end_look(ident, LauncherError(f"{self.run_id}: {_UNSUPERVISED}"))
        return future

    def detach(self) -> None:
        self.detached = self.living
        self.stay_alive()
        self.close()

    def close(self) -> None:
        """Ends this client; what its disappearance means the launcher knows."""
        if self._launcher.unsent:  # the last thing that a page did before it closed
            self._done.wait(2 * HEARD_SECONDS)
        self._closed.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(FLUSH_SECONDS if self.detached else 1.0)

    # --- what only clients have -----------------------------------------------------------

    @property
    def ending(self) -> bool:
        """The run is over or being ended, or this client has ordered that."""
        ordered = self._launcher.kill is not None
        return ordered or self._snapshot.state in (RunPhase.KILLING, RunPhase.ENDED)

    @property
    def following(self) -> bool:
        """A launcher process is connected."""
        return self._launcher.connected

    @property
    def closed(self) -> bool:
        """Nothing is followed any more."""
        return self._closed.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until the run has ended and its hosts are released; False after `timeout`."""
        return self._done.wait(timeout)

    def hang_up(self) -> None:
        """The terminal of this client was closed: does what that means for the run."""
        if self._launcher.subscription["on_close"] == "kill":
            self.kill_all(by_person=False)
        else:
            self.detach()

    def stay_alive(self) -> None:
        """Lets the run go on, whatever becomes of this client."""
        self._launcher.subscription["on_close"] = "nothing"
        self._launcher.send({"command": "detach"})

    def _answer(self, ident: int, text: str | None) -> None:
        self._command("the answer", command="answer", id=ident, text=text)

    def _command(self, words: str, **message: Any) -> None:
        if not self._launcher.send(message):
            self._note(f"{words}: not sent, {_UNSUPERVISED}")

    def _note(self, text: str) -> None:
        with self._adding:
            if text not in self._notes[-1:]:
                self._notes = (*self._notes, text)[-_MOST_NOTES:]
            self._stale = True

    # --- its thread -----------------------------------------------------------------------

    def _follow(self) -> None:
        try:
            while not self._closed.is_set() and not self._done.is_set():
                if self._launcher.connected or self._find_launcher():
                    self._receive()
                else:
                    self._closed.wait(_PACE)
                self._launcher.watch(self._told)
                self._show()
                self._read_files()
            self._read_files()
        except Exception as error:  # nobody else would hear of it, and some wait
            self._break_off(error)
        finally:
            if self._responder is not None:
                self._responder.close()
            self._end_looks()
            self._launcher.close(flush=True)
            if self._on_end is not None:
                self._on_end()

    def _break_off(self, error: Exception) -> None:
        """Ends this client, which cannot go on; whoever waits hears of it."""
        what = f"following the run failed here ({type(error).__name__}: {error})"
        reason = f"{what}; what is left of it is ended by: tfmux kill {self.run_id}"
        self._note(reason)
        over = self._told.state is RunPhase.ENDED
        self._accept_state(self._told if over else failed(self._told, reason), self._done)
        with suppress(Exception):  # a listener's, perhaps
            self._show()
        self._heard.set()
        self._done.set()

    def _read_files(self) -> None:
        self.logs.refresh()
        if self._curves:
            self._metrics.read()

    def _receive(self) -> None:
        try:
            self._handle(self._launcher.receive(_PACE))
        except _NOT_UNDERSTOOD as error:  # a launcher of another version
            self._note(f"the launcher process sends what this program does not know: {error}")
            self._launcher.close()

    def _handle(self, messages: list[dict[str, Any]]) -> None:
        for message in messages:
            if "changed" in message:
                self._take([decode(record) for record in message["changed"]])
            elif "prompts" in message and self._responder is not None:
                self._responder.show(PROMPTS.validate_python(message["prompts"]))
            elif "id" in message:
                self._end_look(message["id"], _stacks_in(message))
            elif "disconnected" in message:
                self._note(f"the launcher process ended the connection: {message['disconnected']}")
                self._closed.wait(_PACE)  # more clients than are served displace each other
            elif "error" in message:
                self._accept_state(failed(self._told, str(message["error"])), self._done)
            elif "finished" in message:
                self._accept_state(self._told, self._done)

    def _take(self, records: list[Any]) -> None:
        with self._adding:
            for record in records:
                self._views.take(record)
            told = self._views.snapshot()
        self._accept_state(told)

    def records(self, since: float, until: float) -> list[PublicEvent]:
        """What the launcher has said of the run, as it was recorded between two times."""
        with self._adding:
            found: list[Record] = list(self._views.records())
        found = sorted(
            (one for one in found if since < one.time <= until), key=lambda one: one.time
        )
        return [plain(record) for record in found]

    def _end_look(self, ident: int, result: Stacks | TfmuxError) -> None:
        """Gives whoever asked for stacks the answer, or why there is none."""
        with self._adding:
            future = self._looks.pop(ident, None)
        with suppress(InvalidStateError):  # nobody waits any more
            if future is not None and isinstance(result, Stacks):
                future.set_result(result)
            elif future is not None and isinstance(result, TfmuxError):
                future.set_exception(result)

    def _end_looks(self) -> None:
        """The launcher that was asked for stacks says nothing more."""
        for ident in list(self._looks):
            self._end_look(ident, LauncherError(f"{self.run_id}: its launcher process has gone"))

    def _connection_lost(self) -> None:
        self._end_looks()
        if self._responder is not None:
            self._responder.show(())

    def _accept_state(self, told: Snapshot, *due: threading.Event) -> None:
        self._told, self._alone, self._stale = told, False, True
        self._due += (self._heard, *due)

    def _find_launcher(self) -> bool:
        """Connects to another launcher of the run; has one started where there is none."""
        if self._launcher.find() or self._launcher.alone:
            return self._launcher.connected
        with suppress(TfmuxError, OSError):  # it may have ended under another launcher
            stored = StoredRun(self.folder)
            if stored.end is not None:
                self._accept_state(stored.snapshot(), self._done)
                return False
        self.lost_launchers += 1
        self._alone = self._stale = True
        self._replace_launcher(time.monotonic())
        return False

    def _replace_launcher(self, now: float) -> None:
        """Has another launcher process take the run up. Where launchers die again and again the
        last one ends the run; where that one dies, too, this client says how it was."""
        self._deaths.append(now)
        words = self._launcher.last_words()
        count = sum(now - death < RESTART_SECONDS for death in self._deaths)
        died = f"{_UNSUPERVISED}: its launcher process has ended{words and f': {words}'}"
        words = words or "it was killed"
        if count <= MOST_RESTARTS:
            self._note(f"{died}; starting another")
            self._launcher.replace(words)
        elif count == MOST_RESTARTS + 1:
            self._note(f"{died}; starting the last one, which ends the run")
            self._launcher.replace(f"{words} ({count} times)", end=True)
        else:
            self._give_up(f"{words} ({count} times)")

    def _give_up(self, reason: str) -> None:
        """No launcher process stays alive, not even to end the run."""
        self.gave_up = True
        self._launcher.alone = True
        self._note(f"no launcher process stays alive; end the run by: tfmux kill {self.run_id}")
        self._accept_state(failed(self._told, reason), self._done)

    def _show(self) -> None:
        """Hands the newest state over to whoever listens."""
        if not self._stale:
            return
        self._stale = False  # before it is read: another thread may add a note
        told, alone = self._told, self._alone
        if alone and told.state is not RunPhase.ENDED:
            told = told.with_lost_tasks(_UNSUPERVISED)
        self._snapshot = replace(told, notes=(*told.notes, *self._notes))
        for listener in self._listeners:
            listener(self._snapshot)
        while self._due:
            self._due.pop().set()


def _stacks_in(message: dict[str, Any]) -> Stacks | TfmuxError:
    """The stacks in a message of a launcher process, or why there are none."""
    if "stacks" in message:
        return STACKS.validate_python(printable_values(message["stacks"]))
    return LauncherError(printable(str(message["error"]), 1000))
