"""Checks of what this machine's system can run: tasks run on Linux alone."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from .addresses import AddressPart
from .checks import UNKNOWN, Violation
from .key_lines import KeyPath
from .spec import ClusterModel

NO_LOCAL_TASKS = "tasks run only on Linux, not on this machine: add a host with ssh"


def unsupported(cluster: ClusterModel) -> Iterator[Violation]:
    """Finds tasks of this machine, where that is not Linux; it can still launch on hosts."""
    return iter(()) if sys.platform == "linux" else _unsupported(cluster)


def _unsupported(cluster: ClusterModel) -> Iterator[Violation]:
    for name, job in cluster.jobs.items():
        for index, place in enumerate(job.tasks):
            if place.host != UNKNOWN and cluster.is_local(place.host):
                path: KeyPath = ("jobs", name, "tasks", index)
                yield Violation(path, str(place), NO_LOCAL_TASKS, AddressPart.HOST)
                break
