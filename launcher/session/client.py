"""Client of a run: the one way in which front ends launch, follow and command a run.

State and prompts come over the control socket of the run's launcher process, log text and metrics
from the run's files. A thread follows all of them; commands are sent by the calling thread. When
the launcher process dies the client says so, finds another one if there is, and starts one where a
kill is still to be carried out.
"""

from __future__ import annotations

import os
import queue
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

from ..cluster.rules import OnHangup
from ..cluster.spec import Cluster
from ..errors import TfmuxError
from ..hosts.auth_prompt import PromptHandler
from ..ids import TaskId, new_run_id
from ..run.run import Run
from ..run.snapshot import Snapshot
from ..run.states import Outcome, RunPhase, TaskState
from ..store.launcher_lock import acquire
from ..store.logs import LogStore
from ..store.metrics import Series
from ..store.metrics_file import MetricsFile
from ..store.runs import RunFolder
from . import snapshot_codec
from .attach import StoredRun
from .control_connection import ControlConnection, connect
from .control_socket import PROMPTS
from .launcher_process import LauncherProcess
from .prompts import PromptResponder

OnClose = Literal["kill", "nothing"]
_ON_HANGUP: dict[OnHangup, OnClose] = {OnHangup.KILL: "kill", OnHangup.DETACH: "nothing"}
Events = queue.SimpleQueue[dict[str, Any] | None]

_PACE = 0.1
_HEARD_SECONDS = 3.0
"""How long a launcher may take to act on a kill before another one takes the run over."""
_KILL_SECONDS = 20.0
"""How long beyond its deadline a kill may last before another launcher takes the run over."""
_ALONE_SECONDS = 1.0
"""Without a launcher for so long, the run counts as unsupervised."""
_UNSUPERVISED = "no launcher supervises this run"
_FIRST_SECONDS = 10.0
"""How long the state of a run that has a launcher is waited for."""


@dataclass
class _Kill:
    """A kill that has been asked for."""

    began: float
    by_person: bool
    sent: bool = False
    forced: bool = False
    """Another launcher has taken the run over for it; each one begins the kill anew."""


