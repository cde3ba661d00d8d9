"""One launcher's channel: frames in, frames out, log bytes by credit.

Control frames go first; log bytes are read from their files only when nothing else waits, a
chunk at a time in turn for all logs, and never past the credit. So a receipt never queues
behind more than one chunk of ours, and nothing piles up in memory when the launcher is slow.
"""

from __future__ import annotations

import errno
import os
import socket
from collections import deque
from typing import Any

from . import wire
from .collect import Archive
from .drain import Log


class OpenLog:
    """A log (or an archive of results) that the launcher reads: `position` is the next byte to
    send."""

    def __init__(self, number: int, log: Log | Archive, position: int) -> None:
        self.number = number
        self.log = log
        self.position = position


class Channel:
    """The descriptors that a bridge has handed over, and what is on its way through them."""

    def __init__(self, link: socket.socket, source: int, sink: int) -> None:
        self.link = link
        self.source = source
        self.sink = sink
        for fd in (source, sink):
            os.set_blocking(fd, False)
        self.decoder = wire.Decoder()
        self.greeted = False
        self.token = ""
        self.leaving = False
        """Its launcher goes because another one comes."""
        self.closed = False
        self.open_logs: dict[int, OpenLog] = {}
        self.credit = 0
        self.sent = 0
        self._control: deque[bytes] = deque()
        self._partial = memoryview(b"")
        self._turn = 0

    def send(self, kind: int, body: dict[str, Any] | None = None) -> None:
        """Queues a control frame."""
        self._control.append(wire.encode(kind, body))

    @property
    def queued(self) -> int:
        """Control frames that wait."""
        return len(self._control)

    def receive(self) -> bytes | None:
        """Bytes that have come; b"" at the end; None when there are none now."""
        try:
            return os.read(self.source, 256 * 1024)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def wants_to_write(self) -> bool:
        """Something can be sent."""
        return bool(self._partial or self._control or self._next_log())

    def pump(self) -> None:
        """Sends what the channel takes now.

        Raises:
            OSError: the channel is closed.
        """
        for _ in range(16):  # then input gets its turn
            if not self._partial:
                chunk = self._control.popleft() if self._control else self._data()
                if not chunk:
                    return
                self._partial = memoryview(chunk)
            try:
                written = os.write(self.sink, self._partial)
            except OSError as error:
                if error.errno in (errno.EAGAIN, errno.EWOULDBLOCK):
                    return
                raise
            self._partial = self._partial[written:]

    def close(self) -> None:
        """Lets go of everything; the bridge at the other end of `link` then leaves."""
        self.closed = True
        for fd in (self.source, self.sink):
            os.close(fd)
        self.link.close()

    def _next_log(self) -> OpenLog | None:
        if self.sent >= self.credit:
            return None
        logs = list(self.open_logs.values())
        for step in range(len(logs)):
            log = logs[(self._turn + step) % len(logs)]
            if log.position < log.log.size:
                self._turn += step + 1
                return log
        return None

    def _data(self) -> bytes:
        log = self._next_log()
        if log is None:
            return b""
        limit = min(wire.DATA_BYTES, self.credit - self.sent, log.log.size - log.position)
        chunk = log.log.pread(limit, log.position)
        if not chunk:
            return b""
        frame = wire.encode_data(log.number, log.position, chunk)
        log.position += len(chunk)
        self.sent += len(chunk)
        return frame
