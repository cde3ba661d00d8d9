"""Limits of podman without root, as findings before a launch."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from pathlib import Path

from ..cluster.podman import Podman
from .engine import EngineFinding, Subject, Verdict

_LINGER = Path("/var/lib/systemd/linger")
_LIMITS = ("--cpus", "--cpu-shares", "--memory", "--pids-limit")


def rootless_findings(table: Podman, cgroups: str) -> Iterator[EngineFinding]:
    """Warnings of options that have no effect, and of an end at logout. `cgroups` is their
    version, as podman prints it."""
    limits = [option for option in table.options if option.partition("=")[0] in _LIMITS]
    if limits and cgroups == "v1":
        yield EngineFinding(
            Verdict.WARNING,
            "podman-limits",
            "no limits",
            f"{', '.join(limits)}: podman without root limits nothing on cgroups v1",
            "start this machine with cgroups v2, or remove them from options",
            Subject.LIMITS,
        )
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return
    if Path("/run/systemd/system").exists() and not (_LINGER / user).exists():
        yield EngineFinding(
            Verdict.WARNING,
            "podman-linger",
            "no lingering",
            "podman runs without root: systemd ends the containers when you log out",
            "loginctl enable-linger",
            Subject.LIMITS,
        )
