"""Results that have stayed on the hosts of a run: brought to this machine at any time later,
asked for, and deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from ..errors import TfmuxError
from ..files.collecting import Fetched, fetch_results, reason_of
from ..frozen import frozen
from ..hosts.auth_prompt import PromptHandler
from ..hosts.frames import Answer
from ..hosts.programs import HostProgram
from ..hosts.ssh import SshConnector
from ..hosts.transport import allow_connections
from ..hosts.ways import ssh_connector, transport_factory
from ..plan.run_plan import HostPlan, SshTarget
from ..run.fields import Count, Text
from .stored import StoredRun

_AT_ONCE = 16
"""Hosts from which results are brought at the same time."""
_ASK_SECONDS = 600.0
"""Time in which a host counts what it holds, or deletes it."""


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
    if not begun and run.over:
        return ()
    return tuple(
        host for host in plan.hosts if plan.copies(host) and (host.name in begun or not begun)
    )


class HeldAnswer(Answer):
    """How many files, of how many bytes, a host holds of the run, and where; `problem`: there may
    be more."""

    WHAT = "own"
    files: Count
    bytes: Count
    above: Count
    folder: Text
    problem: Text


class FreedAnswer(Answer):
    """Why something of the run stays on a host; empty if nothing does."""

    WHAT = "free"
    why: Text


A = TypeVar("A", bound=Answer)


def held_by_hosts(
    run: StoredRun, hosts: Sequence[HostPlan], ask: PromptHandler | None = None
) -> dict[str, HeldAnswer | str]:
    """Asks hosts what they hold of a run that has ended; of each its answer, or why there is none.
    Blocking, with an event loop of its own."""
    return asyncio.run(_ask_hosts(run, hosts, HeldAnswer, ask))


def free_hosts(
    run: StoredRun, hosts: Sequence[HostPlan], ask: PromptHandler | None = None
) -> dict[str, str]:
    """Has hosts delete what they hold of a run that has ended; of each why something stays, or
    nothing. Blocking, with an event loop of its own.

    Raises:
        OSError: it cannot be written down here.
    """
    answers = asyncio.run(_ask_hosts(run, hosts, FreedAnswer, ask))
    said = {host: one if isinstance(one, str) else one.why for host, one in answers.items()}
    run.folder.add_freed(host for host, why in said.items() if not why)
    return said


async def _ask_hosts(
    run: StoredRun, hosts: Sequence[HostPlan], kind: type[A], ask: PromptHandler | None
) -> dict[str, A | str]:
    allow_connections(len(hosts))
    logins = ssh_connector(ask)
    gate = asyncio.Semaphore(_AT_ONCE)

    async def answer_of(host: HostPlan) -> A | str:
        try:
            async with gate:
                program = await _program(run, host, logins)
                try:
                    (answer,) = await program.ask(kind, _ASK_SECONDS)
                    return answer
                finally:
                    await program.aclose()
        except (TfmuxError, OSError) as error:
            return reason_of(error)

    try:
        answers = await asyncio.gather(*map(answer_of, hosts))
    finally:
        await logins.aclose()
    return {host.name: answer for host, answer in zip(hosts, answers, strict=True)}


async def _program(run: StoredRun, host: HostPlan, logins: SshConnector) -> HostProgram:
    """The short program on a host after the run.

    Raises:
        HostError: it cannot be started.
    """
    open_session = transport_factory(_way(run, host), logins)
    run_id = run.folder.run_id
    return await HostProgram.start(
        run_id, host.name, lambda nonce: open_session(run_id, nonce), alone=True
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
        folder = run.folder.path / "collected" / host.name
        try:
            async with gate:
                told = partial(progress, host.name)
                fetched = await fetch_results(
                    partial(_program, run, host, logins), patterns, folder, told
                )
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
