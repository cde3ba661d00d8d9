"""Channels of launchers: accepted from bridges; frames in, frames out, log bytes by credit.

Control frames go first; log bytes are read from their files (in a thread) a few chunks ahead, in
turn for all logs, and never past the credit. So a receipt never queues behind more than one chunk
of ours, and nothing piles up in memory when the launcher is slow.
"""

from __future__ import annotations

import errno
import os
import selectors
import socket
import struct
import time
from collections import deque
from typing import Callable, Mapping, NamedTuple

from . import wire
from .task_logs import Log
from .threads import Later, WorkerThread, error_text, log_line, start_thread
from .wire import Json

_AHEAD = 4
"""Frames that wait, and reads that are under way, at most (a read brings up to four frames)."""
_MOST_QUERIES = 8
"""Channels without a launcher; the oldest is closed for the next."""
_LONGEST = 366 * 86400.0 * 10
"""Seconds of a lease or a grace at most."""


class LeaseRules(NamedTuple):
    """Behaviour without a launcher: after `lease` seconds the tasks are stopped, with `grace`
    seconds between TERM and KILL, or kept."""

    lease: float
    grace: float
    keep: bool

    @classmethod
    def of(cls, said: Json) -> LeaseRules:
        """The rules that a launcher has sent."""
        lease, grace = float(said["lease"]), float(said["grace"])
        if not (0.0 < lease <= _LONGEST and 0.0 <= grace <= _LONGEST):
            raise ValueError(f"a lease of {lease} s with a grace of {grace} s")
        return cls(lease, grace, said["on_disconnect"] == "keep")

    def to_json(self) -> Json:
        """The rules as a launcher sends them."""
        keep = "keep" if self.keep else "stop"
        return {"lease": self.lease, "grace": self.grace, "on_disconnect": keep}


class Greeting(NamedTuple):
    """What a launcher says of itself: the token of its link, its name, its rules, and what it takes
    the run over for."""

    token: str
    launcher: str
    rules: LeaseRules
    purpose: str = ""

    @property
    def farewell(self) -> Json:
        """What is said to a launcher whose place it takes."""
        return {"by": self.launcher, "purpose": self.purpose}


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
        self.greeting: Greeting | None = None
        """What its launcher has said of itself; none of one that only asks."""
        self.admitted = False
        """Its launcher is the run's: it has answered our welcome."""
        self.closed = False
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

    def send(self, kind: int, body: Mapping[str, object]) -> None:
        """Queues a control frame; log bytes go behind it."""
        self._control.append(wire.encode(kind, body))

    def answer(self, ident: object, answer: Json) -> None:
        """Queues the answer to a question."""
        try:
            self.send(wire.REPLY, {"id": ident, **answer})
        except wire.WireError as error:
            self.refuse(ident, str(error))

    def refuse(self, ident: object, error: str) -> None:
        """Queues an error in the place of an answer."""
        self.send(wire.REPLY, {"id": ident, "error": error})

    def answer_in_thread(self, ident: object, work: Callable[[], Json]) -> None:
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

    def open_log(self, number: int, log: Log, position: int) -> None:
        """Has a log sent from a byte on, under a number."""
        self.open_logs[number] = OpenLog(number, log, position)

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


