"""Transports to the hosts of a plan: a pipe on this machine, SSH or a command to the others."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from ..errors import HostError, UnreachableError
from ..plan.plan import HostPlan
from ..printable import printable
from . import bootstrap
from .handshake import TransportFactory
from .transport import LocalTransport, Transport
from .via import open_via

if TYPE_CHECKING:
    from .ssh import SshConnector


def transport_factory(host: HostPlan, logins: SshConnector | None) -> TransportFactory:
    """Opener of transports to a host's agent; `logins` is for hosts over SSH. Whatever goes wrong
    with one host is a `HostError` of it: the others do not end for it."""

    async def to_this_machine(run_id: str, nonce: str, beside: Transport | None) -> Transport:
        return await LocalTransport.open(bootstrap.argv(host.python, run_id, nonce))

    async def over_ssh(run_id: str, nonce: str, beside: Transport | None) -> Transport:
        return await log_in(bootstrap.command(host.python, run_id, nonce), beside)

    async def through_login(run_id: str, nonce: str, beside: Transport | None) -> Transport:
        words = [*host.via, *bootstrap.argv(host.python, run_id, nonce)]
        return await log_in(f"exec {shlex.join(words)}", beside)

    async def log_in(command: str, beside: Transport | None) -> Transport:
        assert host.ssh is not None and logins is not None
        session = await beside.open_session(command) if beside is not None else None
        return session or await logins.open(host.name, host.ssh, command)

    async def through_command(run_id: str, nonce: str, beside: Transport | None) -> Transport:
        return await open_via(host, run_id, nonce)

    async def open_transport(run_id: str, nonce: str, beside: Transport | None = None) -> Transport:
        try:
            return await way(run_id, nonce, beside)
        except HostError:
            raise
        except Exception as error:
            what = printable(f"connecting failed: {type(error).__name__}: {error}")
            raise UnreachableError(host.name, what) from error

    way = to_this_machine if host.local else over_ssh
    if host.via:
        way = through_command if host.ssh is None else through_login
    return open_transport
