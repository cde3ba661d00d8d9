"""Pipe of a short program to its launcher: messages of JSON behind their length, and bytes.

There are no threads: whoever is faster waits in the pipe. A program ends when its pipe does, and
when nothing comes and the launcher is not expected back.
"""

from __future__ import annotations

import json
import os
import select
import struct
import time
from typing import Any, Callable, Iterable

LENGTH = struct.Struct(">I")
CHUNK = 256 * 1024
_SILENCE = 600.0
"""Seconds without a byte after which a network is taken for cut."""
_LOOK = 2.0
"""Seconds between two looks whether the launcher is still wanted."""


class PipeEnded(OSError):
    """Nobody is at the other end any more."""


class Pipe:
    """The program's end: `wanted` says whether anybody may still come back, `silence` how many
    seconds without a byte are too many."""

    def __init__(
        self,
        wanted: Callable[[], bool] = lambda: True,
        source: int = 0,
        sink: int = 1,
        silence: float = _SILENCE,
    ) -> None:
        self.source = source
        self._wanted = wanted
        self._sink = sink
        self._silence = silence
        self._heard = time.monotonic()

    def wait(self, others: Iterable[int] = ()) -> list[int]:
        """Waits for bytes from the launcher, or for one of these other descriptors; returns those
        that are ready.

        Raises:
            PipeEnded: nothing came for too long.
        """
        poll = select.poll()  # `select` knows 1,024 descriptors
        for fd in (self.source, *others):
            poll.register(fd, select.POLLIN)
        while True:
            ready = [fd for fd, _ in poll.poll(_LOOK * 1000)]
            if self.source in ready:
                self._heard = time.monotonic()
            elif time.monotonic() - self._heard > self._silence or not self._wanted():
                raise PipeEnded(0, "the launcher no longer sent anything")
            if ready:
                return ready

    def read(self, most: int) -> bytes:
        """The next bytes, at least one.

        Raises:
            PipeEnded: there will be none.
        """
        self.wait()
        data = os.read(self.source, min(most, CHUNK))
        if not data:
            raise PipeEnded(0, "the connection ended")
        return data

    def read_exactly(self, count: int) -> bytes:
        """Exactly `count` bytes.

        Raises:
            PipeEnded: there are fewer.
        """
        parts = []
        while count:
            parts.append(self.read(count))
            count -= len(parts[-1])
        return b"".join(parts)

    def receive(self) -> dict[str, Any]:
        """The next message; its launcher is of this very account, and is trusted.

        Raises:
            PipeEnded: there is none.
        """
        (length,) = LENGTH.unpack(self.read_exactly(LENGTH.size))
        message: dict[str, Any] = json.loads(self.read_exactly(length))
        return message

    def send(self, message: dict[str, Any]) -> None:
        """Sends a message.

        Raises:
            OSError: nobody is there to read it.
        """
        raw = json.dumps(message, separators=(",", ":")).encode()
        self.write(LENGTH.pack(len(raw)) + raw)

    def write(self, data: bytes) -> None:
        """Writes bytes, as fast as they are read.

        Raises:
            OSError: nobody is there to read them.
        """
        write_all(self._sink, data)


def write_all(fd: int, data: bytes) -> None:
    """Writes bytes to the end, whatever number the kernel takes at a time.

    Raises:
        OSError: they cannot be written.
    """
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
