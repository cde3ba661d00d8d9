"""The wire in front of the in-process server: what a network does to a connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

_CHUNK = 1 << 16
_LAST_WORDS = 0.05
"""Seconds between a server's last words and the end of the connection: asyncssh's client does not
look at a packet any more when the end has come with it."""


class _Reader(asyncio.StreamReader):
    """Gives what had come before a reset, too, as a socket does."""

    def set_exception(self, exc: Exception) -> None:
        if isinstance(exc, ConnectionError):
            self.feed_eof()
        else:
            super().set_exception(exc)


async def _connect(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    loop = asyncio.get_running_loop()
    reader = _Reader(limit=_CHUNK, loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport, _ = await loop.create_connection(lambda: protocol, "127.0.0.1", port)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


class Relay:
    """Passes TCP connections on to a port of this machine, or fails to as a test wants it.

    Belongs to one event loop; the attributes may be set from any thread and hold for what
    comes after.

    Attributes:
        refuse_next: that many connections are accepted and closed before a byte.
        silent: connections are accepted and never answered.
        connections: how many have been accepted since the start.
        ended: how many of them have ended.
        strike: what is done when so many bytes more have come, such as `(1000, relay.pull)`.
        struck: whether that has been done.
        peak_logins: the most connections that were between connecting and logged in at once.
    """

    def __init__(self) -> None:
        self.refuse_next = 0
        self.silent = False
        self.strike: tuple[int, Callable[[], None]] | None = None
        self.struck = False
        self.connections = 0
        self.ended = 0
        self.peak_logins = 0
        self.port = 0
        self._target = 0
        self._server: asyncio.Server | None = None
        self._wires: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._logging_in: set[int] = set()
        self._whole = asyncio.Event()
        self._whole.set()

    async def start(self, target: int) -> None:
        """Listen on a free port and pass on to `target`."""
        self._target = target
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=_CHUNK)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Stop listening and break all connections."""
        assert self._server is not None
        self._server.close()
        self.cut_off()
        wires = [*self._wires]
        for wire in wires:
            wire.cancel()
        await asyncio.gather(*wires, return_exceptions=True)

    def cut_off(self) -> None:
        """Break all connections with a reset."""
        for writer in self._writers:
            writer.transport.abort()

    def pull(self) -> None:
        """Let nothing through any more, both ways, without closing anything."""
        self._whole.clear()

    def strand(self) -> None:
        """Let nothing through any more for the connections that are there, without closing
        anything; those that come are passed on."""
        self._whole.clear()
        self._whole = asyncio.Event()
        self._whole.set()

    def heal(self) -> None:
        """Let through what has waited since `pull`."""
        self._whole.set()

    def logged_in(self, port: int) -> None:
        """Note that the connection that reached the target from `port` has logged in."""
        self._logging_in.discard(port)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._wires.add(task)
        self._writers.add(writer)
        try:
            if self.refuse_next > 0:
                self.refuse_next -= 1
            elif self.silent:
                while await reader.read(_CHUNK):
                    pass
            else:
                await self._pass_on(reader, writer)
        except (ConnectionError, asyncio.CancelledError):
            pass  # an end like any other: the client left, was cut off, or the server stops
        finally:
            self._wires.discard(task)
            self._writers.discard(writer)
            writer.close()
            self.ended += 1

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind, to = await _connect(self._target)
        port: int = to.get_extra_info("sockname")[1]
        self._writers.add(to)
        self._logging_in.add(port)
        self.peak_logins = max(self.peak_logins, len(self._logging_in))
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pump(reader, to))
                both.create_task(self._pump(behind, writer, _LAST_WORDS))
        finally:
            self._logging_in.discard(port)
            self._writers.discard(to)
            to.close()

    def _count(self, size: int) -> None:
        if self.strike is not None:
            left, act = self.strike
            self.strike = (left - size, act) if left > size else None
            if self.strike is None:
                self.struck = True
                act()

    async def _pump(
        self, source: asyncio.StreamReader, to: asyncio.StreamWriter, pause: float = 0.0
    ) -> None:
        whole = self._whole
        with suppress(ConnectionError):
            while data := await source.read(_CHUNK):
                self._count(len(data))
                await whole.wait()
                to.write(data)
                await to.drain()
        await whole.wait()
        await asyncio.sleep(pause)
        to.close()
