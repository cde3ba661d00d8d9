"""What the other files of a run's folder say of the run, by which the records of its stream are
checked: its id, and the hosts and tasks of its cluster file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ..frozen import frozen
from ..ids import TaskId
from ..run.gpus import GpuSample
from ..run.snapshot import FactsView, HostView, Metric, Receipt, RunView, TaskView
from ..run.views import Record

if TYPE_CHECKING:
    from ..plan.run_plan import Plan
    from .stream import Summary


@frozen
class Declared:
    """A run by the other files of its folder."""

    run_id: str
    tasks: Mapping[TaskId, str] | None = None
    """Its tasks with their hosts; None where the cluster file was not read."""

    @classmethod
    def by(cls, plan: Plan) -> Declared:
        return cls(plan.run_id, {task.id: task.host for task in plan.tasks})

    def admits(self, record: Record | Metric | GpuSample | Summary) -> bool:
        """Whether a record can be one of this run: none names another run, nor a host or a task
        that the cluster file lacks, nor a task on another host."""
        if isinstance(record, Metric | GpuSample):
            return True
        if record.event in ("run", "end") and record.run_id != self.run_id:
            return False
        if self.tasks is None:
            return True
        placed = _placed(record)
        if any(self.tasks.get(task) != host for task, host in placed if task is not None and host):
            return False
        if any(task not in self.tasks for task, _ in placed if task is not None):
            return False
        hosts = set(self.tasks.values())
        return all(host in hosts for task, host in placed if task is None)


def _placed(record: Record | Summary) -> list[tuple[TaskId | None, str]]:
    """The tasks and hosts that a record names: a task with its host, or without one where the
    record says none; a host alone."""
    match record:
        case TaskView(id=task, host=host):
            return [(task, host)]
        case HostView(name=host, usage=usage):
            return [(None, host), *((task, host) for task in usage)]
        case FactsView(host=host, facts=facts):
            return [(None, host), *((task, host) for task in facts.ports)]
        case Receipt(hosts=receipts):
            return [(None, one.host) for one in receipts]
        case RunView():
            return list(_in_run(record))
    hosts: tuple[str, ...] = getattr(record, "hosts", ())
    return [(None, host) for host in hosts]


def _in_run(run: RunView) -> Iterator[tuple[TaskId | None, str]]:
    for failure in (run.first_failure, run.restart_cause):
        if failure is not None:
            yield failure.task, failure.host
            yield from ((task, "") for task in failure.others)
    for kept in run.results_kept:
        yield None, kept.host
    if (verdict := run.verdict) is not None:
        yield from ((task, "") for task in verdict.tasks)
        yield from ((rank.task, "") for rank in verdict.ranks)
        for one in verdict.evidence:
            yield one.task, ""
            if one.rank is not None:
                yield one.rank.task, ""
