"""Preflight: checks of all hosts of a cluster that find what would fail after a launch.

    preflight      `preflight`: checks all hosts at once, reports each finding when it is made
    host           the checks of one host
    probes         questions to a host, and the session of the program that answers them
    evaluation     pure functions that turn answers into findings
    reachability   which host must reach which task, and what the outcome of a connection means
    commands       checks of programs, modules and scripts of the tasks' commands
    modules        checks of what Python programs import
    distributions  packages that bring modules of another name
    findings       severities, checks, findings, outcomes of connections
    known_pythons  interpreters that past runs have used
    repairs        settings that repair findings; equal findings of several hosts together
    report         all results together, and as JSON

Nothing is started on a host but a program that answers questions and ends; no agent.
`docs/preflight.md` lists the codes.
"""

from .findings import (
    CHECKS,
    ENGINE_CHECKS,
    LOGIN_CHECKS,
    Check,
    Finding,
    Reach,
    Reachability,
    Severity,
)
from .report import Report, report_schema

__all__ = [
    "CHECKS",
    "ENGINE_CHECKS",
    "LOGIN_CHECKS",
    "Check",
    "Finding",
    "Reach",
    "Reachability",
    "Report",
    "Severity",
    "report_schema",
]
