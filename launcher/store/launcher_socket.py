"""Socket of a run's launcher process, as clients use it: messages over it, and the run's state."""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import threading
import time
from contextlib import suppress
from typing import Any

from ..agent.folders import FolderError
from ..run.snapshot import RunView
from ..run.states import RunPhase
from ..run.views import Record, Views
from .runs import RunFolder, socket_path
from .stream import decode

_CONNECT_SECONDS = 2.0
_SEND_SECONDS = 2.0
FLUSH_SECONDS = 3.0
"""Longest wait for a launcher process to read what was sent."""
_CHUNK = 1 << 18
LONGEST_LINE = 16 << 20
"""Bytes of a message: the whole state of a run with thousands of tasks has a tenth of that."""
_CREDENTIALS = struct.Struct("3i")
NOT_UNDERSTOOD = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""Errors for a message of a launcher of another version."""


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


def _peer_pid(link: socket.socket) -> int:
    if not hasattr(socket, "SO_PEERCRED"):
        return 0
    with suppress(OSError):
        pid, _, _ = _CREDENTIALS.unpack(
            link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        )
        return 0 if pid == os.getpid() else int(pid)  # of a pair, it is who made it
    return 0


def told_state(folder: RunFolder) -> Views | None:
    """The run as its launcher process tells it now, for whoever does not follow it; None where that
    does not answer."""
    views = unknown(folder)
    try:
        link = ControlConnection(connect(folder.run_id))
    except OSError:
        return None
    try:
        link.send({"command": "subscribe", "on_close": "nothing", "prompts": False})
        deadline = time.monotonic() + _CONNECT_SECONDS
        while (left := deadline - time.monotonic()) > 0:
            messages = link.receive(left)
            if messages is None:
                return None
            for message in messages:
                if "changed" in message:  # the first one has all records
                    for values in message["changed"]:
                        if isinstance(record := decode(values), Record):
                            views.take(record)
                    return views
    except NOT_UNDERSTOOD:  # a launcher of another version
        return None
    finally:
        link.close(flush=False)
    return None


def unknown(folder: RunFolder) -> Views:
    """A run of which nothing is known yet."""
    return Views(RunView(folder.run_id, folder.run_id, RunPhase.CONNECTING, time.time()))


class ControlConnection:
    """Messages over a connected socket. `send` is for any thread, the rest for one."""

    def __init__(self, link: socket.socket) -> None:
        link.settimeout(_SEND_SECONDS)
        self._link = link
        self.peer_pid = _peer_pid(link)
        """The process that listens at the other end, as the kernel says; 0 where it does not."""
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
