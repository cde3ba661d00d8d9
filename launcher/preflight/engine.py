"""Preflight of a cluster whose hosts an engine gives: all that needs no allocation."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from ..cluster.spec import Cluster
from ..engines.slurm import Limits, slurm_engine
from ..engines.slurm_script import request_of
from ..errors import TfmuxError
from ..hosts.ssh import SshConnector
from ..ids import new_run_id
from ..plan.plan import Plan, make_plan
from .findings import Check, Finding, Result, blocking, passed, warning
from .report import Report


async def check_engine(
    cluster: Cluster, logins: SshConnector, on_result: Callable[[Result], None]
) -> Report:
    """Asks Slurm whether it would take the request, and for the limits that matter to a kill."""
    began = time.monotonic()
    plan = make_plan(cluster, new_run_id("check"))
    engine = slurm_engine(cluster, plan, logins)
    findings: list[Finding] = []

    def tell(finding: Finding) -> None:
        findings.append(finding)
        on_result(finding)

    try:
        said = await engine.test()
        tell(passed(Check.QUEUE, engine.name, "accepted", said or "sbatch accepts the request"))
    except TfmuxError as error:
        todo = "correct [slurm], or start tfmux where sbatch is"
        tell(blocking(Check.QUEUE, "slurm-refused", engine.name, "refused", str(error), todo))
    else:
        try:
            for finding in _limits(engine.name, plan, await engine.limits()):
                tell(finding)
        except TfmuxError as error:
            tell(warning(Check.QUEUE, "slurm-silent", engine.name, "no answer", str(error)))
    return Report(
        name=cluster.name,
        hosts=(engine.name,),
        findings=tuple(findings),
        reachability=(),
        accepted=(),
        seconds=time.monotonic() - began,
        request=request_of(cluster, plan),
    )


def _limits(name: str, plan: Plan, limits: Limits) -> Iterator[Finding]:
    grace = plan.settings.grace
    if limits.kill_wait is not None and grace >= limits.kill_wait:
        yield warning(
            Check.QUEUE,
            "slurm-killwait",
            name,
            "short KillWait",
            f"grace is {grace:g} s, but at its time limit or when somebody cancels the job Slurm "
            f"kills {limits.kill_wait:g} s after TERM (KillWait)",
            f"write a grace below {limits.kill_wait:g}",
        )
    if not limits.contains:
        yield warning(
            Check.QUEUE,
            "slurm-proctrack",
            name,
            "no cgroups",
            "Slurm does not track processes by cgroups here (ProctrackType): its word does not "
            "count in a receipt, and of a node whose agent is gone nothing is confirmed",
        )
    secrets = sorted({name for task in plan.tasks for name in task.env_from})
    if secrets:
        yield warning(
            Check.QUEUE,
            "slurm-plaintext",
            name,
            "env_from",
            f"the values of {', '.join(secrets)} (env_from) cross the cluster's network "
            "unencrypted: srun has no encryption",
        )
