"""Ranks of the tasks that train, as `torchrun` and `mpirun` number their processes.

The tasks that train are those of the jobs in the cluster spec except `ps`: helpers, evaluators and
parameter servers have no rank. A job that is called `chief` or `master` has rank 0, as in a
PyTorchJob. Other ranks follow the order of the file: jobs as they stand in it, and each job's list
of tasks.
"""

from __future__ import annotations

from collections import Counter

from ..frozen import frozen
from ..ids import TaskId
from .file_model import ClusterModel
from .roles import Role


@frozen
class Rank:
    """Place of one task among those that train. Nodes are hosts with such tasks."""

    rank: int
    world_size: int
    local_rank: int
    """Number among the tasks of its host."""
    local_world_size: int
    node_rank: int
    master: TaskId
    """Rank 0. The others meet at its port."""


def has_ranks(cluster: ClusterModel, job: str) -> bool:
    """Whether the tasks of a job have ranks."""
    return cluster.role(job).trains


def ranks_with_gpus(cluster: ClusterModel) -> Counter[str]:
    """Counts the tasks of each host that expect a GPU of their own: those with ranks, in the
    frameworks whose programs choose one by it."""
    found: Counter[str] = Counter()
    if cluster.run.framework.meets:
        for name, job in cluster.jobs.items():
            if has_ranks(cluster, name) and job.gpus != 0:
                found.update(place.host for place in job.tasks)
    return found


def ranks(cluster: ClusterModel) -> dict[TaskId, Rank]:
    """Numbers the tasks that train."""
    hosts = {
        TaskId(job, index): place.host
        for job, entry in sorted(
            cluster.jobs.items(), key=lambda item: cluster.role(item[0]) is not Role.CHIEF
        )
        if has_ranks(cluster, job)
        for index, place in enumerate(entry.tasks)
    }
    sizes = Counter(hosts.values())
    nodes = {host: number for number, host in enumerate(sizes)}
    seen: Counter[str] = Counter()
    found: dict[TaskId, Rank] = {}
    for number, (task, host) in enumerate(hosts.items()):
        local, master = seen[host], next(iter(hosts))
        found[task] = Rank(number, len(hosts), local, sizes[host], nodes[host], master)
        seen[host] += 1
    return found
