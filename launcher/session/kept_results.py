"""Results that have stayed on the hosts of a run: brought to this machine at any time later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from ..errors import TfmuxError
from ..files.collecting import Fetched, fetch_results, reason_of
from ..frozen import frozen
from ..hosts.auth_prompt import PromptHandler
from ..hosts.programs import HostProgram
from ..hosts.transport import allow_connections
from ..hosts.ways import ssh_connector, transport_factory
from ..plan.run_plan import HostPlan, SshTarget
from .stored import StoredRun

_AT_ONCE = 16
"""Hosts from which results are brought at the same time."""


@frozen
class HostResults:
    """Results that have been brought from a host, or why none were."""

    host: str
    fetched: Fetched | None = None
    problem: str = ""


def hosts_with_results(run: StoredRun) -> tuple[HostPlan, ...]:
    """The hosts of a run that may have results: those that had a copy of the workdir. A task on
    this machine writes where it is started."""
    plan = run.plan
    begun = {view.host for view in run.snapshot().tasks if view.attempt}
    return tuple(
        host for host in plan.hosts if plan.copies(host) and (host.name in begun or not begun)
    )


async def collect_results(
    run: StoredRun,
    patterns: Sequence[str] = (),
    progress: Callable[[str, int, int], None] = lambda host, done, total: None,
    ask: PromptHandler | None = None,
) -> list[HostResults]:
    """Brings what tasks have left in the workdirs of a run's hosts into RUN/collected/HOST, where
    it matches one of the patterns (without any: all of it). What is here already does not come
    again. `progress` gets each host's bytes so far and in all, `ask` answers prompts of logins."""
    hosts = hosts_with_results(run)
    allow_connections(len(hosts))
    logins = ssh_connector(ask)
    gate = asyncio.Semaphore(_AT_ONCE)
    kept = {one.host: one for one in run.snapshot().results_kept}

    async def collect(host: HostPlan) -> HostResults:
        open_session = transport_factory(_way(run, host), logins)
        run_id = run.folder.run_id

        async def program() -> HostProgram:
            return await HostProgram.start(
                run_id, host.name, lambda nonce: open_session(run_id, nonce), alone=True
            )

        folder = run.folder.path / "collected" / host.name
        try:
            async with gate:
                told = partial(progress, host.name)
                fetched = await fetch_results(program, patterns, folder, told)
        except (TfmuxError, OSError) as error:
            return HostResults(host.name, problem=reason_of(error))
        known = kept.get(host.name)
        if known and known.files and not (fetched.files or fetched.present or patterns):
            where = f"there were {known.files:,} in {known.folder}"
            return HostResults(host.name, problem=f"its results have been removed; {where}")
        return HostResults(host.name, fetched)

    try:
        return await asyncio.gather(*map(collect, hosts))
    finally:
        await logins.aclose()


def _way(run: StoredRun, host: HostPlan) -> HostPlan:
    """The way to a host after the run. To a node that an engine had given there is none any more:
    its home is looked for where the engine's commands are, since nodes share theirs."""
    slurm = run.cluster.slurm
    if slurm is None or not host.has_agent:
        return host
    login = slurm.login
    ssh = None if login is None else SshTarget(login.user, login.host, login.port)
    return replace(host, ssh=ssh, via=(), has_agent=False)
