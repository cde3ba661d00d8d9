"""Link of a client to the launcher process of its run, whichever process that is.

Finds another launcher process where the first one has died, starts one where that is wanted, and
sees to it that a kill which was asked for is carried out.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ..errors import LockError
from ..run.shutdown import CONNECT_SECONDS
from ..run.snapshot import Snapshot
from ..run.states import HostState, RunPhase
from ..store.launcher_lock import acquire, take_over
from ..store.runs import RunFolder
from .control_connection import ControlConnection, connect
from .launcher_process import LauncherProcess

HEARD_SECONDS = 3.0
"""Time for a launcher to act on a kill before another one takes the run over."""
_START_SECONDS = 30.0
"""The same where the launcher process has just been started."""
_KILL_SECONDS = 20.0
"""Time for a kill beyond its deadline before another launcher takes the run over."""
_ALONE_SECONDS = 1.0
"""Without a launcher for so long, the run counts as unsupervised."""
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
        self.alone = False
        """No launcher supervises the run, or is about to."""
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
        if self._link is None and (self._resuming or (self.alone and kill is not None)):
            self._start()
        elif kill is not None and not kill.replaced and self._is_late(kill, told):
            kill.replaced = self._start(force=True)

    def replace(self, died: str, *, end: bool = False) -> None:
        """Has a launcher process started where ours has died; with `end` it ends the run."""
        self._resuming, self.alone, self._died, self._ends = True, False, died, end

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
            self.alone = self._resuming = False
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
        except OSError as error:
            if lock is not None:
                os.close(lock)
            self._resuming = False
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
