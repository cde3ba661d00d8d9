"""Report of a preflight: all results, and their JSON form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..frozen import frozen
from ..slurm.script import JobRequest
from .findings import CHECKS, Check, Finding, Reach, Reachability, Severity

if TYPE_CHECKING:
    from ..hosts.host_keys import HostKey

_TEXT = {"type": "string"}
_SECONDS = {"type": "number", "minimum": 0}
_FINDING = {
    "severity": {"enum": [str(each) for each in Severity]},
    "check": {"enum": [str(each) for each in Check]},
    "code": {"type": "string", "description": "`ok`, or one of docs/preflight.md"},
    **dict.fromkeys(("host", "brief", "sentence", "todo"), _TEXT),
    "task": {"type": "string", "description": "the task it is about; empty: none"},
    "other": {"type": "string", "description": "the host at the connection's other end"},
}
"""Attributes of a `Finding`, with the schema of each."""
_REACH = {
    **dict.fromkeys(("from", "task", "to", "address", "resolved"), _TEXT),
    "reach": {"enum": [str(each) for each in Reach]},
    "seconds": _SECONDS,
}


def _object(**fields: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": fields,
        "required": list(fields),
        "additionalProperties": False,
    }


REPORT_SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "tfmux check --json",
    **_object(
        name=_TEXT,
        ok={"type": "boolean", "description": "no errors: a launch may go ahead"},
        seconds=_SECONDS,
        hosts={"type": "array", "items": _TEXT},
        findings={"type": "array", "items": _object(**_FINDING)},
        reach={"type": "array", "items": _object(**_REACH)},
        slurm={
            "description": "with `[slurm]`: the command that would ask for the nodes, where it "
            "would run (empty: here), and the batch script that it would read",
            "anyOf": [
                _object(login=_TEXT, argv={"type": "array", "items": _TEXT}, script=_TEXT),
                {"type": "null"},
            ],
        },
        accepted={
            "type": "array",
            "description": "host keys that were unknown and are trusted from now on",
            "items": _object(host=_TEXT, place=_TEXT, type=_TEXT, fingerprint=_TEXT),
        },
    ),
}
"""The schema of `tfmux check --json`."""


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
        """The report as `REPORT_SCHEMA` describes it."""
        return {
            "name": self.name,
            "ok": self.ok,
            "seconds": round(self.seconds, 3),
            "hosts": list(self.hosts),
            "findings": [
                {name: str(getattr(finding, name) or "") for name in _FINDING}
                for finding in self.findings
            ],
            "reach": [
                {
                    "from": pair.source,
                    "task": str(pair.task),
                    "to": pair.target,
                    "address": pair.address,
                    "reach": str(pair.reach),
                    "resolved": pair.resolved,
                    "seconds": round(pair.seconds, 4),
                }
                for pair in self.reachability
            ],
            "slurm": None if self.request is None else self.request.json(),
            "accepted": [
                {"host": host, "place": key.place, "type": key.kind, "fingerprint": key.fingerprint}
                for host, key in self.accepted
            ],
        }
