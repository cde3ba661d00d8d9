"""Client of a run: the one way in which front ends launch, follow and command a run.

State and prompts come over the control socket of the run's launcher process, log text and metrics
from the run's files. A thread follows all of them; commands are sent by the calling thread. When
the launcher process dies the client says so, finds another one if there is, and starts one if not:
that takes the run up from its record.
"""

from __future__ import annotations

import json
import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal

from ..agent.folders import FolderError
from ..cluster.choices import OnHangup
from ..errors import LauncherError, LockError, TfmuxError
from ..hosts.auth_prompt import PromptHandler
from ..ids import TaskId, new_run_id
from ..printable import printable
from ..run.snapshot import HostReceipt, Receipt, Snapshot
from ..run.states import CONNECT_SECONDS, HostState, Outcome, RunPhase
from ..run.views import Record, Views
from ..store.launcher_lock import FollowedError, acquire, take_over
from ..store.logs import LogStore
from ..store.metrics import MetricsFile, Series
from ..store.runs import RunFolder, socket_path
from ..store.stream import PublicEvent, decode, plain, printable_values
from .launcher_process import LauncherProcess
from .prompts import PROMPTS, PromptResponder
from .stored import StoredRun, find_resumed

if TYPE_CHECKING:
    from ..cluster.file_model import ClusterModel
    from ..run.stack_groups import Stacks


_CONNECT_SECONDS = 2.0
_SEND_SECONDS = 2.0
FLUSH_SECONDS = 3.0
"""Longest wait for a launcher to read what was sent."""
_CHUNK = 1 << 18
LONGEST_LINE = 16 << 20
"""Bytes of a message: the whole snapshot of a run with thousands of tasks has a tenth of that."""


def connect(run_id: str) -> socket.socket:
    """Connects to the launcher process of a run.

    Raises:
        OSError: no launcher process listens, or the folder of its socket cannot be used.
    """
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        link.settimeout(_CONNECT_SECONDS)
        link.connect(str(socket_path(run_id)))
    except FolderError as error:
        link.close()
        raise OSError(str(error)) from error
    except OSError:
        link.close()
        raise
    return link


class ControlConnection:
    """Messages over a connected socket. `send` is for any thread, the rest for one."""

    def __init__(self, link: socket.socket) -> None:
        link.settimeout(_SEND_SECONDS)
        self._link = link
        self._rest = b""
        self._sending = threading.RLock()
        """Re-entered by a signal handler that sends a kill."""

    def send(self, message: dict[str, Any]) -> bool:
        """Sends a message; False when the launcher process has gone or does not read."""
        with self._sending:
            try:
                self._link.sendall(json.dumps(message).encode() + b"\n")
            except OSError:
                return False
        return True

    def receive(self, timeout: float) -> list[dict[str, Any]] | None:
        """The messages that came within `timeout` seconds; None when the connection was closed.

        Raises:
            ValueError: a line is not a JSON object, or too long.
        """
        try:
            poller = select.poll()  # `select` takes no descriptor above 1,023
            poller.register(self._link, select.POLLIN)
            data = self._link.recv(_CHUNK) if poller.poll(timeout * 1000) else None
        except OSError:
            data = b""
        if not data:
            return [] if data is None else None
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LONGEST_LINE:
            raise ValueError(f"a line is longer than {LONGEST_LINE} bytes")
        messages = [json.loads(line) for line in lines]
        if not all(isinstance(message, dict) for message in messages):
            raise ValueError("not a JSON object")
        return messages

    def close(self, *, flush: bool) -> None:
        """Closes the connection; with `flush`, when the launcher has read all that was sent.

        A launcher that writes to a socket which has been closed loses what it has not read yet,
        such as that this client detaches.
        """
        deadline = time.monotonic() + FLUSH_SECONDS
        with suppress(OSError):
            if flush:
                self._link.shutdown(socket.SHUT_WR)
            while flush and (left := deadline - time.monotonic()) > 0:
                self._link.settimeout(left)
                flush = bool(self._link.recv(_CHUNK))
        self._link.close()


