"""Interpreters that past runs have used on a host."""

from __future__ import annotations

from contextlib import suppress

from ..cluster.file_model import ClusterModel
from ..cluster.read import load
from ..errors import TfmuxError
from ..store.runs import RunFolder

_MOST_READ = 20
"""Runs that are read, the newest first."""


def used_pythons(cluster: ClusterModel, host: str) -> list[str]:
    """Interpreters that other cluster files have had for a host that is reached the same way, the
    last used one first. Blocking."""
    here = cluster.hosts.get(host)
    found: dict[str, None] = {}
    for folder in RunFolder.all()[:_MOST_READ]:
        with suppress(TfmuxError):
            for entry in load(folder.cluster_file, base=folder.origin).hosts.values():
                same = here is not None and (entry.ssh, entry.via) == (here.ssh, here.via)
                if same and entry.python and "{" not in entry.python:
                    found[entry.python] = None
    return [python for python in found if here is None or python != here.python]
