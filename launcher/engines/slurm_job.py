"""A running Slurm job of the user, such as one of `salloc`, in which a run has job steps.

The agents are steps, as in a job of the run's own, so the lease, `keep`, detaching and `attach`
hold. What is released at the end, and what Slurm's word is about, are these steps alone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

from ..cluster.spec import ClusterModel
from ..plan.model import Plan, SshTarget
from .commands import LocalCommands
from .engine import EngineError, EngineFinding, JobState, Verdict
from .slurm import SlurmEngine
from .slurm_script import UNSET, job_name, rules_of, script_in_job

if TYPE_CHECKING:
    from ..hosts.ssh import SshConnector

_START_SECONDS = 10.0
"""How long the steps are waited for; the launcher waits for the agents in them after that."""
_LOOK_AGAIN = 0.3


class SlurmJobEngine(SlurmEngine):
    """Slurm, for one run in a job that was there before; implements `engine.Engine`."""

    owns_job = False
    _looked = False

    async def request(self) -> str:
        """Starts an agent on each node; returns the job's id.

        Raises:
            EngineError: the job does not run, has too few nodes, or srun cannot be started.
        """
        job, nodes = self._job, await self._nodes()
        script = script_in_job(self._table, self._run_id, self._rules, nodes)
        output = await self._commands.run(("sh", "-s"), script)
        if output.status != 0:
            raise output.failure("sh")
        deadline = time.monotonic() + _START_SECONDS
        while True:
            if len(await self._steps(job)) >= len(nodes) or time.monotonic() > deadline:
                return job
            await asyncio.sleep(_LOOK_AGAIN)

    async def find(self) -> str:
        """The job, when it has steps of this run.

        Raises:
            EngineError: Slurm did not answer.
        """
        return self._job if await self._steps(self._job) else ""

    async def poll(self, job: str) -> JobState:
        """Asks for the state of the job; without steps of the run it is over for the run, except at
        the first look: if the agents have ended at once, a bridge reports the reason.

        Raises:
            EngineError: Slurm did not answer.
        """
        state = await super().poll(job)
        if state.over or not state.nodes:
            return state
        if self._looked and not await self._steps(job):
            return JobState("ENDED", "no agent is left in it", over=True)
        self._looked = True
        return JobState(state.state, nodes=state.nodes[: self._table.nodes])

    async def release(self, job: str) -> None:
        """Cancels the run's steps.

        Raises:
            EngineError: Slurm did not answer, or refused.
        """
        if steps := await self._steps(job):
            await self._ask("scancel", *steps, gone_is_fine=True)

    def cancel_command(self, job: str) -> str:
        """By the name of the steps."""
        named = f"awk '$2 == \"{job_name(self._run_id)}\" {{print $1}}'"
        return f"squeue -s -h -j {self._job} -o '%i %j' | {named} | xargs -r scancel"

    async def examine(self) -> AsyncIterator[EngineFinding]:
        """Whether the job runs and has the nodes, and what of Slurm's configuration matters to a
        kill.

        Raises:
            EngineError: the job cannot be used.
        """
        nodes = await self._nodes()
        left = (await self._run("squeue", "-h", "-j", self._job, "-o", "%L")).stdout.strip()
        said = f"Slurm {self._job} runs on {', '.join(nodes[:8])}{' …' if len(nodes) > 8 else ''}"
        said += f", for {left} from now on" if left[:1].isdigit() and left.isprintable() else ""
        yield EngineFinding(Verdict.PASSED, "", "it runs", said)
        async for finding in self._examine_limits():
            yield finding

    async def _held(self, job: str, nodes: Sequence[str]) -> tuple[str, ...]:
        state = await super().poll(job)
        if state.over or not state.nodes:
            return await super()._held(job, nodes)
        listed = {*(await self._steps(job)).values()} - {"", "(null)"}
        return await self._expand(",".join(sorted(listed)))

    @property
    def _job(self) -> str:
        assert self._table.job is not None
        return self._table.job

    async def _nodes(self) -> tuple[str, ...]:
        """The nodes for the run.

        Raises:
            EngineError: the job does not run, or has fewer.
        """
        state = await super().poll(self._job)
        if state.over or not state.nodes:
            raise EngineError(f"job {self._job} is {state.state}", "write a job that runs")
        if len(state.nodes) < self._table.nodes:
            what = f"job {self._job} has {len(state.nodes)} nodes, "
            what += f"[slurm] asks for {self._table.nodes}"
            raise EngineError(what, "ask salloc for more, or write fewer")
        return state.nodes[: self._table.nodes]

    async def _steps(self, job: str) -> dict[str, str]:
        """The run's steps in the job, of agents and of bridges, by their name: each step's id with
        its nodes as Slurm writes them.

        Raises:
            EngineError: Slurm did not answer.
        """
        name = job_name(self._run_id)
        asked = ("squeue", "-s", "-h", "-j", job, "-o", "%i|%j|%N")
        said = await self._ask(*asked, gone_is_fine=True)
        rows = [line.strip().split("|") for line in said.splitlines()]
        return {row[0]: row[2] for row in rows if len(row) == 3 and row[1] == name}


def slurm_engine(
    cluster: ClusterModel, plan: Plan, logins: SshConnector | None
) -> SlurmEngine | None:
    """Slurm as a cluster file describes it, for the run of a plan; None without `[slurm]`."""
    table, rules = cluster.slurm, rules_of(plan)
    if table is None:
        return None
    kind = SlurmEngine if table.job is None else SlurmJobEngine
    secrets = {name for task in plan.tasks for name in task.env_from}
    if table.login is None:
        return kind(table, plan.run_id, rules, LocalCommands({*secrets, *UNSET}), secrets)
    from .login_commands import LoginCommands

    assert logins is not None
    login = SshTarget(table.login.user, table.login.host, table.login.port)
    return kind(table, plan.run_id, rules, LoginCommands(logins, login), secrets)
