"""Cluster files that several modules of tests need."""

from __future__ import annotations

from pathlib import Path

from launcher.cluster import ClusterModel, loads

KEPT = """
name = "kept"
[jobs.worker]
tasks = ["localhost:auto"]
[run]
command = ["sleep", "1000"]
workdir = ""
grace = 1
on_disconnect = "keep"
[start.ready]
worker = "started"
"""
"""One task that sleeps, and goes on without a launcher for ever."""
UNLISTED_HOSTS = """
name = "c"
[jobs.worker]
tasks = ["node0:2222", "node1:2222"]
[run]
command = ["true"]
"""
"""Two tasks on hosts that a list is to name."""
_ON_SLURM = """
[slurm]
nodes = 2
{time}
{slurm}
[jobs.worker]
tasks = ["node0:auto", "{second}:auto"]
[run]
command = ["true"]
"""


def on_slurm(slurm: str = "", second: str = "node1", time: str = 'time = "10"') -> str:
    """Two tasks on nodes of Slurm, with further lines of `[slurm]`."""
    return _ON_SLURM.format(slurm=slurm, second=second, time=time)


def cluster_on_slurm(slurm: str = "", second: str = "node1", more: str = "") -> ClusterModel:
    """The same, read, with more below it."""
    return loads(on_slurm(slurm, second) + more, "c.toml", Path("/srv"))
