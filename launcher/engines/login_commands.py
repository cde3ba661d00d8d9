"""Commands of an engine, run on a login host over SSH."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Sequence
from contextlib import suppress

import asyncssh

from ..hosts.ssh import SshConnector
from ..plan.model import SshTarget
from ..printable import printable
from .commands import KeptOutput, Output, no_answer
from .engine import NoAnswerError


class LoginCommands:
    """Commands of a login host. One connection serves all of them, until the
    connector closes it; one that ended is replaced."""

    def __init__(self, logins: SshConnector, target: SshTarget) -> None:
        self._logins = logins
        self._target = target
        self._connection: asyncssh.SSHClientConnection | None = None
        self._lock = asyncio.Lock()

    async def connect(self) -> None:
        """Logs in; a person may be asked for a password.

        Raises:
            HostError: the login failed.
        """
        await self._connect()

    async def run(self, argv: Sequence[str], stdin: str = "", timeout: float = 30.0) -> Output:
        """Runs a command in the login's environment.

        Raises:
            NoAnswerError: it has not ended in time, or the connection has.
            HostError: the login failed.
        """
        connection = await self._connect()
        out, err = KeptOutput(), KeptOutput()
        try:
            async with asyncio.timeout(timeout):
                process = await connection.create_process(shlex.join(argv), encoding=None)
                try:
                    with suppress(OSError):  # it has ended without reading
                        process.stdin.write(stdin.encode())
                        process.stdin.write_eof()
                    await asyncio.gather(out.read(process.stdout), err.read(process.stderr))
                    await process.wait_closed()
                finally:
                    if process.exit_status is None:
                        with suppress(OSError):  # the channel has ended
                            process.kill()
                    process.close()
        except TimeoutError:
            raise NoAnswerError(no_answer(argv, timeout)) from None
        except (asyncssh.Error, OSError) as error:
            connection.abort()
            what = f"the connection to {self._target.host} ended: {error}"
            raise NoAnswerError(printable(what)) from error
        return Output(
            255 if process.exit_status is None else process.exit_status, out.text, err.text
        )

    async def _connect(self) -> asyncssh.SSHClientConnection:
        async with self._lock:
            if self._connection is None or self._connection.is_closed():
                self._connection = await self._logins.connect("login", self._target)
            return self._connection
