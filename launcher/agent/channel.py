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
from typing import Callable

from . import wire
from .drain import Log
from .log import error_text, log_line
from .messages import Answer, Message
from .threads import start_thread
from .workers import Later, WorkerThread

_AHEAD = 4
"""Frames that wait, and reads that are under way, at most (a read brings up to four frames)."""


class OpenLog:
    """A log that the launcher reads: `position` is the next byte to be read."""

    def __init__(self, number: int, log: Log, position: int) -> None:
        self.number = number
        self.log = log
        self.position = position
        self.failed = False
        self.reading = False
        """The thread has it; nobody else touches `position` meanwhile."""

    def read(self, limit: int) -> list[bytes]:
        """Reads the next `DATA` frames, `limit` bytes or fewer."""
        frames: list[bytes] = []
        end = self.position + limit
        try:
            while self.position < end:
                some = min(wire.DATA_BYTES, end - self.position)
                chunk = self.log.pread(some, self.position)
                if not chunk:
                    break
                frames.append(wire.encode_data(self.number, self.position, chunk))
                self.position += len(chunk)
        except OSError as error:  # not tried again: it would fail without end
            log_line(f"log {self.number}: {error_text(error)}")
            self.failed = True
        return frames


class Channel:
    """Descriptors that a bridge has handed over, and what is on its way through them. Logs are
    read by `reader`, since a disk that hangs must not hold up control frames; `later` runs
    something in the agent's loop."""

    def __init__(
        self, link: socket.socket, source: int, sink: int, reader: WorkerThread, later: Later
    ) -> None:
        self.link = link
        self.source = source
        self.sink = sink
        for fd in (source, sink):
            os.set_blocking(fd, False)
        self.decoder = wire.Decoder()
        self.admitted = False
        self.token = ""
        self.closed = False
        self.texts: dict[int, str] = {}
        """Shared texts, by their numbers."""
        self.open_logs: dict[int, OpenLog] = {}
        self.credit = 0
        self.sent = 0
        self._control: deque[bytes] = deque()
        self._partial = memoryview(b"")
        self._turn = 0
        self._reader = reader
        self._later = later
        self._reading = 0
        self._data: deque[tuple[OpenLog, bytes]] = deque()

    def send(self, message: Message) -> None:
        """Queues a control frame; log bytes go behind it."""
        self._control.append(message.encode())

    def answer(self, ident: int | None, answer: Answer) -> None:
        """Queues the answer to a question, unless nobody waits for it."""
        if ident is not None:
            try:
                frame = wire.encode(wire.REPLY, {"id": ident, **answer.to_json()})
            except wire.WireError as error:
                frame = wire.encode(wire.REPLY, {"id": ident, "error": str(error)})
            self._control.append(frame)

    def refuse(self, ident: int | None, error: str) -> None:
        """Queues an error in the place of an answer, unless nobody waits for one."""
        if ident is not None:
            self._control.append(wire.encode(wire.REPLY, {"id": ident, "error": error}))

    def answer_in_thread(self, ident: int | None, work: Callable[[], Answer]) -> None:
        """Does what may block (a disk, a name server) in a thread of its own, and queues its
        answer."""

        def act() -> None:
            try:
                answer = work()
            except Exception as error:  # whatever it is, whoever asked waits for an answer
                text = error_text(error)
                self._later(lambda: self.refuse(ident, text))
            else:
                self._later(lambda: self.answer(ident, answer))

        try:
            start_thread(act, "answer")
        except OSError as error:
            self.refuse(ident, error_text(error))

    def allow(self, credit: int) -> None:
        """Lets so many bytes of logs in all be sent."""
        self.credit = max(self.credit, credit)

    @property
    def queued(self) -> int:
        """Number of control frames that have not been sent yet."""
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
        """Whether frames or log bytes wait to be sent."""
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
        while len(self._data) + self._reading < _AHEAD and (log := self._next_log()):
            self._read(log, min(self.credit - self.sent, log.log.size - log.position))

    def _read(self, log: OpenLog, limit: int) -> None:
        limit = min(limit, _AHEAD * wire.DATA_BYTES)
        begin = log.position
        log.reading = True
        self._reading += 1
        self.sent += limit

        def read() -> None:
            frames = log.read(limit)
            self._later(lambda: enqueue(frames))

        def enqueue(frames: list[bytes]) -> None:
            log.reading = False
            self._reading -= 1
            self.sent -= limit - (log.position - begin)  # what was not needed of the credit
            if not self.closed:
                self._data.extend((log, frame) for frame in frames)

        self._reader.do(read)

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
