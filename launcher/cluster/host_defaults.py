"""Checks of `[defaults.host]`: values that no host would have, and the places of wrong ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from .checks import Violation
from .key_lines import KeyPath
from .spec import ClusterModel

_PATH: KeyPath = ("defaults", "host")


def unused_defaults(cluster: ClusterModel) -> Iterator[Violation]:
    """Finds defaults that no host would have."""
    if not any(value for _, value in cluster.defaults.host):
        return
    if cluster.slurm is not None:
        message = "the hosts are given by Slurm: write python in [slurm], and "
        yield Violation(_PATH, None, f"{message}the rest in [run], or remove this table")
    elif not cluster.hosts:
        message = "the file has no [hosts.NAME] that it holds for: add [hosts.localhost] for this "
        yield Violation(_PATH, None, f"{message}machine, or remove this table")


def at_default(violation: Violation, raw: dict[str, Any]) -> Violation:
    """Places what is wrong with a host's value in `[defaults.host]`, if it stands there."""
    inherited: KeyPath = (*_PATH, *violation.path[2:])
    if violation.path[0] != "hosts" or len(violation.path) < 3 or _has(raw, violation.path):
        return violation
    return replace(violation, path=inherited) if _has(raw, inherited) else violation


def _has(raw: Any, path: KeyPath) -> bool:
    for key in path:
        if not isinstance(raw, dict) or key not in raw:
            return False
        raw = raw[key]
    return True
