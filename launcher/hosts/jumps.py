"""Hosts on the way to another one, as `ssh -J first,second` and `ProxyJump` name them."""

from __future__ import annotations

from dataclasses import dataclass

from ..cluster.addresses import AddressError, SshDestination
from ..errors import UnreachableError
from ..plan.model import SshTarget
from ..printable import printable
from .host_keys import SSH_PORT
from .ssh_config import SshConfig


@dataclass(frozen=True)
class Jump(SshTarget):
    """A host on the way; it is checked like any other. `jump` is the way to it."""

    behind: tuple[str, ...] = ()
    """The ways that lead through it, the whole one first."""


def jump_of(target: SshTarget, config: SshConfig) -> str:
    """The way to a host; empty where there is none between."""
    return target.jump or config.get("proxyjump")


def last_jump(name: str, target: SshTarget, jumps: str) -> Jump:
    """The last one of `jumps`, with the target's key and known hosts.

    Raises:
        UnreachableError: it is no destination, or the way leads back to where it comes from.
    """
    behind = target.behind if isinstance(target, Jump) else ()
    if jumps in behind:
        what = f"ProxyJump leads in a circle: {printable(' to '.join([*behind, jumps]))}"
        raise UnreachableError(name, what, code="ssh-config", todo="exclude it: Host * !NAME")
    way, _, last = jumps.rpartition(",")
    try:  # `ssh -G` prints the first of several as a URL where it was written as one
        at = SshDestination.parse(last.strip().removeprefix("ssh://"))
    except AddressError as error:
        what = f"ProxyJump {printable(jumps)}: {error}"
        raise UnreachableError(name, what, code="ssh-config") from error
    behind = (*behind, jumps)
    return Jump(at.user, at.host, at.port, target.identity, way or None, target.known_hosts, behind)


def first_machine(target: SshTarget) -> str:
    """The first machine on the way, by which logins are throttled."""
    return target.jump or f"{target.host}:{target.port or SSH_PORT}"
