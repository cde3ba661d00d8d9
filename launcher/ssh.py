"""SSH to a host: the user's own configuration, keys and known_hosts, and clear refusals.

Facts about the two ends that shape this module: asyncssh has no keepalive unless asked and
does not honour `StrictHostKeyChecking`; sshd drops logins at random when more than ten are
under way, so at most five go to one server (or through one jump host) at a time.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import asyncssh

from .errors import AuthError, HostKeyError, UnreachableError
from .transport import STDERR_BYTES, Transport

CONNECT_SECONDS = 10.0
LOGIN_SECONDS = 20.0
LOGINS_AT_ONCE = 5
_TRIES = 4


class Target(Protocol):
    """Where to log in: `plan.SshTarget`."""

    @property
    def user(self) -> str | None: ...
    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int | None: ...
    @property
    def identity(self) -> str | None: ...
    @property
    def jump(self) -> str | None: ...
    @property
    def known_hosts(self) -> str | None: ...


@dataclass(frozen=True)
class Question:
    """Something that only a person can answer; `secret` answers are not to be shown."""

    host: str
    text: str
    secret: bool = True


Ask = Callable[[Question], Awaitable[str | None]]
"""Asks a person; None means that nobody answers (headless, or refused)."""


def config_home() -> Path:
    """tfmux's folder for what the user decides (`$XDG_CONFIG_HOME/tfmux`)."""
    base = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(base).expanduser() / "tfmux"


def accepted_keys() -> Path:
    """Host keys that were accepted here; the user's own known_hosts is only read."""
    return config_home() / "known_hosts"


class _Client(asyncssh.SSHClient):
    """Remembers what the server showed, and asks where only a person can answer."""

    def __init__(self, host: str, ask: Ask | None) -> None:
        self._name = host
        self._ask = ask
        self.shown: asyncssh.SSHKey | None = None
        self._passwords = 0

    def validate_host_public_key(
        self, host: str, addr: str, port: int, key: asyncssh.SSHKey
    ) -> bool:
        self.shown = key  # called only for a key that is not known
        return False

    async def password_auth_requested(self) -> str | None:
        if self._ask is None or self._passwords >= 3:
            return None
        self._passwords += 1
        return await self._ask(Question(self._name, "Password"))

    async def kbdint_auth_requested(self) -> str | None:
        return None if self._ask is None else ""

    async def kbdint_challenge_received(
        self, name: str, instructions: str, lang: str, prompts: Any
    ) -> list[str] | None:
        if self._ask is None:
            return None
        answers = []
        for text, echo in prompts:
            answer = await self._ask(Question(self._name, text.strip() or name, secret=not echo))
            if answer is None:
                return None
            answers.append(answer)
        return answers


class SshTransport(Transport):
    """One channel of an SSH connection, running the bridge."""

    def __init__(
        self, connection: asyncssh.SSHClientConnection, process: asyncssh.SSHClientProcess[bytes]
    ) -> None:
        self.connection = connection
        self._process = process
        self._said = bytearray()
        self._listener = asyncio.create_task(self._listen())
        self._forwards: list[asyncssh.SSHListener] = []

    async def read(self) -> bytes:
        try:
            return await self._process.stdout.read(1 << 18)
        except (asyncssh.Error, OSError):
            return b""

    def write(self, data: bytes) -> None:
        with suppress(OSError):  # the reading side says that the connection has gone
            self._process.stdin.write(data)

    async def drain(self) -> None:
        await self._process.stdin.drain()

    async def aclose(self) -> None:
        self._listener.cancel()
        for listener in self._forwards:
            listener.close()
        self._process.close()
        self.connection.close()
        with suppress(TimeoutError, asyncssh.Error, OSError):
            async with asyncio.timeout(2):
                await self.connection.wait_closed()
        self.connection.abort()

    @property
    def complaint(self) -> str:
        return self._said.decode(errors="replace").strip()

    async def forward(self, port: int) -> int:
        listener = await self.connection.forward_local_port("127.0.0.1", 0, "127.0.0.1", port)
        self._forwards.append(listener)
        return int(listener.get_port())

    async def _listen(self) -> None:
        with suppress(asyncssh.Error, OSError):
            while data := await self._process.stderr.read(STDERR_BYTES):
                self._said = (self._said + data)[-STDERR_BYTES:]


