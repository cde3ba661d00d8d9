"""Preflight of a cluster whose hosts an engine gives: all that needs no allocation."""

from __future__ import annotations

import time
from collections.abc import Callable

from ..cluster.spec import ClusterModel
from ..engines.engine import Engine, EngineError, EngineFinding, Subject, Verdict
from ..engines.slurm_script import JobRequest
from ..errors import TfmuxError
from .findings import ENGINE_CHECKS, Check, Finding, Result, blocking, passed, warning
from .hooks import check_hooks
from .report import Report

_CHECKS = {
    Subject.REQUEST: Check.QUEUE,
    Subject.LIMITS: Check.LIMITS,
    Subject.PYTHON: Check.PYTHON,
}


async def check_engine(
    cluster: ClusterModel,
    engine: Engine,
    request: JobRequest | None,
    on_result: Callable[[Result], None],
) -> Report:
    """Asks the engine of a cluster whether it would take the request, and what matters
    to a kill. `request` is only shown."""
    began = time.monotonic()
    findings: list[Finding] = []

    def add(finding: Finding) -> None:
        findings.append(finding)
        on_result(finding)

    await check_hooks(cluster, Check.QUEUE, engine.name, add)
    try:
        async for finding in engine.examine():
            add(_finding(engine.name, finding))
    except TfmuxError as error:
        table = engine.name.lower()
        what, todo = str(error), ""
        if isinstance(error, EngineError):
            what, todo = error.what, error.todo
        about = (Check.QUEUE, f"{table}-refused", engine.name, "refused")
        add(blocking(*about, what, todo or f"correct [{table}]"))
    return Report(
        name=cluster.name,
        hosts=(engine.name,),
        findings=tuple(findings),
        reachability=(),
        accepted=(),
        seconds=time.monotonic() - began,
        request=request,
        checks=ENGINE_CHECKS,
    )


def _finding(name: str, finding: EngineFinding) -> Finding:
    check = _CHECKS[finding.about]
    if finding.verdict is Verdict.PASSED:
        return passed(check, name, finding.brief, finding.text)
    make = warning if finding.verdict is Verdict.WARNING else blocking
    return make(check, finding.code, name, finding.brief, finding.text, finding.todo)
