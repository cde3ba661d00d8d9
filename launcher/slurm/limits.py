"""Settings of a Slurm cluster that matter to a kill, and findings on them before a launch."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from enum import Enum, auto

from ..frozen import frozen

CGROUP = "proctrack/cgroup"


class LimitsVerdict(Enum):
    """Whether a finding is about something that passed."""

    PASSED = auto()
    WARNING = auto()


class Subject(Enum):
    """Part of a launch that a finding is about."""

    REQUEST = auto()
    LIMITS = auto()


@frozen
class SlurmFinding:
    """Result of a check of Slurm before a launch; `preflight` makes a `Finding` of it."""

    verdict: LimitsVerdict
    code: str
    brief: str
    text: str
    todo: str = ""
    about: Subject = Subject.REQUEST


@frozen
class Limits:
    """Values of Slurm's configuration that matter to a run."""

    contains: bool
    """Slurm finds every process of a job, by cgroups."""
    kill_wait: float | None
    """Seconds between TERM and KILL when Slurm ends a job."""
    cluster: str = ""
    """Name of the cluster."""


def parse_config(said: str) -> Limits:
    """The limits in the output of `scontrol show config`."""
    track = re.search(r"^ProctrackType\s*=\s*(\S+)", said, re.MULTILINE)
    wait = re.search(r"^KillWait\s*=\s*(\d{1,9})\b", said, re.MULTILINE)
    name = re.search(r"^ClusterName\s*=\s*(\S+)", said, re.MULTILINE)
    return Limits(
        track is not None and track[1] == CGROUP,
        float(wait[1]) if wait else None,
        name[1] if name else "",
    )


def limit_findings(limits: Limits, grace: float, secrets: Sequence[str]) -> Iterator[SlurmFinding]:
    """Warnings of limits that spoil a kill, and of secrets that others on the network can read."""
    if limits.kill_wait is not None and grace >= limits.kill_wait:
        yield SlurmFinding(
            LimitsVerdict.WARNING,
            "slurm-killwait",
            "short KillWait",
            f"grace is {grace:g} s, but at its time limit or when the job is cancelled "
            f"Slurm kills {limits.kill_wait:g} s after TERM (KillWait)",
            f"write a grace below {limits.kill_wait:g}",
            Subject.LIMITS,
        )
    if not limits.contains:
        yield SlurmFinding(
            LimitsVerdict.WARNING,
            "slurm-proctrack",
            "no cgroups",
            "Slurm does not track processes by cgroups here (ProctrackType): it cannot confirm "
            "that no process is left on a node whose agent is lost",
            about=Subject.LIMITS,
        )
    if secrets:
        yield SlurmFinding(
            LimitsVerdict.WARNING,
            "slurm-plaintext",
            "env_from",
            f"the values of {', '.join(secrets)} (env_from) cross the cluster's network "
            "unencrypted: srun has no encryption",
            about=Subject.LIMITS,
        )
