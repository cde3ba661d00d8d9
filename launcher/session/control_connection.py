"""Client's end of a control socket: sends commands, receives what the launcher process says."""

from __future__ import annotations

import json
import select
import socket
import threading
import time
from contextlib import suppress
from typing import Any

from ..agent.folders import FolderError
from .control_socket import socket_path

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
