"""Client of a run: the one way in which front ends launch, follow and command a run.

State and prompts come over the control socket of the run's launcher process, log text and metrics
from the run's files. A thread follows all of them; commands are sent by the calling thread. When
the launcher process dies the client says so, finds another one if there is, and starts one if not:
that takes the run up from its record (`supervision`).
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from ..cluster.choices import OnHangup
from ..decision import Decision
from ..errors import LauncherError, LockError, TfmuxError
from ..history.control import MaskedText
from ..history.stored import StoredRun, find_resumed
from ..ids import TaskId, new_run_id
from ..printable import printable
from ..run.gpus import GpuSample
from ..run.snapshot import HostReceipt, Receipt, Snapshot
from ..run.states import Cause, HostState, Outcome, Purpose, RunPhase
from ..run.views import Record, Views
from ..store.launcher_socket import FLUSH_SECONDS, NOT_UNDERSTOOD, unknown
from ..store.living_runs import read_entry
from ..store.logs import LogStore
from ..store.metrics import MetricsFile, Series
from ..store.runs import RunFolder, removed_text
from ..store.stream import Damage, PublicEvent, decode, plain, printable_values, read_end
from .latch import Latch
from .launcher_link import LauncherLink, ProcessState, attach_order, stopped_text, take_lock
from .launcher_process import LauncherProcess
from .supervision import (
    HEARD_SECONDS,
    START_SECONDS,
    Action,
    ClientState,
    LinkState,
    Seen,
    Supervision,
    Tried,
)

if TYPE_CHECKING:
    from ..cluster.file_model import ClusterModel
    from ..hosts.auth_prompt import PromptHandler
    from ..run.stack_groups import Stacks
    from .prompt_responder import PromptResponder


def resume(views: Views) -> None:
    """Has a stored run go on that a launcher takes up, although its record may have an end."""
    views.receipt = None
    views.update_run(
        state=RunPhase.CONNECTING,
        kill_asked=False,
        ended=None,
        outcome=None,
        exit_code=None,
        taken_by="",
        taken_for=Purpose.UNKNOWN,
        launcher_error="",
    )


def fail(views: Views, reason: str) -> None:
    """Ends a run whose launcher process could not begin, or whose client cannot go on: what became
    of the processes on hosts that were contacted nobody knows."""
    if views.receipt is None:
        doubts = tuple(HostReceipt(host, doubt=reason) for host in views.contacted_hosts)
        begun = any(task.attempt for task in views.tasks.values())
        views.receipt = Receipt(doubts, begun=begun)
    views.update_run(
        state=RunPhase.ENDED,
        outcome=Outcome.FAILED,
        exit_code=4,
        ended=time.time(),
        launcher_error=reason,
    )


OnClose = Literal["kill", "nothing"]
_ON_HANGUP: dict[OnHangup, OnClose] = {OnHangup.KILL: "kill", OnHangup.DETACH: "nothing"}

_PACE, _REST = 0.1, 0.25
"""Seconds between two looks at the files of a run, while logs grow and at rest."""
_LOOK_SECONDS = 1.0
"""Between two looks at the launcher process."""
_UNSUPERVISED = "no launcher supervises this run"
_UNSEEN = (
    "its launcher process has ended, and the run's folder has been removed: how the run ended is "
    "not known here"
)
_FIRST_SECONDS = 10.0
"""Longest wait for the state of a run that has a launcher."""
_CONFIRM_SECONDS = 5.0
"""Longest wait for the hosts' word on the longer lease."""
_MOST_NOTES = 100