def resumed(snapshot: Snapshot) -> Snapshot:
    """A stored run that a launcher takes up, although its record may say that it has ended."""
    goes_on = replace(snapshot, state=RunPhase.CONNECTING, kill_asked=False, ended=None)
    return replace(goes_on, outcome=None, exit_code=None, receipt=None, launcher_error="")


def failed(snapshot: Snapshot, reason: str) -> Snapshot:
    """A run whose launcher process could not begin, or whose client cannot go on: of hosts that
    may hold something of it nobody knows what became of that."""
    contacted = [host.name for host in snapshot.hosts if host.contacted]
    begun = any(task.attempt for task in snapshot.tasks)
    unknown = tuple(HostReceipt(host, doubt=reason) for host in contacted)
    return replace(
        snapshot,
        state=RunPhase.ENDED,
        outcome=Outcome.FAILED,
        exit_code=4,
        ended=time.time(),
        launcher_error=reason,
        receipt=snapshot.receipt or Receipt(unknown, begun=begun),
    )


def unknown(folder: RunFolder) -> Snapshot:
    """A run of which nothing is known yet."""
    return Snapshot(folder.run_id, folder.run_id, RunPhase.CONNECTING, time.time())


HEARD_SECONDS = 3.0
"""Time for a launcher to act on a kill before another one takes the run over."""
_START_SECONDS = 30.0
"""The same where the launcher process has just been started."""
_KILL_SECONDS = 20.0
"""Time for a kill beyond its deadline before another launcher takes the run over."""
_ALONE_SECONDS = 1.0
"""Without a launcher for so long, the run counts as unsupervised."""
_RETRY_SECONDS = 30.0
"""For so long after the loss of a launcher the next one is tried again that cannot be started: the
machine has too many processes, or this one too many open files. Nobody has died of that."""
_LONGEST_WORDS = 500
_NOBODY_LISTENS = (FileNotFoundError, ConnectionRefusedError, BlockingIOError, TimeoutError)


@dataclass
class PendingKill:
    """A kill that has been asked for."""

    began: float
    by_person: bool = False
    force: bool = False
    sent: bool = False
    replaced: bool = False
    """Another launcher has taken the run over for it; each one begins the kill anew."""
    told_deadline: float | None = None
    """The deadline that the launcher has named last, by the wall clock."""
    deadline: float = 0.0
    """The same by the monotonic clock, as nobody sets that."""


def take_lock(folder: RunFolder) -> int | None:
    """The lock of a run, as a descriptor; None where a launcher process holds it, or listens
    although locks do not work here.

    Raises:
        LockError: nobody listens, and whether a launcher process lives cannot be seen.
    """
    try:
        return acquire(folder.path)
    except LockError:
        if _listens(folder):
            return None
        raise


def has_launcher(folder: RunFolder) -> bool:
    """A launcher process of the run lives.

    Raises:
        LockError: nobody listens, and whether a launcher process lives cannot be seen.
    """
    try:
        return folder.launcher_pid() is not None
    except LockError:
        if _listens(folder):
            return True
        raise


def _listens(folder: RunFolder) -> bool:
    with suppress(OSError):
        connect(folder.run_id).close()
        return True
    return False


