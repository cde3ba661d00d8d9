"""Transport to an agent over one channel of an SSH connection."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import asyncssh

from .transport import STDERR_BYTES, Transport

_SESSION_SECONDS = 10.0


class SshTransport(Transport):
    """One channel of an SSH connection, running the bridge."""

    def __init__(
        self,
        connection: asyncssh.SSHClientConnection,
        process: asyncssh.SSHClientProcess[bytes],
        *,
        forced: bool = False,
        shared: bool = False,
    ) -> None:
        """`shared`: the connection belongs to another transport, and stays when this one ends."""
        self.connection = connection
        self._process = process
        self._forced = forced
        self._shared = shared
        self._said = bytearray()
        self._listener = asyncio.create_task(self._listen())
        self._forwards: dict[int, asyncssh.SSHListener] = {}

    async def read(self) -> bytes:
        try:
            return await self._process.stdout.read(1 << 18)
        except (asyncssh.Error, OSError):
            return b""

    def write(self, data: bytes) -> None:
        with suppress(OSError):  # the reading side says that the connection has gone
            self._process.stdin.write(data)

    async def drain(self) -> None:
        with suppress(asyncssh.Error, OSError):  # here too
            await self._process.stdin.drain()

    async def aclose(self) -> None:
        self._listener.cancel()
        for listener in self._forwards.values():
            listener.close()
        self._process.close()
        if self._shared:
            return
        self.connection.close()
        with suppress(TimeoutError, asyncssh.Error, OSError):
            async with asyncio.timeout(2):
                await self.connection.wait_closed()
        self.connection.abort()

    @property
    def complaint(self) -> str:
        said = self._said.decode(errors="replace").strip()
        if self._forced:
            last = said.rpartition("\n")[2]
            return f"authorized_keys there runs another command for this key (command=…): {last}"
        return said

    async def open_session(self, command: str) -> SshTransport | None:
        try:
            async with asyncio.timeout(_SESSION_SECONDS):
                process = await self.connection.create_process(command, encoding=None)
        except (asyncssh.Error, OSError):  # TimeoutError, too
            return None
        return SshTransport(self.connection, process, forced=self._forced, shared=True)

    async def forward(self, port: int, wanted: int = 0) -> int:
        if port not in self._forwards:
            try:
                self._forwards[port] = await self._listen_for(port, wanted)
            except OSError:  # somebody took it while the connection was away
                self._forwards[port] = await self._listen_for(port, 0)
        return int(self._forwards[port].get_port())

    async def _listen_for(self, port: int, here: int) -> asyncssh.SSHListener:
        try:
            return await self.connection.forward_local_port("127.0.0.1", here, "127.0.0.1", port)
        except asyncssh.Error as error:  # the connection has just ended
            raise ConnectionError(str(error)) from error

    async def _listen(self) -> None:
        with suppress(asyncssh.Error, OSError):
            while data := await self._process.stderr.read(STDERR_BYTES):
                self._said = (self._said + data)[-STDERR_BYTES:]