class Logins:
    """Opens connections for one launcher: never too many at once to one server."""

    def __init__(self, ask: Ask | None = None) -> None:
        self._ask = ask
        self._gates: dict[str, asyncio.Semaphore] = {}
        self._jumps: dict[str, asyncssh.SSHClientConnection] = {}

    async def open(self, name: str, target: Target, command: str) -> SshTransport:
        """Logs in to the host called `name` and runs `command` there.

        Raises:
            HostError: says which step failed and why.
        """
        connection = await self.connect(name, target)
        try:
            process = await connection.create_process(command, encoding=None)
        except (asyncssh.Error, OSError) as error:
            connection.abort()
            raise UnreachableError(name, f"no session on {target.host}: {_text(error)}") from error
        return SshTransport(connection, process)

    async def connect(self, name: str, target: Target) -> asyncssh.SSHClientConnection:
        """A login without a session.

        Raises:
            HostError: says which step failed and why.
        """
        door = target.jump or f"{target.host}:{target.port or 22}"
        gate = self._gates.setdefault(door, asyncio.Semaphore(LOGINS_AT_ONCE))
        for attempt in range(1, _TRIES + 1):
            async with gate:
                try:
                    return await self._login(name, target)
                except (asyncssh.ConnectionLost, ConnectionResetError) as error:
                    if attempt == _TRIES:
                        raise UnreachableError(
                            name,
                            f"{_place(target)} accepted the connection and dropped it "
                            f"({_text(error)}); its sshd may allow fewer logins at once",
                        ) from error
            await asyncio.sleep(random.uniform(0.2, 0.6) * attempt)
        raise AssertionError("unreachable")

    async def aclose(self) -> None:
        """Closes the connections to jump hosts."""
        for connection in self._jumps.values():
            connection.abort()
        self._jumps.clear()

    async def _login(self, name: str, target: Target) -> asyncssh.SSHClientConnection:
        client = _Client(name, self._ask)
        try:
            options = self._options(name, target)
        except (OSError, ValueError, asyncssh.Error) as error:
            raise AuthError(name, f"the key or the SSH configuration: {_text(error)}") from error
        files = _known_hosts_files(target, options)
        tunnel = await self._tunnel(name, target, options)
        try:
            async with asyncio.timeout(CONNECT_SECONDS + LOGIN_SECONDS):
                return await asyncssh.connect(
                    target.host,
                    options=options,
                    tunnel=tunnel,
                    known_hosts=asyncssh.read_known_hosts(files) if files else b"",
                    client_factory=lambda: client,
                )
        except asyncssh.HostKeyNotVerifiable as error:
            raise HostKeyError(name, _key_reason(target, client.shown, files)) from error
        except asyncssh.PermissionDenied as error:
            raise AuthError(
                name, f"{_place(target)} refused the login of {options.username}: {_text(error)}"
            ) from error
        except (asyncssh.ConnectionLost, ConnectionResetError):
            raise
        except TimeoutError as error:
            raise UnreachableError(name, f"no answer from {_place(target)}") from error
        except socket.gaierror as error:
            reason = f"the name {target.host!r} does not resolve here ({error.strerror})"
            raise UnreachableError(name, reason) from error
        except (OSError, asyncssh.Error) as error:
            raise UnreachableError(name, f"{_place(target)}: {_text(error)}") from error

    def _options(self, name: str, target: Target) -> asyncssh.SSHClientConnectionOptions:
        given: dict[str, Any] = {"host": target.host}
        if target.port is not None:
            given["port"] = target.port
        if target.user is not None:
            given["username"] = target.user
        if target.identity is not None:
            given["client_keys"] = [str(Path(target.identity).expanduser())]
        if self._ask is None:
            given |= {"password_auth": False, "kbdint_auth": False}
        return asyncssh.SSHClientConnectionOptions(
            connect_timeout=CONNECT_SECONDS,
            login_timeout=LOGIN_SECONDS,
            keepalive_interval=5,
            keepalive_count_max=3,
            **given,
        )

    async def _tunnel(
        self, name: str, target: Target, options: asyncssh.SSHClientConnectionOptions
    ) -> asyncssh.SSHClientConnection | None:
        jump = target.jump or options.tunnel
        if not isinstance(jump, str) or not jump:
            return None
        connection = self._jumps.get(jump)
        if connection is None or connection.is_closed():
            connection = await self._login(name, _Jump.parse(jump, target))
            self._jumps[jump] = connection
        return connection


@dataclass(frozen=True)
class _Jump:
    """A host on the way, `user@host:port`; it is checked like any other."""

    user: str | None
    host: str
    port: int | None
    identity: str | None
    known_hosts: str | None
    jump: str | None = None

    @classmethod
    def parse(cls, text: str, target: Target) -> _Jump:
        user, _, place = text.rpartition("@")
        host, colon, port = place.rpartition(":")
        if not colon or not port.isdecimal():
            host, port = place, ""
        return cls(
            user or None,
            host.strip("[]"),
            int(port) if port else None,
            target.identity,
            target.known_hosts,
        )


def _known_hosts_files(target: Target, options: asyncssh.SSHClientConnectionOptions) -> list[str]:
    if target.known_hosts is not None:
        names = [str(Path(target.known_hosts).expanduser())]
    elif isinstance(options.known_hosts, list) and options.known_hosts:
        names = [str(name) for name in options.known_hosts]
    else:
        # An empty UserKnownHostsFile switches the check off for asyncssh; never here.
        names = [str(Path("~/.ssh/known_hosts").expanduser()), "/etc/ssh/ssh_known_hosts"]
    names.append(str(accepted_keys()))
    return [name for name in names if os.access(name, os.R_OK)]


def _key_reason(target: Target, shown: asyncssh.SSHKey | None, files: list[str]) -> str:
    known = []
    if files:
        hosts = asyncssh.read_known_hosts(files)
        port = target.port if target.port not in (None, 22) else None
        known = list(hosts.match(target.host, "", port)[0])
    if shown is None:
        return (
            f"{_place(target)} shows no key of a kind that is known here; "
            "its key may have been changed"
        )
    what = f"{shown.get_algorithm()} {shown.get_fingerprint()}"
    if known:
        return (
            f"the key of {_place(target)} HAS CHANGED to {what}; if that is right, "
            "remove the old one from known_hosts"
        )
    return (
        f"the key of {_place(target)} is not known here: {what}; "
        "`tfmux check FILE --accept-new` trusts it"
    )


def _place(target: Target) -> str:
    return f"{target.host}:{target.port}" if target.port else target.host


def _text(error: BaseException) -> str:
    if isinstance(error, asyncssh.Error):
        return str(error.reason)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