class LauncherLink:
    """Sends to the launcher process and receives from it.

    `send` and `kill_all` are for any thread; all else belongs to the client's, which
    alone connects and starts launchers.
    """

    def __init__(
        self,
        folder: RunFolder,
        subscription: dict[str, Any],
        note: Callable[[str], None],
        lost: Callable[[], None],
        link: socket.socket | None,
        process: LauncherProcess | None,
    ) -> None:
        """`subscription` is sent first on each connection; `note` gets what a person should know,
        `lost` is called when a connection has ended; `link` and `process` are those of a launcher
        process that has been started."""
        self.subscription = subscription
        self.kill: PendingKill | None = None
        """The kill that this client has asked for."""
        self._folder = folder
        self._note = note
        self._lost = lost
        self._process = process
        self._lock = threading.RLock()
        """Orders a kill and a new connection, on which the kill is repeated. Re-entered by a signal
        handler that sends a kill."""
        self._link: ControlConnection | None = None
        self._lost_at: float | None = None
        self._starting = process is not None
        """A launcher process that was started here has not said anything yet."""
        self._resuming = False
        """A launcher process shall be started."""
        self._died, self._ends = "", False
        """What the last one has died of; the next shall do nothing but end the run."""
        self._log = folder.path / "launcher.log"
        self._read_from = 0
        """Where the words begin that the present launcher process has written."""
        with suppress(OSError):
            self._read_from = self._log.stat().st_size
        if link is not None:
            self._begin(link)

    # --- for any thread -------------------------------------------------------------------

    def send(self, message: dict[str, Any]) -> bool:
        """Sends a command; False when there is no launcher process, or it does not read."""
        link = self._link
        return link is not None and link.send(message)

    def kill_all(self, by_person: bool, force: bool) -> None:
        """Ends everything, with `force` at once."""
        with self._lock:
            kill = self.kill = self.kill or PendingKill(time.monotonic())
            kill.by_person = kill.by_person or by_person
            kill.force = kill.force or force
            self._send_kill(kill)

    @property
    def unsent(self) -> bool:
        """A kill has been asked for that no launcher process has got."""
        return self.kill is not None and not self.kill.sent

    # --- for the client's thread ----------------------------------------------------------

    @property
    def connected(self) -> bool:
        """There is a connection, though its other end may have died."""
        return self._link is not None

    def receive(self, timeout: float) -> list[dict[str, Any]]:
        """The messages that came within `timeout` seconds.

        Raises:
            ValueError: what came is no message.
        """
        if self._link is None:
            return []
        messages = self._link.receive(timeout)
        if messages is None:
            self.close()
            return []
        self._starting = self._starting and not messages
        return messages

    def find(self) -> bool:
        """Connects to a launcher process; False where there has been none for a while."""
        try:
            self._begin(connect(self._folder.run_id))
            return True
        except _NOBODY_LISTENS:
            pass
        except OSError as error:
            self._note(f"no launcher process can be connected to: {error}")
        lost_at = self._lost_at = self._lost_at or time.monotonic()
        soon = time.monotonic() - lost_at <= _ALONE_SECONDS
        try:
            return soon or self._resuming or self._folder.launcher_pid() is not None
        except LockError as error:  # whoever starts another one will hear of it, too
            self._note(str(error))
            return False

    def watch(self, told: Snapshot) -> None:
        """Starts another launcher process where ours has died and one is wanted, or where a kill
        is not carried out because ours stands still, or lets nobody connect; `told` is the run as
        the launcher process said last."""
        kill = None if told.state is RunPhase.ENDED else self.kill
        if self._link is None and self._resuming:
            self._start()
        elif kill is not None and not kill.replaced and self._is_late(kill, told):
            kill.replaced = self._start(force=True)

    def replace(self, died: str, *, end: bool = False) -> None:
        """Has a launcher process started where ours has died; with `end` it ends the run."""
        self._resuming, self._died, self._ends = True, died, end

    def last_words(self) -> str:
        """The last line that the launcher process has written on standard error: what it died of.
        Empty if it has written nothing."""
        text = ""
        with suppress(OSError), self._log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(min(self._read_from, size), size - _LONGEST_WORDS))
            self._read_from = size
            text = file.read(_LONGEST_WORDS).decode(errors="replace").strip()
        if not text and self._process is not None:
            text = self._process.errors
        return text.rpartition("\n")[2]

    def close(self, *, flush: bool = False) -> None:
        """Closes the connection, with `flush` when the launcher has read all that was sent."""
        link, self._link = self._link, None
        if link is not None:
            link.close(flush=flush)
            self._lost()

    def _begin(self, link: socket.socket) -> None:
        with self._lock:
            self._expect()
            self._link = ControlConnection(link)
            self.send(self.subscription)
            if self.kill is not None:
                self.kill.began = time.monotonic()
                self._send_kill(self.kill)

    def _expect(self) -> None:
        """There is a launcher, or will be in a moment."""
        with self._lock:
            self._resuming = False
            self._lost_at = None

    def _send_kill(self, kill: PendingKill) -> None:
        order = {"command": "kill_all", "by_person": kill.by_person, "force": kill.force}
        kill.sent = self.send(order)

    def _is_late(self, kill: PendingKill, told: Snapshot) -> bool:
        """The kill should have been acted on, or come to its end, by now."""
        now = time.monotonic()
        waited = now - kill.began
        if told.kill_deadline != kill.told_deadline:
            kill.told_deadline = told.kill_deadline
            kill.deadline = now + (told.kill_deadline or 0.0) - time.time()
        if told.state is not RunPhase.KILLING:
            return waited > HEARD_SECONDS and (waited > _START_SECONDS or not self._begins())
        patience = _KILL_SECONDS
        if any(host.state is HostState.CONNECTING for host in told.hosts):
            patience += CONNECT_SECONDS
        if told.allocation is not None and told.allocation.releasing:
            return False  # it is carried out, and an engine takes its time
        return waited > patience and now > kill.deadline + patience

    def _begins(self) -> bool:
        """The launcher process has been started and has not come to writing its pid down."""
        try:
            return self._starting or self._folder.launcher_pid() == 0
        except LockError:
            return True  # nobody can see it: it gets the time

    def _start(self, *, force: bool = False) -> bool:
        """Starts a launcher process that takes the run up; with `force` after the one has been
        killed that stands still. Where another one has just been started, that is connected to.

        Raises:
            LockError: there may be one, and nobody can see it.
        """
        lock = process = None
        try:
            lock = (take_over if force else acquire)(self._folder.path)
            if force or lock is not None:
                process = LauncherProcess()
        except FollowedError:
            pass  # two launchers would take the hosts from each other
        except OSError as error:
            if lock is not None:
                os.close(lock)
            lost_for = time.monotonic() - (self._lost_at or 0.0)
            self._resuming = self._resuming and lost_for < _RETRY_SECONDS
            self._note(f"no launcher process can be started: {error}")
            return False
        self.close()
        self._expect()
        if process is not None:
            self._starting, self._process = True, process
            on_close = self.subscription["on_close"]
            order = {"attach": self._folder.run_id, "on_close": on_close}
            order |= {"died": self._died, "end": self._ends}
            self._begin(process.order(order, lock))
        return True


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


