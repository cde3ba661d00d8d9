"""Limits of a Slurm cluster that matter to a run, and findings on them before a launch."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from enum import Enum, auto

from ..cluster.file_model import Slurm
from ..frozen import frozen
from ..printable import printable
from .login import SlurmError

CGROUP = "proctrack/cgroup"
_TIME = re.compile(r"(?:(?P<days>\d{1,9})-)?(?P<rest>\d{1,9}(?::\d{1,9}){0,2})")
_UNLIMITED = ("infinite", "n/a", "unlimited")
_OVERRIDING = ("--qos", "--clusters", "--reservation", "--partition")
"""Options under which other limits hold than those of the partition here; sbatch takes their
abbreviations, too."""


class Verdict(Enum):
    """Whether a finding is about something that passed, or how bad it is."""

    PASSED = auto()
    WARNING = auto()
    BLOCKING = auto()


class Subject(Enum):
    """Part of a launch that a finding is about."""

    REQUEST = auto()
    LIMITS = auto()


@frozen
class SlurmFinding:
    """Result of a check of Slurm before a launch; `preflight` makes a `Finding` of it."""

    verdict: Verdict
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
            Verdict.WARNING,
            "slurm-killwait",
            "short KillWait",
            f"grace is {grace:g} s, but at its time limit or when the job is cancelled "
            f"Slurm kills {limits.kill_wait:g} s after TERM (KillWait)",
            f"write a grace below {limits.kill_wait:g}",
            Subject.LIMITS,
        )
    if not limits.contains:
        yield SlurmFinding(
            Verdict.WARNING,
            "slurm-proctrack",
            "no cgroups",
            "Slurm does not track processes by cgroups here (ProctrackType): it cannot confirm "
            "that nothing is left on a node, and one whose agent is gone stays unconfirmed",
            about=Subject.LIMITS,
        )
    if secrets:
        yield SlurmFinding(
            Verdict.WARNING,
            "slurm-plaintext",
            "env_from",
            f"the values of {', '.join(secrets)} (env_from) cross the cluster's network "
            "unencrypted: srun has no encryption",
            about=Subject.LIMITS,
        )


def check_time(table: Slurm, partitions: str) -> None:
    """Compares `time` with the limits of the partitions that the job may be in. sbatch accepts a
    longer one, and the job would wait for ever. `partitions` is the output of `sinfo -o '%P|%l'`.

    Raises:
        SlurmError: it is too long for all of them.
    """
    wanted = seconds_of(table.time or "")
    given = tuple(option.partition("=")[0] for option in table.options)
    if wanted is None or any(name.startswith(given) for name in _OVERRIDING):
        return
    limits: dict[str, str] = {}
    default = ""
    for line in partitions.splitlines():
        name, _, limit = line.strip().partition("|")
        default = name[:-1] if name.endswith("*") else default
        limits[name.removesuffix("*")] = limit.strip()
    names = (table.partition or default).split(",")
    found = {name: seconds_of(limits.get(name, "")) for name in names}
    if any(limit is None or limit >= wanted for limit in found.values()):
        return
    said = ", ".join(f"{name} allows {printable(limits[name], 40)}" for name in names)
    raise SlurmError(
        f"time is {table.time}, but the partition {said}",
        "write a shorter time or another partition in [slurm] (sinfo -o '%P %l' lists them)",
    )


def limit_variables(table: Slurm) -> tuple[str, ...]:
    """Variables of sbatch under which other limits hold than those that `check_time` compares."""
    common = ("SBATCH_QOS", "SBATCH_CLUSTERS", "SBATCH_RESERVATION")
    return common if table.partition is not None else (*common, "SBATCH_PARTITION")


def seconds_of(text: str) -> float | None:
    """Seconds of a time limit as Slurm writes it; None where it is none."""
    if text.lower() in _UNLIMITED:
        return math.inf
    found = _TIME.fullmatch(text)
    if found is None:
        return None
    parts = [int(part) for part in found["rest"].split(":")]
    if found["days"] is not None:  # days-hours:minutes:seconds
        hours, minutes, seconds = (*parts, 0, 0)[:3]
        return float(((int(found["days"]) * 24 + hours) * 60 + minutes) * 60 + seconds)
    if len(parts) == 1:
        parts = [0, parts[0], 0]
    hours, minutes, seconds = parts if len(parts) == 3 else (0, *parts)
    return float((hours * 60 + minutes) * 60 + seconds) or math.inf  # 0: no limit
