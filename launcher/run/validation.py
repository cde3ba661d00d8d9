"""Invariants of a run's state, checked by tests after every event."""

from __future__ import annotations

from collections import Counter

from .state import HostRecord, RunData, TaskRecord
from .states import HostState, Intent, RunPhase, TaskState


def check(data: RunData) -> None:
    """Checks the state of a run.

    Raises:
        AssertionError: it contradicts itself.
    """
    for task in data.tasks.values():
        _check_task(task, data.hosts[task.view.host])
    _check_phase(data)
    deciding = data.outcome_tasks()
    exited = Counter(view.id.job for view in deciding if view.state is TaskState.EXITED)
    assert data.left == sum(not view.state.ended for view in deciding), data.left
    assert +data.exited == exited, data.exited
    tasks = data.tasks.values()
    assert +data.ended == Counter(t.view.id.job for t in tasks if t.view.state.ended), data.ended
    stopping = Counter(t.view.id.job for t in tasks if t.intent is Intent.STOP)
    assert +data.stopping == stopping, data.stopping
    assert len(data.notes) <= 100
    if data.failure is not None:
        assert data.failure.task in data.tasks
        assert data.failure.task not in data.failure.others
        assert len(set(data.failure.others)) == len(data.failure.others)
        assert len(data.failed) == 1 + len(data.failure.others) + data.failure.unlisted


def _check_task(task: TaskRecord, host: HostRecord) -> None:
    view = task.view
    assert bool(view.attempt) == (view.state not in (TaskState.PENDING, TaskState.STAGING)), view
    assert (view.state is TaskState.LOST) == (task.state_before_loss is not None), task
    assert view.state is not TaskState.LOST or host.view.state is not HostState.UP, task
    assert not task.restart_due or (task.kill_grace is not None), task
    assert not task.restart_due or view.state is not TaskState.READY, task
    assert task.intent is Intent.NONE or view.attempt, task
    assert not view.state.ended or view.ended is not None, task
    numbers = [attempt.number for attempt in view.attempts]
    assert numbers == sorted(set(numbers)) and all(n <= view.attempt for n in numbers), view


def _check_phase(data: RunData) -> None:
    end, stages = data.shutdown, len(data.plan.stages)
    ended = data.phase is RunPhase.ENDED
    assert ended == (end.outcome is not None) == (end.ended is not None), end
    assert ended == (end.exit_code is not None), end
    assert ended or end.receipt is None, end
    if data.phase is RunPhase.KILLING:
        assert end.cause is not None and end.deadline is not None, end
        pending = [h for h in data.contacted_hosts if data.hosts[h].receipt is None]
        releasing = data.allocation is not None and data.allocation.releasing
        assert pending or releasing, "all receipts are there, and the run goes on"
    if data.phase is RunPhase.STARTING:
        assert 0 <= data.stage < stages
        assert any(not data.tasks[task].view.state.ended for task in data.plan.stages[data.stage])
        for task in data.tasks.values():
            assert not task.warming or data.is_early(task.view.id), task
    if data.phase in (RunPhase.RUNNING, RunPhase.FINISHING):
        assert not any(task.warming for task in data.tasks.values())
        assert data.stage == stages
        left = [view for view in data.outcome_tasks() if not view.state.ended]
        assert left, "all that decide have ended, and the run goes on"
