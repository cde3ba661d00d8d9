"""Snapshots as they are sent to clients: whole, and as what has changed."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from launcher.ids import TaskId
from launcher.run.snapshot import HostView, Snapshot, TaskView
from launcher.run.states import HostState, RunPhase, TaskState
from launcher.store import snapshot_codec

WORKER = TaskId("worker", 0)


@pytest.mark.parametrize("loss", [0.5, math.inf, math.nan, None])
def test_a_snapshot_is_the_same_on_the_other_side(loss: float | None) -> None:
    """Also a loss that is no number."""
    task = TaskView(WORKER, "tf1", "tf1:1", TaskState.RUNNING, loss=loss, metrics={"x": 1.0})
    host = HostView("tf1", "root@tf1", HostState.UP, usage={WORKER: (0.5, 1 << 30)})
    before = Snapshot("r", "seen", RunPhase.RUNNING, (task,), (host,), 1.0, notes=("a\nb",))
    after = passed(None, before)
    if loss is not None and math.isnan(loss):
        assert math.isnan(after.tasks[0].loss or 0.0)
        before, after = (replace(s, tasks=()) for s in (before, after))
    assert after == before


def passed(before: Snapshot | None, after: Snapshot) -> Snapshot:
    """A snapshot that was sent as a change of another one."""
    line = json.dumps(snapshot_codec.changes(before, after))
    return snapshot_codec.apply(before, json.loads(line))


def test_only_what_differs_is_sent() -> None:
    """A task's new step names nothing but that task."""
    tasks = tuple(TaskView(TaskId("w", n), "h", "h:1", TaskState.RUNNING) for n in range(3))
    host = HostView("h", "h", HostState.UP)
    before = Snapshot("r", "seen", RunPhase.RUNNING, tasks, (host,), 1.0)
    after = replace(before, tasks=(tasks[0], replace(tasks[1], step=7), tasks[2]))
    change = snapshot_codec.changes(before, after)
    assert change.keys() == {"tasks"} and change["tasks"].keys() == {"1"}
    assert passed(before, after) == after
    assert passed(before, replace(before, waiting="x")).waiting == "x"
    assert not snapshot_codec.changes(before, replace(before))
    with pytest.raises(ValueError):
        snapshot_codec.apply(None, change)