class Channels:
    """All channels of an agent, on its selector.

    `handle` gets each frame with its channel; `lost` is called when the channel of a launcher
    has ended that neither left nor was replaced.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        handle: Callable[[Channel, wire.RawFrame], None],
        lost: Callable[[], None],
        later: Later,
        disk: WorkerThread,
    ) -> None:
        self._selector = selector
        self._reader = disk
        self._handle = handle
        self._lost = lost
        self._later = later
        self._all: list[Channel] = []
        self._unlistened: list[socket.socket] = []
        self._replaced: dict[str, Greeting] = {}
        """Launchers that another one has replaced, by their token, and the greeting of that."""
        self.last_beat = time.monotonic()
        """When a launcher was last heard."""

    def __len__(self) -> int:
        return len(self._all)

    # --- coming and going -----------------------------------------------------------------

    def accept(self, listener: socket.socket) -> None:
        """Accepts the connection of a bridge of this user; closes any other."""
        try:
            link, _ = listener.accept()
        except OSError as error:
            log_line(f"a connection could not be accepted: {error_text(error)}")
            self._selector.unregister(listener)  # else it would be ready again at once
            self._unlistened.append(listener)
            return
        link.setblocking(False)
        uid = struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
        if uid != os.getuid():
            link.close()
            return
        self._selector.register(link, selectors.EVENT_READ, link)

    def open(self, link: socket.socket) -> None:
        """Receives the descriptors of a bridge, and confirms that we have them."""
        self._selector.unregister(link)
        size = struct.calcsize("2i")
        descriptors: tuple[int, ...] = ()
        try:
            # Without the flag each task would inherit the channel and keep it open.
            flags = socket.MSG_CMSG_CLOEXEC
            _, extra, _, _ = link.recvmsg(1, socket.CMSG_SPACE(size), flags)
            for level, kind, data in extra:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                    descriptors += struct.unpack(f"{len(data) // 4}i", data[: len(data) // 4 * 4])
            source, sink = descriptors
            link.send(b"k")
            channel = Channel(link, source, sink, self._reader, self._later)
            self._selector.register(source, selectors.EVENT_READ, channel)
        except (OSError, ValueError) as error:
            log_line(f"a channel could not be opened: {error}")
            link.close()
            for descriptor in descriptors:
                os.close(descriptor)
            return
        self._all.append(channel)
        queries = [each for each in self._all if not each.admitted]
        for query in queries[:-_MOST_QUERIES]:  # each has three descriptors
            self._drop(query)

    def listen(self) -> None:
        """Goes on to accept connections where one could not be accepted."""
        while self._unlistened:
            self._selector.register(self._unlistened.pop(), selectors.EVENT_READ, None)

    def greet(self, channel: Channel, greeting: Greeting) -> bool:
        """Notes whose launcher speaks on `channel`; False when another one has replaced it: cut
        off while that took over, it must not steal the run back."""
        if greeting.token in self._replaced:
            self._dismiss(channel, self._replaced[greeting.token])
            return False
        channel.greeting = greeting
        self._all.remove(channel)  # the latest greeting stands last
        self._all.append(channel)
        return True

    def admit(self, channel: Channel) -> LeaseRules:
        """Makes a launcher that has answered our welcome the run's; returns its rules.

        Every one that greeted before is replaced. A greeting alone replaces nobody, as it may have
        waited here, in the input of an agent that stood still, until its launcher was dead.
        """
        assert channel.greeting is not None
        greeting = channel.greeting
        channel.admitted = True  # first of all: else letting go of the others looks like a death
        greeted = [each for each in self._all if each.greeting is not None]
        for other in greeted[: greeted.index(channel)]:
            assert other.greeting is not None
            if other.greeting.token != greeting.token:
                self._replaced[other.greeting.token] = greeting
                self._dismiss(other, greeting)
            else:
                self._flush_and_drop(other)
        return greeting.rules

    def _dismiss(self, channel: Channel, by: Greeting) -> None:
        """Tells a launcher which other one has the run, and what for, and lets go of it."""
        channel.send(wire.GONE, by.farewell)
        self._flush_and_drop(channel)

    def close(self) -> None:
        """Closes the channels of all launchers."""
        for channel in self._all:
            channel.close()

    def _drop(self, channel: Channel) -> None:
        if channel not in self._all:
            return
        self._all.remove(channel)
        for fd in (channel.source, channel.sink):
            if fd in self._selector.get_map():
                self._selector.unregister(fd)
        channel.close()
        if channel.admitted and not self.has_launcher:
            self._lost()

    def _flush_and_drop(self, channel: Channel) -> None:
        try:
            channel.pump()
        except OSError as error:
            log_line(f"channel: {error}")
        self._drop(channel)

    # --- frames ---------------------------------------------------------------------------

    @property
    def has_launcher(self) -> bool:
        """Whether a launcher has been admitted, and is still connected."""
        return any(channel.admitted for channel in self._all)

    def send(self, kind: int, body: Mapping[str, object]) -> None:
        """Sends a frame to the launcher, if one is there, and to one that our welcome is on its way
        to: it must miss nothing that happens after that."""
        for channel in self._all:
            if channel.greeting is not None:
                channel.send(kind, body)

    @property
    def queued(self) -> bool:
        """Whether a channel has control frames that are not sent yet."""
        return any(channel.queued for channel in self._all)

    @property
    def is_behind(self) -> bool:
        """There is something that a launcher has not been sent."""
        return any(channel.is_behind for channel in self._all)

    def read(self) -> None:
        """Handles what has come on the channels that are read."""
        for channel in list(self._all):
            if not channel.closed:  # another's hello may have closed it
                self._read(channel)

    def _read(self, channel: Channel) -> None:
        for _ in range(4):
            if channel not in self._all:
                return
            data = channel.receive()
            if data is None:
                return
            if not data:
                self._drop(channel)
                return
            try:
                for frame in channel.decoder.feed(data):
                    if channel not in self._all:  # the frame before has closed it
                        return
                    self._handle(channel, frame)
                    if channel.admitted:
                        self.last_beat = time.monotonic()
            except Exception as error:  # whatever came: this channel is at fault, not the run
                channel.send(wire.ERROR, _refusal(error))
                self._flush_and_drop(channel)
                return

    def write(self) -> None:
        """Sends what the channels take."""
        for channel in list(self._all):
            self._write(channel)

    def _write(self, channel: Channel) -> None:
        try:
            channel.pump()
        except OSError:
            self._read(channel)  # a kill may have been the last thing that was said
            self._drop(channel)
            return
        wanted = channel.wants_to_write()
        try:
            registered = channel.sink in self._selector.get_map()
            if wanted and not registered:
                self._selector.register(channel.sink, selectors.EVENT_WRITE, channel)
            elif registered and not wanted:
                self._selector.unregister(channel.sink)
        except OSError:
            self._drop(channel)


def _refusal(error: Exception) -> Json:
    """What a launcher is told whose frame could not be handled."""
    if isinstance(error, wire.VersionError):
        return {"text": str(error), "code": wire.OTHER_VERSION}
    return {"text": f"{type(error).__name__}: {error}"}
