"""Hosts on the way to another one, as `ssh -J first,second` and `ProxyJump` name them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ..cluster.addresses import AddressError, SshDestination
from ..errors import UnreachableError
from ..plan.model import SshTarget
from ..printable import printable
from .ssh_config import SshConfig


@dataclass(frozen=True)
class Machine:
    """One machine on the way to a host, the host itself being the last."""

    target: SshTarget
    config: SshConfig
    through: str = ""
    """The way to this machine, as ProxyJump has it; empty for the first one."""

    @property
    def server(self) -> str:
        """The server's own name and port, whatever alias leads to it."""
        return f"{self.config.get('hostname') or self.target.host}:{self.config.get('port')}"


ReadConfig = Callable[[SshTarget], Awaitable[SshConfig]]


async def find_way(name: str, target: SshTarget, read: ReadConfig) -> list[Machine]:
    """The machines on the way to a host, the first one first, found before any is logged in to:
    logins that wait for each other's jump host would wait for ever.

    Raises:
        UnreachableError: a jump is no destination, or the way leads back to where it comes from.
    """
    machines: list[Machine] = []
    passed: list[str] = []
    while True:
        config = await read(target)
        jumps = target.jump or config.get("proxyjump")
        machines.append(Machine(target, config, jumps))
        if not jumps:
            return machines[::-1]
        if jumps in passed:
            what = f"ProxyJump leads in a circle: {printable(' to '.join([*passed, jumps]))}"
            raise UnreachableError(name, what, code="ssh-config", todo="exclude it: Host * !NAME")
        passed.append(jumps)
        target = _last_jump(name, target, jumps)


def _last_jump(name: str, target: SshTarget, jumps: str) -> SshTarget:
    """The last one of `jumps`, with the target's key and known hosts; it is checked like any
    other host.

    Raises:
        UnreachableError: it is no destination.
    """
    way, _, last = jumps.rpartition(",")
    try:  # `ssh -G` prints the first of several as a URL where it was written as one
        at = SshDestination.parse(last.strip().removeprefix("ssh://"))
    except AddressError as error:
        what = f"ProxyJump {printable(jumps)}: {error}"
        raise UnreachableError(name, what, code="ssh-config") from error
    return SshTarget(at.user, at.host, at.port, target.identity, way or None, target.known_hosts)
