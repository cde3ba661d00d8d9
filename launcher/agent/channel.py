"""Channel of a launcher: frames in, frames out, log bytes by credit.

Control frames go first; log bytes are read from their files (in a thread) a few chunks ahead, in
turn for all logs, and never past the credit. So a receipt never queues behind more than one chunk
of ours, and nothing piles up in memory when the launcher is slow.
"""

from __future__ import annotations

import errno
import os
import socket
from collections import deque

from . import wire
from .answers import Answer
from .log_reader import LogReader, OpenLog
from .messages import Message

_AHEAD = 4
"""Frames that wait, and reads that are under way, at most (a read brings up to four frames)."""


class Channel:
    """Descriptors that a bridge has handed over, and what is on its way through them."""

    def __init__(self, link: socket.socket, source: int, sink: int, reader: LogReader) -> None:
        self.link = link
        self.source = source
        self.sink = sink
        for fd in (source, sink):
            os.set_blocking(fd, False)
        self.decoder = wire.Decoder()
        self.admitted = False
        self.token = ""
        self.closed = False
        self.paused = False
        """Nothing is read from it for now."""
        self.open_logs: dict[int, OpenLog] = {}
        self.credit = 0
        self.sent = 0
        self._control: deque[bytes] = deque()
        self._partial = memoryview(b"")
        self._turn = 0
        self._reader = reader
        self._reading = 0
        self._data: deque[tuple[OpenLog, bytes]] = deque()

    def send(self, message: Message) -> None:
        """Queues a control frame."""
        self._control.append(message.encode())

    def answer(self, ident: int | None, answer: Answer) -> None:
        """Queues the answer to a question, unless nobody waits for it."""
        if ident is not None:
            self._control.append(wire.encode(wire.REPLY, {"id": ident, **answer.to_json()}))

    def refuse(self, ident: int | None, error: str) -> None:
        """Queues an error in the place of an answer, unless nobody waits for one."""
        if ident is not None:
            self._control.append(wire.encode(wire.REPLY, {"id": ident, "error": error}))

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
        return bool(self._partial or self._control or self._data)

    @property
    def is_behind(self) -> bool:
        """There is something to be sent, or to be read for it."""
        return bool(self.wants_to_write() or self._reading or self._next_log())

    def pump(self) -> None:
        """Sends what the channel takes now.

        Raises:
            OSError: the channel is closed.
        """
        for _ in range(16):  # then input gets its turn
            if not self._partial:
                self._partial = memoryview(self._next_frame())
                if not self._partial:
                    break
            try:
                written = os.write(self.sink, self._partial)
            except OSError as error:
                if error.errno in (errno.EAGAIN, errno.EWOULDBLOCK):
                    break
                raise
            self._partial = self._partial[written:]
        self._read_ahead()

    def close(self) -> None:
        """Lets go of everything; the bridge at the other end of `link` then leaves."""
        self.closed = True
        for fd in (self.source, self.sink):
            os.close(fd)
        self.link.close()

    def _next_frame(self) -> bytes:
        if self._control:
            return self._control.popleft()
        while self._data:
            log, frame = self._data.popleft()
            if self.open_logs.get(log.number) is log:  # else it was opened anew elsewhere
                return frame
        return b""

    def _read_ahead(self) -> None:
        while len(self._data) + self._reading < _AHEAD:
            log = self._next_log()
            if log is None:
                return
            self._reading += 1
            self.sent += self._reader.read(log, self.credit - self.sent, self._take)

    def _take(self, log: OpenLog, frames: list[bytes], unread: int) -> None:
        """What has been read; `unread` bytes of the credit were not needed for it."""
        self._reading -= 1
        self.sent -= unread
        if not self.closed:
            self._data.extend((log, frame) for frame in frames)

    def _next_log(self) -> OpenLog | None:
        if self.sent >= self.credit:
            return None
        logs = list(self.open_logs.values())
        for step in range(len(logs)):
            log = logs[(self._turn + step) % len(logs)]
            if not (log.reading or log.failed) and log.position < log.log.size:
                self._turn += step + 1
                return log
        return None