class ClientState(Enum):
    """What a client knows its run by."""

    FOLLOWING = "following"
    """A launcher process tells of it."""
    LOOKING = "looking"
    """None does: one is looked for, or started."""
    ALONE = "alone"
    """None stays alive: nothing more comes."""
    OVER = "over"
    """The run has ended: nothing more comes."""


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
        self._state = ClientState.LOOKING if link is None else ClientState.FOLLOWING
        self._notes: tuple[str, ...] = ()
        """This client's own notes, behind those of the launcher."""
        self._snapshot = snapshot
        """All of that together."""
        self._stale = False
        """Something of it has changed since."""
        self._heard = threading.Event()
        """A launcher has said something, and listeners know it."""
        self._done = threading.Event()
        """The state is the last one, and listeners know it."""
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
        run_id, now = new_run_id(cluster.name), time.time()
        source = None if resume is None else find_resumed(resume, cluster.name)
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
        on_close = on_close or _ON_HANGUP[cluster.run.on_hangup]
        link = process.order({"launch": run_id, "resume": source, "on_close": on_close}, lock)
        # The launcher makes its plan at the same time.
        from ..run.state import RunData  # of which a kill knows nothing

        data = RunData(cluster, run_id, now, source)
        data.refresh_waiting()
        return cls(
            folder,
            data.snapshot(),
            link,
            process=process,
            on_close=on_close,
            ask=ask,
            on_end=on_end,
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
        except BaseException:
            if lock is not None:
                os.close(lock)
            raise
        # Both read the files, at the same time; what is wrong with them ends it, too.
        link = process.order({"attach": folder.run_id, "on_close": "nothing"}, lock)
        try:
            snapshot = resumed(StoredRun(folder).run.snapshot())
        except BaseException:
            link.close()
            raise
        return cls(folder, snapshot, link, process=process, ask=ask, on_end=on_end)

    # --- RunControl -----------------------------------------------------------------------

    @property
    def living(self) -> bool:
        return not self._done.is_set()

    def snapshot(self) -> Snapshot:
        return self._snapshot

    def subscribe(self, listener: Callable[[Snapshot], None]) -> None:
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
    def gave_up(self) -> bool:
        """No launcher process stays alive: the last state is this client's own."""
        return self._state is ClientState.ALONE

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
        self._accept(self._told if over else failed(self._told, reason), ClientState.OVER)
        with suppress(Exception):  # a listener's, perhaps
            self._show()
        self._heard.set()
        self._done.set()

    def _read_files(self) -> None:
        if self.logs.refresh():
            self._tell()
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
                self._accept(failed(self._told, str(message["error"])), ClientState.OVER)
            elif "finished" in message:
                self._accept(self._told, ClientState.OVER)

    def _take(self, records: list[Any]) -> None:
        with self._adding:
            for record in records:
                self._views.take(record)
            told = self._views.snapshot()
        self._accept(told, ClientState.FOLLOWING)

    def records(self, since: float) -> list[PublicEvent]:
        """The last records of the run that are later than a time, as the launcher has sent them,
        oldest first."""
        with self._adding:
            found: list[Record] = [one for one in self._views.records() if one.time > since]
        return [plain(record) for record in sorted(found, key=lambda one: one.time)]

    def _end_look(self, ident: int, result: Stacks | TfmuxError) -> None:
        """Gives whoever asked for stacks the answer, or why there is none."""
        with self._adding:
            future = self._looks.pop(ident, None)
        with suppress(InvalidStateError):  # nobody waits any more
            if future is not None:
                if isinstance(result, TfmuxError):
                    future.set_exception(result)
                else:
                    future.set_result(result)

    def _end_looks(self) -> None:
        """The launcher that was asked for stacks says nothing more."""
        for ident in list(self._looks):
            self._end_look(ident, LauncherError(f"{self.run_id}: its launcher process has gone"))

    def _connection_lost(self) -> None:
        self._end_looks()
        if self._responder is not None:
            self._responder.show(())

    def _accept(self, told: Snapshot, state: ClientState) -> None:
        self._told, self._state, self._stale = told, state, True

    def _find_launcher(self) -> bool:
        """Connects to another launcher of the run; has one started where there is none."""
        if self._launcher.find():
            return self._launcher.connected
        with suppress(TfmuxError, OSError):  # it may have ended under another launcher
            stored = StoredRun(self.folder)
            if stored.end is not None:
                self._accept(stored.snapshot(), ClientState.OVER)
                return False
        self.lost_launchers += 1
        self._accept(self._told, ClientState.LOOKING)
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
        self._note(f"no launcher process stays alive; end the run by: tfmux kill {self.run_id}")
        self._accept(failed(self._told, reason), ClientState.ALONE)

    def _show(self) -> None:
        """Hands the newest state over to whoever listens."""
        if not self._stale:
            return
        self._stale = False  # before it is read: another thread may add a note
        told, state = self._told, self._state
        if state is ClientState.LOOKING and told.state is not RunPhase.ENDED:
            told = told.with_lost_tasks(_UNSUPERVISED)
        self._snapshot = replace(told, notes=(*told.notes, *self._notes))
        self._tell()
        if state is not ClientState.LOOKING:
            self._heard.set()
        if state in (ClientState.OVER, ClientState.ALONE):
            self._done.set()

    def _tell(self) -> None:
        for listener in self._listeners:
            listener(self._snapshot)


def _stacks_in(message: dict[str, Any]) -> Stacks | TfmuxError:
    """The stacks in a message of a launcher process, or why there are none."""
    if "stacks" in message:
        from ..run.stack_groups import stacks_type  # of which only those know who ask

        return stacks_type().validate_python(printable_values(message["stacks"]))
    return LauncherError(printable(str(message["error"]), 1000))