class RunClient:
    """Implements `control.RunControl`."""

    def __init__(
        self,
        folder: RunFolder,
        snapshot: Snapshot,
        link: socket.socket | None,
        *,
        process: LauncherProcess | None = None,
        on_close: OnClose = "nothing",
        ask: PromptHandler | None = None,
        events: bool = False,
    ) -> None:
        """Use `launch` or `attach`.

        Args:
            folder: the run's.
            snapshot: the run as far as it is known.
            link: the connection to the launcher; None to look for one.
            process: the launcher process, where it was started here.
            on_close: what it means when this process disappears without a word.
            ask: puts SSH prompts of the launcher to a person.
            events: keep public events for `events()`.
        """
        self.folder = folder
        self._told = snapshot
        """The run as the launcher said last."""
        self._snapshot = snapshot
        self._link: ControlConnection | None = None
        self._process = process
        self._on_close: OnClose = on_close
        self._responder = PromptResponder(ask, self._answer) if ask is not None else None
        self._events: Events | None = queue.SimpleQueue() if events else None
        self._logs = LogStore(folder.path, read_only=True)
        self._metrics = MetricsFile(folder.metrics)
        self._listeners: list[Callable[[Snapshot], None]] = []
        self._lost_at: float | None = None
        self._unsupervised = False
        self._starting = False
        """A launcher process that was started here has not said anything yet."""
        self._notes: tuple[str, ...] = ()
        """What this client has to say, behind the launcher's own notes."""
        self._kill: _Kill | None = None
        self.detached = False
        """The run has been left and goes on."""
        self._done = threading.Event()
        self._closed = threading.Event()
        self._heard = threading.Event()
        """A launcher has said something."""
        if link is not None:
            self._begin(link)
        self._thread = threading.Thread(target=self._follow, name="client", daemon=True)
        self._thread.start()

    @classmethod
    def launch(
        cls,
        cluster: Cluster,
        text: str,
        *,
        resume: str | None = None,
        process: LauncherProcess | None = None,
        on_close: OnClose | None = None,
        ask: PromptHandler | None = None,
        events: bool = False,
    ) -> RunClient:
        """Launches a new run of a cluster; `text` is its file as it stands.

        Args:
            process: a launcher process that was started beforehand.
            on_close: None for what the cluster file says (`on_hangup`).

        Raises:
            TfmuxError: the cluster cannot be planned, or the run's folder not be made.
        """
        run_id = new_run_id(cluster.name)
        run = Run(cluster, run_id, time.time(), resume=resume)
        process = process or LauncherProcess()
        try:
            folder = RunFolder.create(run_id, text, cluster)
            lock = acquire(folder.path)
        except BaseException:
            process.cancel()
            raise
        link = process.order({"launch": run_id, "resume": resume}, lock)
        return cls(
            folder,
            run.snapshot(),
            link,
            process=process,
            on_close=on_close or _ON_HANGUP[run.plan.settings.on_hangup],
            ask=ask,
            events=events,
        )

    @classmethod
    def attach(
        cls,
        folder: RunFolder,
        *,
        ask: PromptHandler | None = None,
        events: bool = False,
        on_close: OnClose = "nothing",
    ) -> RunClient:
        """Follows a run that goes on; one without a launcher process gets one.

        Raises:
            TfmuxError: the run's files cannot be read.
        """
        options: dict[str, Any] = {"ask": ask, "events": events, "on_close": on_close}
        lock = acquire(folder.path)
        if lock is not None:
            try:
                snapshot = _resumed(StoredRun(folder).snapshot())
            except BaseException:
                os.close(lock)
                raise
            link = LauncherProcess().order({"attach": folder.run_id}, lock)
            return cls(folder, snapshot, link, **options)
        client = cls(folder, _unknown(folder), None, **options)
        deadline = time.monotonic() + _FIRST_SECONDS
        while time.monotonic() < deadline:
            if client._heard.wait(_PACE):
                return client
            client.resume()  # where the one that held the lock was about to end
        client.close()  # it stands still: another launcher takes the run over
        snapshot = _resumed(StoredRun(folder).snapshot())
        link = LauncherProcess().order({"attach": folder.run_id})
        return cls(folder, snapshot, link, **options)

    # --- RunControl -----------------------------------------------------------------------

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.folder.run_id

    @property
    def logs(self) -> LogStore:
        """The run's logs, for reading."""
        return self._logs

    @property
    def living(self) -> bool:
        """The run has not ended, or its hosts are not released yet."""
        return not self._done.is_set()

    @property
    def unsupervised(self) -> bool:
        """No launcher process supervises the run."""
        return self._unsupervised

    def snapshot(self) -> Snapshot:
        """The run as its launcher says."""
        return self._snapshot

    def subscribe(self, listener: Callable[[Snapshot], None]) -> None:
        """Calls `listener` with each new snapshot, on this client's thread."""
        self._listeners.append(listener)

    def events(self) -> Events:
        """The public events from the client's beginning on, and None at the end."""
        assert self._events is not None, "made without `events`"
        return self._events

    def series(self, task: TaskId) -> Series:
        """What the task's metric lines said over time."""
        return self._metrics.series(task)

    def kill_all(self, *, by_person: bool = True) -> None:
        """Ends everything; a second call at once."""
        kill = self._kill
        if kill is None:
            kill = self._kill = _Kill(time.monotonic(), by_person)
        kill.sent = self._send_kill(kill)

    def restart(self, task: TaskId, *, hard: bool = False) -> None:
        """Ends a task and starts it again."""
        self._command(f"restart {task}", command="restart", task=str(task), hard=hard)

    def signal(self, task: TaskId, name: str) -> None:
        """Sends TERM or KILL to one task."""
        self._command(f"{name} to {task}", command="signal", task=str(task), name=name)

    def resume(self) -> None:
        """Starts a launcher process where none supervises the run."""
        if self._unsupervised:
            self._start_launcher()

    def hang_up(self) -> None:
        """The terminal of this client was closed: does what that means for the run."""
        if self._on_close == "kill":
            self.kill_all(by_person=False)
        else:
            self.detach()

    def detach(self) -> None:
        """Leaves the run, which goes on."""
        self.detached = self.living
        self.stay_alive()
        self.close()

    def stay_alive(self) -> None:
        """Whatever becomes of this client, the run goes on."""
        self._on_close = "nothing"
        self._send({"command": "detach"})

    @property
    def closed(self) -> bool:
        """Nothing is followed any more."""
        return self._closed.is_set()

    def close(self) -> None:
        """Ends this client; what its disappearance means the launcher knows."""
        kill = self._kill
        if kill is not None and not kill.sent:  # the last thing that a page did before it closed
            self._done.wait(2 * _HEARD_SECONDS)
        self._closed.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(1.0)

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until the run has ended and its hosts are released; False after `timeout`."""
        return self._done.wait(timeout)

    # --- sending --------------------------------------------------------------------------

    def _send(self, message: dict[str, Any]) -> bool:
        link = self._link
        return link is not None and link.send(message)

    def _begin(self, link: socket.socket) -> None:
        """Subscribes on a new connection, and repeats a kill that was asked for."""
        self._link = ControlConnection(link)
        self._send(
            {
                "command": "subscribe",
                "on_close": self._on_close,
                "prompts": self._responder is not None,
                "events": self._events is not None,
            }
        )
        if self._kill is not None:
            self._kill.began = time.monotonic()
            self._kill.sent = self._send_kill(self._kill)

    def _send_kill(self, kill: _Kill) -> bool:
        return self._send({"command": "kill_all", "by_person": kill.by_person})

    def _answer(self, ident: int, text: str | None) -> None:
        self._command("the answer", command="answer", id=ident, text=text)

    def _command(self, words: str, **message: Any) -> None:
        if not self._send(message):
            self._note(f"{words}: not sent, no launcher supervises this run")

    # --- its thread -----------------------------------------------------------------------

    def _follow(self) -> None:
        try:
            while not self._closed.is_set() and not self._done.is_set():
                if self._link is None:
                    self._find_launcher()
                    if self._link is None:
                        self._closed.wait(_PACE)
                else:
                    self._receive_checked(self._link)
                self._read_files()
                self._watch_kill()
            self._read_files()
        finally:
            if self._responder is not None:
                self._responder.close()
            if self._link is not None:
                self._link.close()
            if self._events is not None:
                self._events.put(None)

    def _read_files(self) -> None:
        self._logs.refresh()
        self._metrics.read()

    def _receive_checked(self, link: ControlConnection) -> None:
        try:
            self._receive(link)
        except (ValueError, KeyError, TypeError) as error:  # a launcher of another version
            self._note(f"the launcher process sends what this program does not know: {error}")
            self._lose()

    def _receive(self, link: ControlConnection) -> None:
        messages = link.receive(_PACE)
        if messages is None:
            self._lose()
            return
        told, finished = self._told, False
        for message in messages:
            if "changes" in message:
                told = snapshot_codec.apply(told, message["changes"])
            elif "prompts" in message and self._responder is not None:
                self._responder.show(PROMPTS.validate_python(message["prompts"]))
            elif "event" in message and self._events is not None:
                self._events.put(message["event"])
            elif "lost_events" in message:
                self._note(f"{message['lost_events']} events were lost: they were not read in time")
            elif "error" in message:
                self._refused(message["error"])
            finished = finished or "finished" in message
        if told is not self._told:
            self._told, self._starting = told, False
            self._heard.set()
            self._show()
        if finished:
            self._done.set()

    def _show(self) -> None:
        """Hands the newest state over to whoever listens."""
        told = self._told
        tasks = told.tasks
        if self._unsupervised and told.state is not RunPhase.ENDED:
            tasks = tuple(
                view
                if view.state.ended
                else replace(view, state=TaskState.LOST, reason=_UNSUPERVISED)
                for view in tasks
            )
        self._snapshot = replace(told, tasks=tasks, notes=(*told.notes, *self._notes))
        for listener in self._listeners:
            listener(self._snapshot)

    def _note(self, text: str) -> None:
        self._notes += (text,)
        self._show()

    # --- a launcher that has gone ---------------------------------------------------------

    def _lose(self) -> None:
        """The launcher has closed the connection without a word of the end."""
        link, self._link = self._link, None
        if link is not None:
            link.close()
        self._lost_at = time.monotonic()
        if self._responder is not None:
            self._responder.show(())

    def _refused(self, reason: str) -> None:
        """The launcher process could not begin."""
        self._told = replace(
            self._told,
            state=RunPhase.ENDED,
            outcome=Outcome.FAILED,
            exit_code=4,
            ended=time.time(),
            launcher_error=reason,
        )
        self._heard.set()
        self._show()
        self._done.set()

    def _find_launcher(self) -> None:
        """Connects to another launcher of the run; says so where there is none."""
        with suppress(OSError):
            link = connect(self.run_id)
            self._unsupervised, self._lost_at = False, None
            self._begin(link)
            return
        lost_at = self._lost_at = self._lost_at or time.monotonic()
        alone = time.monotonic() - lost_at > _ALONE_SECONDS
        if self._unsupervised or not alone or self.folder.launcher_pid() is not None:
            return
        with suppress(TfmuxError, OSError):  # it may have ended under another launcher
            stored = StoredRun(self.folder).snapshot()
            if stored.state is RunPhase.ENDED:
                self._told = stored
                self._heard.set()
                self._show()
                self._done.set()
                return
        self._unsupervised = True
        self._note(f"{_UNSUPERVISED}: its launcher process has ended{self._last_words()}")

    def _last_words(self) -> str:
        """The end of what the launcher process wrote on standard error."""
        text = ""
        with suppress(OSError):
            text = (self.folder.path / "launcher.log").read_text(errors="replace").strip()
        if not text and self._process is not None:
            text = self._process.errors
        return f"\n{text[-500:]}" if text else ""

    def _watch_kill(self) -> None:
        """Sees to it that a kill is carried out: by another launcher where ours has died or
        stands still."""
        kill = self._kill
        if kill is None or self._told.state is RunPhase.ENDED:
            return
        waited = time.monotonic() - kill.began
        if self._link is None:
            if self._unsupervised:
                self._start_launcher()
            return
        if kill.forced:
            return
        if self._told.state is RunPhase.KILLING:
            deadline = self._told.kill_deadline or time.time()
            late = time.time() > deadline + _KILL_SECONDS and waited > _KILL_SECONDS
        else:
            late = waited > _HEARD_SECONDS and not self._starting
        if late:
            kill.forced = True
            self._start_launcher(force=True)

    def _start_launcher(self, *, force: bool = False) -> None:
        """Starts a launcher process that takes the run up; `force`: although one that stands still
        holds the lock. Where another one has just been started, that is connected to."""
        try:
            lock = None if force else acquire(self.folder.path)
        except OSError as error:
            self._note(f"no launcher process can be started: {error}")
            return
        self._lose()
        self._unsupervised, self._lost_at = False, None
        if lock is not None or force:
            self._starting = True
            self._process = LauncherProcess()
            self._begin(self._process.order({"attach": self.run_id}, lock))


def _resumed(snapshot: Snapshot) -> Snapshot:
    """A stored run that a launcher takes up, although its record may say that it has ended."""
    return replace(
        snapshot,
        state=RunPhase.CONNECTING,
        ended=None,
        outcome=None,
        exit_code=None,
        receipt=None,
        launcher_error="",
    )


def _unknown(folder: RunFolder) -> Snapshot:
    """A run of which nothing is known yet."""
    return Snapshot(folder.run_id, folder.run_id, RunPhase.CONNECTING, (), (), time.time())
