"""Channels of all launchers: accepted from bridges, read, written and closed."""

from __future__ import annotations

import os
import selectors
import socket
import struct
import time
from typing import Callable

from . import wire
from .channel import Channel
from .log import error_text, log_line
from .messages import Gone, Message, Refusal
from .workers import Later, WorkerThread

_MOST_QUERIES = 8
"""Channels without a launcher; the oldest is closed for the next."""


class Channels:
    """All channels of an agent, on its selector.

    `handle` gets each frame with its channel; `lost` is called when the channel of a launcher
    has ended that neither left nor was replaced.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        handle: Callable[[Channel, wire.Frame], None],
        lost: Callable[[], None],
        later: Later,
    ) -> None:
        self._selector = selector
        self._reader = WorkerThread("log reader")
        self._handle = handle
        self._lost = lost
        self._later = later
        self._all: list[Channel] = []
        self._unlistened: list[socket.socket] = []
        self._replaced: dict[str, str] = {}
        """Launchers that another one has replaced, by their token, and by whom."""
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

    def admit(self, channel: Channel, token: str, launcher: str) -> bool:
        """Makes `channel` the launcher's; every other launcher is replaced. False when it was
        replaced itself: cut off while another took over, it must not steal the run back."""
        if token in self._replaced:
            channel.send(Gone(self._replaced[token]))
            self._flush_and_drop(channel)
            return False
        channel.admitted = True  # first of all: else letting go of the others looks like a death
        channel.token = token
        for other in [c for c in self._all if c is not channel and c.admitted]:
            if other.token != token:
                self._replaced[other.token] = launcher
                other.send(Gone(launcher))
            self._flush_and_drop(other)
        return True

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

    def send(self, message: Message) -> None:
        """Sends a message to the launcher, if one is there."""
        for channel in self._all:
            if channel.admitted:
                channel.send(message)

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
                channel.send(_refusal(error))
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


def _refusal(error: Exception) -> Refusal:
    """What a launcher is told whose frame could not be handled."""
    if isinstance(error, wire.VersionError):
        return Refusal(str(error), wire.OTHER_VERSION)
    return Refusal(f"{type(error).__name__}: {error}")
