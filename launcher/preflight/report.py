"""Report of a preflight: all results, and their JSON form."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, TypeAdapter

from ..frozen import frozen
from ..slurm.script import JobRequest
from .findings import CHECKS, Check, Finding, Reach, Reachability, Severity

if TYPE_CHECKING:
    from ..hosts.host_keys import HostKey

Seconds = Annotated[float, Field(ge=0)]


@frozen
class FindingRecord:
    """Result of a check, for programs."""

    severity: Severity
    check: Check
    code: Annotated[str, Field(description="`ok`, or one of docs/preflight.md")]
    host: str
    brief: str
    sentence: str
    todo: str
    task: Annotated[str, Field(description="the task it is about; empty: none")]
    other: Annotated[str, Field(description="the host at the connection's other end")]
    offer: Annotated[str, Field(description="an interpreter there that would do, by its path")]


@frozen
class ReachRecord:
    """Connection from a host to a task's address, for programs."""

    source: Annotated[str, Field(alias="from")]
    task: str
    to: str
    address: str
    resolved: str
    reach: Reach
    seconds: Seconds


@frozen
class KeyRecord:
    """Host key that was unknown and is trusted from now on."""

    host: str
    place: str
    type: str
    fingerprint: str


@frozen
class ReportRecord:
    """Report of a preflight, for programs."""

    name: str
    ok: Annotated[bool, Field(description="no errors: a launch may go ahead")]
    seconds: Seconds
    hosts: tuple[str, ...]
    findings: tuple[FindingRecord, ...]
    reach: tuple[ReachRecord, ...]
    slurm: Annotated[JobRequest | None, Field(description="with `[slurm]`")]
    accepted: tuple[KeyRecord, ...]


@cache
def _record_type() -> TypeAdapter[ReportRecord]:
    return TypeAdapter(ReportRecord)


def report_schema() -> dict[str, Any]:
    """The JSON Schema of `tfmux check --json`."""
    return _record_type().json_schema(mode="serialization", by_alias=True)


@frozen
class Report:
    """Results of a preflight; the findings are in the order of hosts and checks."""

    name: str
    hosts: tuple[str, ...]
    findings: tuple[Finding, ...]
    reachability: tuple[Reachability, ...]
    accepted: tuple[tuple[str, HostKey], ...]
    seconds: float
    request: JobRequest | None = None
    """The request for nodes that was looked at."""
    checks: tuple[Check, ...] = CHECKS
    """The checks that were made."""

    @property
    def ok(self) -> bool:
        """No finding is an error."""
        return all(finding.severity is not Severity.ERROR for finding in self.findings)

    def json(self) -> dict[str, Any]:
        """The report as `report_schema` describes it."""
        whole = ReportRecord(
            name=self.name,
            ok=self.ok,
            seconds=round(self.seconds, 3),
            hosts=self.hosts,
            findings=tuple(map(_finding, self.findings)),
            reach=tuple(map(_reach, self.reachability)),
            slurm=self.request,
            accepted=tuple(
                KeyRecord(host, key.place, key.kind, key.fingerprint) for host, key in self.accepted
            ),
        )
        made: dict[str, Any] = _record_type().dump_python(whole, mode="json", by_alias=True)
        return made


def _finding(finding: Finding) -> FindingRecord:
    return FindingRecord(
        severity=finding.severity,
        check=finding.check,
        code=finding.code,
        host=finding.host,
        brief=finding.brief,
        sentence=finding.sentence,
        todo=finding.todo,
        task=str(finding.task or ""),
        other=finding.other,
        offer=finding.offer,
    )


def _reach(pair: Reachability) -> ReachRecord:
    return ReachRecord(
        source=pair.source,
        task=str(pair.task),
        to=pair.target,
        address=pair.address,
        resolved=pair.resolved,
        reach=pair.reach,
        seconds=round(pair.seconds, 4),
    )
