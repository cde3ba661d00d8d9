"""Transports to the hosts of a plan: a pipe on this machine, SSH or a command to the others."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from ..plan.model import HostPlan
from . import bootstrap
from .handshake import TransportFactory
from .transport import LocalTransport, Transport
from .via import open_via

if TYPE_CHECKING:
    from .ssh import SshConnector


def transport_factory(host: HostPlan, logins: SshConnector | None) -> TransportFactory:
    """Opener of transports to a host's agent; `logins` is for hosts over SSH."""

    async def to_this_machine(run_id: str, nonce: str) -> Transport:
        return await LocalTransport.open(bootstrap.argv(host.python, run_id, nonce))

    async def over_ssh(run_id: str, nonce: str) -> Transport:
        assert host.ssh is not None and logins is not None
        command = bootstrap.command(host.python, run_id, nonce)
        return await logins.open(host.name, host.ssh, command)

    async def through_login(run_id: str, nonce: str) -> Transport:
        assert host.ssh is not None and logins is not None
        words = [*host.via, *bootstrap.argv(host.python, run_id, nonce)]
        return await logins.open(host.name, host.ssh, f"exec {shlex.join(words)}")

    async def through_command(run_id: str, nonce: str) -> Transport:
        return await open_via(host, run_id, nonce)

    if host.via:
        return through_command if host.ssh is None else through_login
    return to_this_machine if host.local else over_ssh