class RunClient:
    """Implements `control.RunControl`, which says what its methods do."""

    def __init__(
        self,
        folder: RunFolder,
        views: Views,
        link: socket.socket | None,
        *,
        process: LauncherProcess | None = None,
        on_close: OnClose = "nothing",
        screen: bool = True,
        ask: PromptHandler | None = None,
        on_end: Callable[[], None] | None = None,
    ) -> None:
        """Use `launch` or `attach`.

        Args:
            folder: the run's.
            views: the run as far as it is known; the client's from then on.
            link: the connection to the launcher process; None to look for one.
            process: the launcher process, where it was started here.
            on_close: what it means when this client disappears without a word.
            screen: the run is in the background when this client has left.
            ask: puts SSH prompts of the launcher to a person.
            on_end: called on the client's thread when nothing more is followed.
        """
        self.folder = folder
        self.run_id = folder.run_id
        self.logs = LogStore(folder.path, read_only=True)
        self.detached = False
        """The run has been left and goes on."""
        self.damage = Damage()
        """Parts of the run's record that could not be read, where it was taken up from that."""
        self._leaves_at: float | None = None
        """When a client that detaches has left at the latest."""
        self._metrics = MetricsFile(folder.metrics)
        self._curves = False
        """Somebody wants the metrics: nobody else keeps those of thousands of tasks."""
        self._responder: PromptResponder | None = None
        if ask is not None:
            from .prompt_responder import PromptResponder

            self._responder = PromptResponder(ask, self._answer)
        self._on_end = on_end
        self._listeners: list[Callable[[Snapshot], None]] = []
        self._views = views
        """The run as launcher processes have told it."""
        self._notes: tuple[str, ...] = ()
        """Notes of this client, shown behind those of the launcher processes."""
        self._unsupervised = True
        """No launcher process has told of the run since one was lost, or since the beginning."""
        self._snapshot = views.snapshot()
        """The views and the notes, as listeners have got them last."""
        self._outdated = False
        """Views or notes have changed since the snapshot was made."""
        self._heard = Latch()
        """The snapshot has become one that a launcher process has told, or the last one."""
        self._done = Latch()
        """Listeners have got the last state."""
        self._closed = Latch()
        self._adding = threading.Lock()
        """Guards views, notes and looks."""
        self._looks: dict[int, Future[Any]] = {}
        """Questions to the launcher process whose answers have not come."""
        self._look_id = 0
        self._order = Decision()
        """The last order to end the run, of this client or of another process."""
        self._order_seen = False
        """The launcher process has told of such an order."""
        subscription = {
            "command": "subscribe",
            "on_close": on_close,
            "screen": screen,
            "prompts": ask is not None,
        }
        self._launcher = LauncherLink(
            folder, subscription, self.note, self._connection_lost, link, process
        )
        linked = ClientState.FOLLOWING if process is None else ClientState.STARTING
        self._supervision = Supervision(ClientState.SEARCHING if link is None else linked)
        self._tried = Tried.NOTHING
        """What became of the last action of the supervision."""
        self._standstill = ""
        self._heard_at = self._looked_at = time.monotonic()
        """When the launcher process has said something, and was looked at, last."""
        self._died = ""
        """What the last launcher process died of."""
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
        screen: bool = True,
        ask: PromptHandler | None = None,
        on_end: Callable[[], None] | None = None,
    ) -> RunClient:
        """Launches a new run of a cluster; `text` is its file as it stands. Does not wait for the
        run's state: which hosts and tasks it has, the launcher process tells (`await_state`).

        Args:
            process: a launcher process that was started beforehand.
            on_close: None for what the cluster file says (`on_hangup`).
            screen: the run is in the background when this client has left.

        Raises:
            TfmuxError: `resume` is no run; no folder of the run can be made.
        """
        run_id = new_run_id(cluster.name)
        source = None if resume is None else find_resumed(resume, cluster.name)
        process = process or LauncherProcess()
        try:
            folder = RunFolder.create(run_id, text, cluster)
            try:
                lock = take_lock(folder, new=True)
            except LockError:
                folder.remove()  # nothing was launched from it
                raise
        except BaseException:
            process.cancel()
            raise
        on_close = on_close or _ON_HANGUP[cluster.run.on_hangup]
        order = {"launch": run_id, "resume": source, "on_close": on_close}
        order |= {"folder": str(folder.path)}
        link = process.order(order, lock)
        views = unknown(folder)
        views.update_run(name=cluster.name, resume=source)
        return cls(
            folder,
            views,
            link,
            process=process,
            on_close=on_close,
            screen=screen,
            ask=ask,
            on_end=on_end,
        )

    @classmethod
    def attach(
        cls,
        folder: RunFolder,
        *,
        screen: bool = True,
        ask: PromptHandler | None = None,
        on_end: Callable[[], None] | None = None,
        wait: bool = True,
    ) -> RunClient:
        """Follows a run that goes on; one without a launcher process gets a new one, which imports
        what it needs while we read the run's files. Without `wait` the run may not be known yet.

        Raises:
            LauncherError: the run's launcher process stands still.
            TfmuxError: the run's files cannot be read.
        """
        lock = take_lock(folder)
        if lock is None:
            client = cls(folder, unknown(folder), None, screen=screen, ask=ask, on_end=on_end)
            if not wait or client.await_state(_FIRST_SECONDS):
                return client
            client.close()
            pid = folder.launcher_pid()
            awake = f"continue it (kill -CONT {pid}) or " if pid else ""
            raise LauncherError(
                f"{folder.run_id}: its launcher process does not answer; {awake}end the run with: "
                f"tfmux kill {folder.run_id}"
            )
        return cls._take_up(folder, lock, screen=screen, ask=ask, on_end=on_end)

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
        its launcher process says nothing. Does not wait for the run's state.

        Raises:
            TfmuxError: the run has no launcher process, and its files cannot be read.
        """
        lock = take_lock(folder)
        if lock is None:
            client = cls(folder, unknown(folder), None, screen=False, ask=ask)
        else:
            client = cls._take_up(folder, lock, process=process, screen=False, ask=ask, kills=True)
        client.kill_all(force=force)
        return client

    @classmethod
    def _take_up(
        cls,
        folder: RunFolder,
        lock: int | None,
        *,
        process: LauncherProcess | None = None,
        screen: bool,
        ask: PromptHandler | None,
        on_end: Callable[[], None] | None = None,
        kills: bool = False,
    ) -> RunClient:
        """Follows a run that a launcher process which is started here takes up; it `kills` the
        run where the caller is about to order that."""
        try:
            process = process or LauncherProcess()
        except BaseException:
            if lock is not None:
                os.close(lock)
            raise
        # Both read the files, at the same time; what is wrong with them ends it, too.
        order = attach_order(folder, "nothing") | {"kill": kills}
        link = process.order(order, lock)
        try:
            stored = StoredRun(folder)
            views = stored.views
        except BaseException:
            link.close()
            process.forget()
            raise
        resume(views)
        client = cls(folder, views, link, process=process, screen=screen, ask=ask, on_end=on_end)
        client.damage = stored.damage
        return client

    # --- RunControl -----------------------------------------------------------------------

    @property
    def living(self) -> bool:
        return not self._done.is_set()

    def snapshot(self) -> Snapshot:
        return self._snapshot

    def subscribe(self, listener: Callable[[Snapshot], None]) -> None:
        self._listeners.append(listener)

    def series(self, task: TaskId) -> Series:
        self._want_metrics()
        return self._metrics.series(task)

    def gpu_samples(self, host: str) -> Sequence[GpuSample]:
        self._want_metrics()
        return self._metrics.gpu_samples(host)

    def _want_metrics(self) -> None:
        if not self._curves:
            self._curves = True
            if not self._thread.is_alive():
                self._metrics.read()

    def kill_all(self, *, by_person: bool = True, force: bool = False) -> None:
        self._order.is_new()
        self._launcher.kill_all(by_person, force)

    def press_kill(self) -> None:
        self.kill_all(force=self._is_asked or self._is_over)

    def interrupt(self) -> None:
        """Ends the run because a person has sent this process SIGINT: as `press_kill`, unless it
        is the same decision as an order of a moment ago, by whichever process."""
        again = self._order.is_new() and (self._is_asked or self._is_over)
        self.kill_all(force=again)

    def terminate(self) -> None:
        """Ends the run because this process was told to end; a run that is over waits for no
        results any more, unless it is an order of a moment ago that has ended it."""
        again = self._order.is_new() and self._is_over
        self.kill_all(by_person=False, force=again)

    @property
    def _is_asked(self) -> bool:
        """A person has asked for the end of the run."""
        kill = self._launcher.kill
        return self._views.run.kill_asked or (kill is not None and kill.by_person)

    @property
    def _is_over(self) -> bool:
        return self._views.run.state is RunPhase.ENDED

    def restart(self, task: TaskId, *, hard: bool = False) -> None:
        self._command(f"restart {task}", command="restart", task=str(task), hard=hard)

    def signal(self, task: TaskId, name: str) -> None:
        self._command(f"{name} to {task}", command="signal", task=str(task), name=name)

    def request_stacks(self, tasks: Sequence[TaskId] | None = None) -> Future[Stacks]:
        names = None if tasks is None else list(map(str, tasks))
        return self._ask({"command": "stacks", "tasks": names})

    def _ask(self, message: dict[str, Any]) -> Future[Any]:
        """Asks the launcher process a question that has an answer."""
        future: Future[Any] = Future()
        with self._adding:
            ident = self._look_id = self._look_id + 1
            self._looks[ident] = future
        if not self._launcher.send({**message, "id": ident}):
            self._end_look(ident, LauncherError(f"{self.run_id}: {_UNSUPERVISED}"))
        return future

    def mask_values(self, text: str) -> Future[MaskedText]:
        return self._ask({"command": "mask", "text": text})

    @property
    def standstill(self) -> str:
        return self._standstill

    def detach(self, *, wait: bool = True) -> None:
        self.detached = self.living
        self._leaves_at = time.monotonic() + _CONFIRM_SECONDS
        self.stay_alive()
        if wait:
            self.close()

    def close(self, *, wait: bool = True) -> None:
        """Ends this client; the launcher process knows what that means for the run. One that
        detaches hears first which hosts have confirmed the longer lease."""
        if self._leaves_at is not None:
            if wait and threading.current_thread() is not self._thread:
                self._thread.join(_CONFIRM_SECONDS + FLUSH_SECONDS)
            return
        self._close(wait)

    def _close(self, wait: bool) -> None:
        if self._launcher.unsent:  # the last thing that a page did before it closed
            if not wait:
                threading.Thread(target=self.close, name="close", daemon=True).start()
                return
            self._done.wait(2 * HEARD_SECONDS)
        self._closed.set()
        if not wait:
            return
        if threading.current_thread() is not self._thread:
            self._thread.join(FLUSH_SECONDS if self.detached else 1.0)

    def _has_left(self) -> bool:
        """Whether nothing more is to be heard of a run that is being left."""
        if self._leaves_at is None:
            return False
        seen = self._views.run
        over = seen.state in (RunPhase.KILLING, RunPhase.ENDED)
        confirmed = seen.background and not self._snapshot.unasked_hosts
        late = time.monotonic() > self._leaves_at
        return over or confirmed or late or not self.following

    # --- what only clients have -----------------------------------------------------------

    @property
    def ending(self) -> bool:
        """The run is over or being ended, or this client has ordered that."""
        ordered = self._launcher.kill is not None
        return ordered or self._views.run.state in (RunPhase.KILLING, RunPhase.ENDED)

    @property
    def gave_up(self) -> bool:
        """No launcher process stays alive: the last state is this client's own."""
        return self._supervision.state is ClientState.ALONE

    @property
    def lost_launchers(self) -> int:
        """Launcher processes that have died, as far as this client has noticed."""
        return self._supervision.deaths

    @property
    def following(self) -> bool:
        """A launcher process is connected."""
        return self._launcher.state is not LinkState.GONE

    def doubt(self) -> str:
        """Returns why the run may not go on without this client, by the lock that a living launcher
        process holds; empty where one lives."""
        try:
            pid = self.folder.launcher_pid()
        except LockError as error:
            return str(error)
        if pid is None:
            ended = read_end(self.folder.events, self.run_id) is not None
            return "it has ended meanwhile" if ended else "its launcher process has ended"
        return stopped_text(pid)

    @property
    def closed(self) -> bool:
        """Nothing is followed any more."""
        return self._closed.is_set()

    @property
    def heard(self) -> bool:
        """A launcher process has told of the run, or none ever will."""
        return self._heard.is_set()

    def await_state(self, timeout: float = START_SECONDS) -> bool:
        """Waits until a launcher process has told of the run, with its hosts and tasks; False after
        `timeout`."""
        return self._heard.wait(timeout)

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until the run has ended and its hosts are released; False after `timeout`."""
        return self._done.wait(timeout)

    def hang_up(self) -> None:
        """The terminal of this client was closed: does what that means for the run."""
        if self._launcher.subscription["on_close"] == "kill":
            self.kill_all(by_person=False)
        else:  # nobody is there who would read what hosts say to it
            self.detached = self.living
            self.stay_alive()
            self._close(wait=True)

    def stay_alive(self) -> None:
        """Lets the run go on in the background, whatever becomes of this client."""
        self._launcher.subscription.update(on_close="nothing", screen=False)
        self._launcher.send({"command": "detach"})

    def _answer(self, ident: int, text: str | None) -> None:
        self._command("the answer", command="answer", id=ident, text=text)

    def _command(self, words: str, **message: Any) -> None:
        if not self._launcher.send(message):
            self.note(f"{words}: not sent, {_UNSUPERVISED}")

    def note(self, text: str) -> None:
        """Shows a sentence about the run, behind those of its launcher process."""
        with self._adding:
            if text not in self._notes[-1:]:
                self._notes = (*self._notes, text)[-_MOST_NOTES:]
                self._outdated = True

    # --- its thread -----------------------------------------------------------------------

    def _follow(self) -> None:
        try:
            grown = True
            while not self._closed.is_set() and not self._done.is_set():
                self._supervise()
                self._look_at_process()
                if self.following:
                    self._receive(_PACE if grown else _REST)
                else:
                    self._closed.wait(_PACE)
                self._show()
                if self._has_left():
                    self._closed.set()
                grown = self._read_files()
            self._read_files()
        except Exception as error:  # nobody else would hear of it, and some wait
            self._break_off(error)
        finally:
            if self._responder is not None:
                self._responder.close()
            self._end_looks()
            self._launcher.end()
            if self._on_end is not None:
                self._on_end()

    def _break_off(self, error: Exception) -> None:
        """Ends this client, which cannot go on; whoever waits hears of it."""
        what = f"following the run failed here ({type(error).__name__}: {error})"
        reason = f"{what}; end the run with: tfmux kill {self.run_id}"
        self.note(reason)
        if not self._is_over:
            self._fail(reason)
        self._supervision.end()
        with suppress(Exception):  # a listener's, perhaps
            self._show()
        self._heard.set()
        self._done.set()

    def _read_files(self) -> bool:
        """Reads what is new; False where no log has grown."""
        grown = self.logs.refresh()
        if grown:
            self._tell()
        if self._curves:
            self._metrics.read()
        return grown

    def _receive(self, seconds: float) -> None:
        try:
            self._handle(self._launcher.receive(seconds))
        except NOT_UNDERSTOOD as error:  # a launcher of another version
            self.note(
                f"the launcher process sent a message that this version does not know: {error}"
            )
            self._launcher.close()

    def _look_at_process(self) -> None:
        """Looks, once a second, whether the launcher process stands still."""
        now = time.monotonic()
        if now - self._looked_at < _LOOK_SECONDS:
            return
        self._looked_at = now
        silent = not self._heard.is_set() and now - self._heard_at > HEARD_SECONDS
        process = self._launcher.find_process() if self.following else ProcessState()
        named = f"its launcher process (pid {process.pid})"
        text = ""
        if process.stopped:
            text = stopped_text(process.pid)
        elif silent and process.pid:
            text = f"{named} has said nothing for {now - self._heard_at:.0f} s"
        elif silent:
            text = f"no launcher process has answered for {now - self._heard_at:.0f} s"
        if text != self._standstill:
            self._standstill, self._outdated = text, True

    def _handle(self, messages: list[dict[str, Any]]) -> None:
        if messages:
            self._heard_at = time.monotonic()
        for message in messages:
            if "changed" in message:
                self._take([decode(record) for record in message["changed"]])
            elif "prompts" in message and self._responder is not None:
                self._responder.show_records(message["prompts"])
            elif "id" in message:
                self._end_look(message["id"], _answer_in(message))
            elif "disconnected" in message:
                self.note(f"the launcher process ended the connection: {message['disconnected']}")
                self._closed.wait(_PACE)  # more clients than are served displace each other
            elif "error" in message:
                self._fail(str(message["error"]))
                self._supervision.end()
            elif "finished" in message:
                self._supervision.end()
                self._change()

    def _take(self, records: list[Any]) -> None:
        with self._adding:
            for record in records:
                self._views.take(record)
        if not self._order_seen and self._views.run.cause in (Cause.PERSON, Cause.TERM):
            self._order_seen = True
            if self._launcher.kill is None:
                self._order.is_new()
        self._change()

    def _change(self, *, unsupervised: bool = False) -> None:
        """The views have changed: a launcher process has told of the run, or one was lost."""
        self._unsupervised, self._outdated = unsupervised, True

    def _fail(self, reason: str) -> None:
        with self._adding:
            fail(self._views, reason)
        self._change()

    def records(self, since: float) -> list[PublicEvent]:
        """The last records of the run that are later than a time, as the launcher has sent them,
        oldest first."""
        with self._adding:
            found: list[Record] = [one for one in self._views.records() if one.time > since]
        return [plain(record) for record in sorted(found, key=lambda one: one.time)]

    def _end_look(self, ident: int, result: Stacks | MaskedText | TfmuxError) -> None:
        """Gives whoever asked the answer, or why there is none."""
        with self._adding:
            future = self._looks.pop(ident, None)
        with suppress(InvalidStateError):  # nobody waits any more
            if future is not None:
                if isinstance(result, TfmuxError):
                    future.set_exception(result)
                else:
                    future.set_result(result)

    def _end_looks(self) -> None:
        """The launcher that was asked says nothing more."""
        for ident in list(self._looks):
            self._end_look(ident, LauncherError(f"{self.run_id}: its launcher process has gone"))

    def _connection_lost(self) -> None:
        self._end_looks()
        if self._responder is not None:
            self._responder.show(())

    def _show(self) -> None:
        """Hands the newest state over to whoever listens."""
        if not self._outdated:
            return
        with self._adding:
            self._outdated = False
            seen = self._views.snapshot()
            notes = (*seen.notes, *self._notes)
        if self._unsupervised and seen.state is not RunPhase.ENDED:
            seen = seen.with_lost_tasks(_UNSUPERVISED)
        self._snapshot = replace(seen, notes=notes)
        if not self._unsupervised:
            self._heard.set()
        self._tell()
        if self._supervision.state in (ClientState.ALONE, ClientState.OVER):
            self._done.set()

    def _tell(self) -> None:
        for listener in self._listeners:
            listener(self._snapshot)

    # --- supervision of its launcher process ----------------------------------------------

    def _supervise(self) -> None:
        """Does what is to be done about the launcher process."""
        tried, deaths = self._tried, self._supervision.deaths
        action = self._supervision.step(time.monotonic(), self._look())
        if self._supervision.deaths > deaths:
            self._mourn(action)
        self._tried = Tried.NOTHING
        match action:
            case Action.CONNECT:
                self._tried = self._launcher.connect()
            case Action.START | Action.START_LAST | Action.TAKE_OVER:
                self._show()  # before the next one tells of the run, which may be at once
                self._tried = self._launcher.start(
                    self._died,
                    end=action is Action.START_LAST,
                    take_over_run=action is Action.TAKE_OVER,
                )
            case Action.READ_END:
                with self._adding:
                    self._views = StoredRun(self.folder).views
                self._change()
            case Action.LEAVE:
                self._leave()
            case Action.GIVE_UP:
                way = f"end the run with: tfmux kill {self.run_id}"
                self.note(f"no launcher process stays alive; {way}")
                self._fail(self._launcher.refusal if tried is Tried.FAILED else self._died)

    def _leave(self) -> None:
        """Ends with what a launcher process has told, which ended when the folder of the run had
        been removed; one that ends by itself takes the run out of the index."""
        if not self._is_over:
            entry = None
            with suppress(OSError):
                entry = read_entry(self.run_id)
            if entry is not None:
                self._fail(removed_text(self.run_id, entry.hosts, living=False))
                return
            self.note(_UNSEEN)
            with self._adding:
                self._views.update_run(state=RunPhase.ENDED, ended=time.time(), exit_code=4)
        self._change()

    def _mourn(self, action: Action) -> None:
        """Says that the launcher process has died, of what, and what comes next."""
        words, count = self._launcher.last_words(), self._supervision.recent
        died = f"{_UNSUPERVISED}: its launcher process has ended{words and f': {words}'}"
        self._died = words or "it was killed"
        if action is Action.START:
            self.note(f"{died}; starting another")
        else:
            self._died += f" ({count} times)"
        if action is Action.START_LAST:
            self.note(f"{died}; starting the last one, which ends the run")
        self._change(unsupervised=True)

    def _folder_is_gone(self) -> bool:
        with suppress(OSError):  # a disk that does not say so has it still
            return not self.folder.is_there
        return False

    def _look(self) -> Seen:
        views, kill = self._views, self._launcher.kill is not None
        hosts = views.hosts.values() if kill else ()
        return Seen(
            views.run,
            self._launcher.state,
            self._tried,
            lock=self._launcher.look_at_lock,
            stopped=lambda: self._launcher.find_process().stopped,
            over=lambda: read_end(self.folder.events, self.run_id) is not None,
            gone=self._folder_is_gone,
            kill=kill,
            connecting=any(host.state is HostState.CONNECTING for host in hosts),
            wall=time.time(),
        )


def _answer_in(message: dict[str, Any]) -> Stacks | MaskedText | TfmuxError:
    """The stacks or the text in a message of a launcher process, or why there are none."""
    if "masked" in message:
        unknown, short = (tuple(map(str, message[key])) for key in ("unknown", "short"))
        return MaskedText(str(message["masked"]), unknown, short)
    if "stacks" in message:
        from ..run.stack_groups import stacks_type  # of which only those know who ask

        return stacks_type().validate_python(printable_values(message["stacks"]))
    return LauncherError(printable(str(message["error"]), 1000))
