"""Transport to an agent: a two-way byte stream. Its kinds are in `ways` and `ssh`."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable
from typing import Protocol

from ..errors import HostError
from ..subprocesses import raise_limit

_ALWAYS, _EACH_HOST = 600, 4
"""Open files that are enough: a way by a command (`via`) has three pipes."""
STDERR_BYTES = 4096
_STDERR_SECONDS = 0.05


class ArrivalErrors(Protocol):
    """Errors of a way to a host, until our command there has shown that the way is open."""

    def ended(self, status: int | None, seen: bytes, complaint: str) -> HostError:
        """The way ended before anything could be sent."""

    def silent(self, seen: bytes, held: bool, complaint: str) -> HostError:
        """Nothing came; or it was `held` back until the input was closed."""

    def noisy(self, count: int, seen: bytes) -> HostError | None:
        """The error for `count` bytes of noise before the greeting; None where that is none."""

    def buffered(self) -> HostError:
        """Output without a line break is held back."""

    def altered(self, wanted: bytes, found: bytes) -> HostError:
        """The bytes came back changed."""


class Transport(ABC):
    """An open stream to a host. Reads are chunks of bytes of any size, never lines: one byte
    that is not UTF-8 would end a connection opened in text mode."""

    errors: ArrivalErrors | None = None
    """The way's own; None where it is a login, or this machine."""

    @abstractmethod
    async def read(self) -> bytes:
        """The next bytes; b"" when the other side has closed."""

    @abstractmethod
    def write(self, data: bytes) -> None:
        """Sends without waiting; what we send is small, but for staging, which drains."""

    @abstractmethod
    async def drain(self) -> None:
        """Waits until what was written is on its way."""

    @abstractmethod
    async def aclose(self) -> None:
        """Closes our side. The agent goes on: what becomes of it is its lease's business."""

    @property
    @abstractmethod
    def complaint(self) -> str:
        """The last 4 KiB that the remote shell or interpreter wrote to stderr."""

    async def status(self) -> int | None:
        """Status of a command that has ended, where there is one. stderr has its own way here:
        what was said there has come meanwhile."""
        await asyncio.sleep(_STDERR_SECONDS)
        return None

    def close_input(self) -> bool:
        """Ends the input of the far process; False where that is of no use."""
        return False

    async def open_session(self, command: str) -> Transport | None:
        """One more session of the same login, in which `command` runs; None where a login has but
        one (`MaxSessions` of sshd), or there is none."""
        return None

    async def try_channel(self, port: int) -> bool:
        """Opens a channel to `port` of the host's loopback once, and closes it. False: there are
        no channels, on this machine.

        Raises:
            PermissionError: the SSH server allows none (`AllowTcpForwarding`, `PermitOpen`).
            ConnectionRefusedError: nothing listens there.
            OSError: it says nothing, or the connection has ended.
        """
        return False

    async def forward(self, port: int, wanted: int = 0) -> int:
        """Makes `port` of the host reachable on this machine's loopback, on the port `wanted` or
        (0, or it is taken) a free one, and returns that. On this machine it is the same port.

        Raises:
            OSError: no port could be had, or the connection has ended.
        """
        return port


def channel_problem(host: str, port: int, error: PermissionError | ConnectionRefusedError) -> str:
    """Why no channel to a port of a host was opened."""
    if isinstance(error, PermissionError):
        return (
            f"the SSH server of {host} allows no channel to its port {port} (AllowTcpForwarding, "
            "PermitOpen or DisableForwarding of sshd_config, or the key's no-port-forwarding)"
        )
    return (
        f"nothing listens on 127.0.0.1:{port} of {host}: let the program listen on 127.0.0.1, too"
    )


class TransportFactory(Protocol):
    """Opener of transports to a host: there the interpreter starts and prints a marker with
    `nonce`. Where a login is open already (`beside`), it is used once more."""

    def __call__(
        self, run_id: str, nonce: str, beside: Transport | None = None
    ) -> Awaitable[Transport]: ...


def allow_connections(hosts: int) -> None:
    """Raises the soft limit of open files where connections to so many hosts need
    more; 1,024 is usual."""
    raise_limit(_ALWAYS + _EACH_HOST * hosts)
