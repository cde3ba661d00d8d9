"""Start order: the stages of a launch, each of which waits for the one before.

The default is ps, then chief, then all others. Ranks of torch, jax and mpi-like wait for each other
by themselves and start at once. A stage never waits for training progress: without device filters a
chief's session waits for all workers, so that would be a deadlock.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..cluster.model import ClusterModel
from ..ids import TaskId


def stages(cluster: ClusterModel) -> tuple[tuple[TaskId, ...], ...]:
    """Lists the tasks of each stage, every task once; tasks that are not in `order` come last.

    A job in `order` means those of its tasks that are not in `order` themselves, so that
    `[["worker:0"], ["worker"]]` is the chief and then the others.
    """
    order = cluster.start.order
    wanted = default_order(cluster) if order is None else order
    named = {entry for stage in wanted for entry in stage if ":" in entry}
    seen: set[TaskId] = set()
    result: list[tuple[TaskId, ...]] = []
    for stage in (*wanted, tuple(_cluster_jobs_first(cluster))):
        tasks = [task for entry in stage for task in _tasks(cluster, entry, named)]
        fresh = tuple(dict.fromkeys(task for task in tasks if task not in seen))
        seen.update(fresh)
        if fresh:
            result.append(fresh)
    return tuple(result)


def default_order(cluster: ClusterModel) -> tuple[tuple[str, ...], ...]:
    """Makes the entries of `[start] order` for ps → chief → every other job; without the chief's
    own stage where the framework's tasks wait for each other by themselves."""
    chief = None if cluster.run.framework.meets else cluster.chief
    first = ("ps",) if "ps" in cluster.jobs and cluster.jobs["ps"].in_cluster else ()
    second = () if chief is None else (str(chief),)
    return (first, second, tuple(job for job in _cluster_jobs_first(cluster) if job not in first))


def _cluster_jobs_first(cluster: ClusterModel) -> Sequence[str]:
    # The evaluator and helpers watch what the others do.
    return sorted(cluster.jobs, key=lambda job: not cluster.in_spec(job))


def _tasks(cluster: ClusterModel, entry: str, named: set[str]) -> list[TaskId]:
    if ":" in entry:
        return [TaskId.parse(entry)]
    tasks = (TaskId(entry, index) for index in range(len(cluster.jobs[entry].tasks)))
    return [task for task in tasks if str(task) not in named]
