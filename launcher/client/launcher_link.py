"""Connection of a client to its run's launcher process, which it starts where there is none."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ..errors import LockError
from ..frozen import frozen
from ..paths import open_regular
from ..store.launcher_lock import FollowedError, take_over
from ..store.launcher_socket import ControlConnection, connect
from ..store.runs import RunFolder
from .launcher_process import LauncherProcess
from .supervision import LinkState, LockState, Tried

_LONGEST_WORDS = 500
_STOPPED = "Tt"
"""States of a process that a signal, or a debugger, has stopped."""
_NOBODY_LISTENS = (FileNotFoundError, ConnectionRefusedError, BlockingIOError, TimeoutError)


def take_lock(folder: RunFolder, *, new: bool = False) -> int | None:
    """The lock of a run, as a descriptor; None where a launcher process holds it, or listens
    although locks do not work here. Nobody can hold that of a `new` run.

    Raises:
        LockError: nobody listens, and whether a launcher process lives cannot be seen.
    """
    try:
        return folder.take_lock(new=new)
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


def attach_order(folder: RunFolder, on_close: str) -> dict[str, Any]:
    """The order with which a launcher process takes a run up."""
    return {"attach": folder.run_id, "folder": str(folder.path), "on_close": on_close}


def _listens(folder: RunFolder) -> bool:
    with suppress(OSError):
        connect(folder.run_id).close()
        return True
    return False


def stopped_text(pid: int) -> str:
    """Says that a launcher process has been stopped; empty where it has not, or is not known."""
    from ..agent import processes  # which few need

    found = processes.read_process(pid) if pid else None
    if found is None or found.state not in _STOPPED:
        return ""
    return f"its launcher process (pid {pid}) is stopped; kill -CONT {pid} lets it go on"


@frozen
class ProcessState:
    """A launcher process, as the kernel sees it."""

    pid: int = 0
    """0 where nobody knows which one it is."""
    stopped: bool = False


@dataclass
class KillOrder:
    """A kill that a client has asked for."""

    by_person: bool = False
    force: bool = False
    sent: bool = False
    """The present launcher process has been sent it."""


class LauncherLink:
    """Sends to the launcher process and receives from it.

    `send` and `kill_all` are for any thread; all else belongs to the client's, which alone connects
    and starts launcher processes.
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
        self.kill: KillOrder | None = None
        """The kill that the client has asked for."""
        self._folder = folder
        self._note = note
        self._lost = lost
        self._process = process
        self._lock = threading.RLock()
        """Orders a kill and a new connection, on which the kill is repeated. Re-entered by a signal
        handler that sends a kill."""
        self._link: ControlConnection | None = None
        self._spoken = False
        """Something has come over the present connection."""
        self.refusal = ""
        """Why a launcher process could not be started."""
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
            kill = self.kill = self.kill or KillOrder()
            kill.by_person = kill.by_person or by_person
            kill.force = kill.force or force
            self._send_kill(kill)

    @property
    def unsent(self) -> bool:
        """A kill has been asked for that no launcher process has been sent."""
        return self.kill is not None and not self.kill.sent

    # --- for the client's thread ----------------------------------------------------------

    def find_process(self) -> ProcessState:
        """The launcher process as the kernel sees it: that of this client, of its connection, or
        the lock's holder."""
        from ..agent import processes  # which few need

        pid = self._process.pid if self._process is not None else 0
        if not pid and self._link is not None:
            pid = self._link.peer_pid
        if not pid:
            with suppress(LockError):
                pid = self._folder.launcher_pid() or 0
        found = processes.read_process(pid) if pid else None
        return ProcessState(pid, found is not None and found.state in _STOPPED)

    @property
    def state(self) -> LinkState:
        """The connection, though its other end may have died."""
        if self._link is None:
            return LinkState.GONE
        return LinkState.SPEAKS if self._spoken else LinkState.SILENT

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
        self._spoken = self._spoken or bool(messages)
        return messages

    def connect(self) -> Tried:
        """Connects to the launcher process that listens, if there is one."""
        try:
            self._begin(connect(self._folder.run_id))
        except _NOBODY_LISTENS:
            return Tried.NOTHING
        except OSError as error:
            self._note(f"cannot connect to the launcher process: {error}")
            return Tried.NOTHING
        return Tried.CONNECTED

    def look_at_lock(self) -> LockState:
        """The run's lock; what is wrong with it is noted."""
        try:
            pid = self._folder.launcher_pid()
        except LockError as error:  # whoever starts another one will hear of it, too
            self._note(str(error))
            return LockState.UNKNOWN
        if pid is None:
            return LockState.FREE
        return LockState.HELD if pid else LockState.NEW

    def start(self, died: str, *, end: bool = False, take_over_run: bool = False) -> Tried:
        """Starts a launcher process that takes the run up; `died` is what the one before died of.
        With `end` it ends the run; with `take_over_run` the one that stands still is killed first.

        Raises:
            LockError: there may be one, and nobody can see it.
        """
        lock = process = None
        if take_over_run and self._process is not None:
            # It may not have read its order yet: continued later, it would launch the run.
            self._process.kill()
        try:
            folder = self._folder
            lock = take_over(folder.path, folder.run_id) if take_over_run else folder.take_lock()
            if take_over_run or lock is not None:
                process = LauncherProcess()
        except FollowedError:
            pass  # two launchers would take the hosts from each other
        except OSError as error:
            if lock is not None:
                os.close(lock)
            self.refusal = f"no launcher process can be started: {error}"
            self._note(self.refusal)
            return Tried.FAILED
        self.close()
        if process is None:
            return Tried.FOLLOWED
        self._forget_process()
        self._process = process
        order = attach_order(self._folder, self.subscription["on_close"])
        order |= {"died": died, "end": end, "kill": self.kill is not None}
        self._begin(process.order(order, lock))
        return Tried.STARTED

    def last_words(self) -> str:
        """The last line that the launcher process has written on standard error: what it died of.
        Empty if it has written nothing."""
        text = ""
        with suppress(OSError), open_regular(self._log) as file:
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

    def end(self) -> None:
        """Closes the connection when the launcher has read all that was sent; nothing follows."""
        self.close(flush=True)
        self._forget_process()

    def _forget_process(self) -> None:
        if self._process is not None:
            self._process.forget()
            self._process = None

    def _begin(self, link: socket.socket) -> None:
        with self._lock:
            self._spoken = False
            self._link = ControlConnection(link)
            self.send(self.subscription)
            if self.kill is not None:
                self._send_kill(self.kill)

    def _send_kill(self, kill: KillOrder) -> None:
        order = {"command": "kill_all", "by_person": kill.by_person, "force": kill.force}
        kill.sent = self.send(order)
