"""How each host of a plan is reached: a pipe on this machine, SSH for the others."""

from __future__ import annotations

from pathlib import Path

from ..plan.plan import HostPlan, Plan
from . import bootstrap
from .greeting import LinkSettings, Open
from .ssh import Logins
from .transport import LocalTransport, Transport


def door(host: HostPlan, logins: Logins) -> Open:
    """The way to a host's agent."""

    async def to_this_machine(run_id: str, nonce: str) -> Transport:
        return await LocalTransport.open(bootstrap.argv(host.python, run_id, nonce))

    async def over_ssh(run_id: str, nonce: str) -> Transport:
        assert host.ssh is not None
        command = bootstrap.command(host.python, run_id, nonce)
        return await logins.open(host.name, host.ssh, command)

    return to_this_machine if host.ssh is None else over_ssh


def link_settings(
    plan: Plan, host: HostPlan, logs: Path, *, persistent: bool = False
) -> LinkSettings:
    """What a host's agent is told of the run."""
    local = host.ssh is None
    return LinkSettings(
        run_id=plan.run_id,
        host=host.name,
        lease=plan.settings.lease,
        grace=plan.settings.grace,
        on_disconnect=str(plan.settings.on_disconnect),
        local=local,
        logs=str(logs) if local else None,
        persistent=persistent,
        tasks={task.id: task.log_limit for task in plan.on_host(host.name)},
    )
