"""The preflight: everything that would go wrong minutes after a launch, found before it.

    run       `preflight`: all hosts at once, findings as they come, one report
    host      the questions to one host, and what its answers mean there
    visit     an agent on a host for as long as the questions take; nothing of it stays
    judge     pure functions: an agent's answers become findings
    matrix    which host must reach which task, and what a connection's end means
    across    what only shows beside the other hosts: versions, a log directory that is not shared
    findings  the words: severities, checks, findings, pairs
    report    all of it together, and as JSON

Nothing is started but tfmux's own agent, which is gone afterwards, its folder included.
`docs/preflight.md` lists the codes.
"""

from .findings import CHECKS, LOGIN_CHECKS, Check, Finding, Pair, Reach, Severity
from .report import REPORT_SCHEMA, Report
from .run import preflight

__all__ = [
    "CHECKS",
    "LOGIN_CHECKS",
    "REPORT_SCHEMA",
    "Check",
    "Finding",
    "Pair",
    "Reach",
    "Report",
    "Severity",
    "preflight",
]
