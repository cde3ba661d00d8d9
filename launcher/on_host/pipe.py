"""Pipe of a short program to its launcher: messages of JSON behind their length, and bytes.

The launcher sends a program like the agent, over a session of its own, and writes a request; the
program answers and ends. It has no threads: whoever is faster waits in the pipe. It ends, too, when
the pipe does, and when the run's agent has gone while nothing comes.
"""

from __future__ import annotations

import json
import os
import select
import struct
import time
from typing import Any, Callable

LENGTH = struct.Struct(">I")
CHUNK = 256 * 1024
_SILENCE = 600.0
"""Seconds without a byte after which a network is taken for cut."""
_LOOK = 2.0
"""Seconds between two looks whether the launcher is still wanted."""


class PipeEnded(OSError):
    """Nobody is at the other end any more."""


class Pipe:
    """The program's end: `wanted` says whether anybody may still come back."""

    def __init__(self, wanted: Callable[[], bool] = lambda: True, source: int = 0, sink: int = 1):
        self._wanted = wanted
        self._source = source
        self._sink = sink

    def read(self, most: int) -> bytes:
        """The next bytes, at least one.

        Raises:
            PipeEnded: there will be none.
        """
        poll = select.poll()
        poll.register(self._source, select.POLLIN)
        began = time.monotonic()
        while not poll.poll(_LOOK * 1000):
            if time.monotonic() - began > _SILENCE or not self._wanted():
                raise PipeEnded(0, "nothing came from the launcher any more")
        data = os.read(self._source, min(most, CHUNK))
        if not data:
            raise PipeEnded(0, "the connection ended")
        return data

    def read_exactly(self, count: int) -> bytes:
        """So many bytes.

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
        view = memoryview(data)
        while view:
            view = view[os.write(self._sink, view) :]


def reason(error: BaseException) -> str:
    """An error in a few words."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__
