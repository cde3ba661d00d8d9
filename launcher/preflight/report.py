"""All findings of a preflight together, and their one JSON form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..hosts.host_keys import HostKey
from .findings import Check, Finding, Pair, Reach, Severity

_TEXT = {"type": "string"}


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
        ok={"type": "boolean", "description": "nothing stands in the way of a launch"},
        seconds={"type": "number", "minimum": 0},
        hosts={"type": "array", "items": _TEXT},
        findings={
            "type": "array",
            "items": _object(
                severity={"enum": [str(each) for each in Severity]},
                check={"enum": [str(each) for each in Check]},
                code={"type": "string", "description": "`ok`, or one of docs/preflight.md"},
                host=_TEXT,
                brief=_TEXT,
                sentence=_TEXT,
                todo=_TEXT,
            ),
        },
        reach={
            "type": "array",
            "items": {
                **_object(
                    **{"from": _TEXT},
                    task=_TEXT,
                    to=_TEXT,
                    address=_TEXT,
                    reach={"enum": [str(each) for each in Reach]},
                    resolved=_TEXT,
                    seconds={"type": "number", "minimum": 0},
                )
            },
        },
        accepted={
            "type": "array",
            "description": "host keys that were unknown and are trusted from now on",
            "items": _object(host=_TEXT, place=_TEXT, type=_TEXT, fingerprint=_TEXT),
        },
    ),
}
"""The schema of `tfmux check --json`."""


@dataclass(frozen=True)
class Report:
    """What a preflight found: findings in the order of hosts and checks."""

    name: str
    hosts: tuple[str, ...]
    findings: tuple[Finding, ...]
    pairs: tuple[Pair, ...]
    accepted: tuple[tuple[str, HostKey], ...]
    seconds: float

    @property
    def ok(self) -> bool:
        """Nothing stands in the way of a launch."""
        return all(finding.severity is not Severity.ERROR for finding in self.findings)

    def worst(self, host: str, check: Check) -> Finding | None:
        """What a table's cell shows: the worst finding, the first of several; None where
        nothing was looked at."""
        found = [f for f in self.findings if f.host == host and f.check is check]
        return max(found, key=lambda finding: finding.severity.rank, default=None)

    def json(self) -> dict[str, Any]:
        """The report as `REPORT_SCHEMA` describes it."""
        return {
            "name": self.name,
            "ok": self.ok,
            "seconds": round(self.seconds, 3),
            "hosts": list(self.hosts),
            "findings": [
                {
                    "severity": str(finding.severity),
                    "check": str(finding.check),
                    "code": finding.code,
                    "host": finding.host,
                    "brief": finding.brief,
                    "sentence": finding.sentence,
                    "todo": finding.todo,
                }
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
                for pair in self.pairs
            ],
            "accepted": [
                {
                    "host": host,
                    "place": key.place,
                    "type": key.kind,
                    "fingerprint": key.fingerprint,
                }
                for host, key in self.accepted
            ],
        }
