"""Invariants of a run's state, checked by tests after every event."""

from __future__ import annotations

from .snapshot import HostView, TaskView
from .state import RunData
from .states import HostState, Outcome, RunPhase, TaskState


def check(data: RunData) -> None:
    """Checks the state of a run.

    Raises:
        AssertionError: it contradicts itself.
    """
    for task in data.tasks.values():
        _check_task(task, data.hosts[task.host])
    _check_phase(data)
    assert len(data.notes) <= 100
    failure = data.run.first_failure
    if failure is not None:
        assert failure.task in data.tasks
        assert failure.task not in failure.others
        assert len(set(failure.others)) == len(failure.others)


def _check_task(view: TaskView, host: HostView) -> None:
    assert view.is_sound(), view
    assert view.state is not TaskState.LOST or host.state is not HostState.UP, view
    assert not view.restart_due or view.state is not TaskState.READY, view


def _check_phase(data: RunData) -> None:
    end, stages = data.run, len(data.plan.stages)
    ended = data.phase is RunPhase.ENDED
    assert ended == (end.outcome is not None) == (end.ended is not None), end
    assert ended == (end.exit_code is not None), end
    assert ended or data.receipt is None, end
    if data.phase is RunPhase.KILLING:
        assert end.cause is not None and end.kill_deadline is not None, end
        pending = [h for h in data.contacted_hosts if data.host_records[h].receipt is None]
        releasing = data.allocation is not None and data.allocation.releasing
        assert pending or releasing, "all receipts are there, and the run goes on"
    assert not end.restart_due or end.restart_cause is not None, end
    over = data.phase is RunPhase.KILLING or (ended and end.outcome is not Outcome.TAKEN_OVER)
    assert not over or not end.restart_due, end
    if data.phase is RunPhase.RESTARTING:
        assert end.restart_due, end
        views = data.views_of(data.cluster_tasks)
        gone = [view for view in views if view.host not in data.ending]
        assert not any(view.state.live for view in gone), "a host has said that nothing is left"
    if data.phase is RunPhase.STARTING:
        assert 0 <= end.stage < stages
        views = data.views_of(data.plan.stages[end.stage])
        assert data.end_decided or any(not view.state.ended for view in views)
        for task in data.tasks.values():
            assert not task.warming or data.is_early(task.id), task
    if data.phase in (RunPhase.RUNNING, RunPhase.FINISHING):
        assert not any(task.warming for task in data.tasks.values())
        assert end.stage == stages
        left = [view for view in data.outcome_tasks() if not view.state.ended]
        assert left, "all that decide have ended, and the run goes on"
