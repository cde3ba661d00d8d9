"""Preflight of a cluster whose hosts Slurm gives: all that needs no allocation."""

from __future__ import annotations

import time
from collections.abc import Callable

from ..cluster.model import ClusterModel
from ..errors import TfmuxError
from ..slurm.job import SlurmJob
from ..slurm.limits import SlurmFinding, Subject, Verdict
from ..slurm.login import SlurmError
from ..slurm.script import JobRequest
from . import evaluate
from .findings import ENGINE_CHECKS, Check, Finding, Result, blocking, passed, warning
from .hooks import check_hooks
from .report import Report

_SLURM = "Slurm"
_CHECKS = {Subject.REQUEST: Check.QUEUE, Subject.LIMITS: Check.LIMITS}


async def check_queue(
    cluster: ClusterModel,
    job: SlurmJob,
    request: JobRequest | None,
    on_result: Callable[[Result], None],
) -> Report:
    """Asks Slurm whether it would take the request, and what matters to a kill. `request` is only
    shown."""
    began = time.monotonic()
    findings: list[Finding] = []

    def add(finding: Finding) -> None:
        findings.append(finding)
        on_result(finding)

    for found in evaluate.restarts(cluster, Check.QUEUE, _SLURM):
        add(found)
    await check_hooks(cluster, Check.QUEUE, _SLURM, add)
    try:
        async for finding in job.examine():
            add(_finding(finding))
    except TfmuxError as error:
        what, todo = str(error), ""
        if isinstance(error, SlurmError):
            what, todo = error.what, error.todo
        about = (Check.QUEUE, "slurm-refused", _SLURM, "refused")
        add(blocking(*about, what, todo or "correct [slurm]"))
    return Report(
        name=cluster.name,
        hosts=(_SLURM,),
        findings=tuple(findings),
        reachability=(),
        accepted=(),
        seconds=time.monotonic() - began,
        request=request,
        checks=ENGINE_CHECKS,
    )


def _finding(finding: SlurmFinding) -> Finding:
    check = _CHECKS[finding.about]
    if finding.verdict is Verdict.PASSED:
        return passed(check, _SLURM, finding.brief, finding.text)
    make = warning if finding.verdict is Verdict.WARNING else blocking
    return make(check, finding.code, _SLURM, finding.brief, finding.text, finding.todo)
