"""One writer of a run's record: events, and the gauges of the machine."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from launcher.ids import TaskId
from launcher.run import events as ev
from launcher.run.snapshot import HangView
from launcher.run.states import Halt, Hang
from tests.support.paths import REPOSITORY
from tests.support.run_driver import running

WRITES = frozenset(
    {
        "update_run",
        "update_host",
        "update_task",
        "update_allocation",
        "refresh_waiting",
        "add_nodes",
    }
)
"""Methods of `RunData` that change it."""
WORKER = TaskId("worker", 0)


def written(path: Path) -> Iterator[str]:
    """Where a module changes the record of a run."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            target = ast.unparse(node.func.value)
            if node.func.attr in WRITES or (node.func.attr == "add" and target.endswith("data")):
                yield f"{path.name}:{node.lineno} {ast.unparse(node.func)}"


def test_only_the_machine_changes_the_record() -> None:
    """The launcher process has no other way than events and gauges."""
    files = (REPOSITORY / "launcher/process").glob("*.py")
    assert [place for file in files for place in written(file)] == []
    assert list(written(REPOSITORY / "launcher/run/gauges.py"))  # it is found where it is


def test_what_is_seen_of_a_task_ends_with_it() -> None:
    """Where it stood still, and where its port was, is shown while it lives."""
    run = running().run
    run.handle(ev.TasksStalled(10.0, {WORKER: 4.0}))
    run.handle(ev.TaskHalted(11.0, WORKER, Halt.STOPPED, 9.0))
    run.handle(ev.Forwarded(12.0, WORKER, "http://127.0.0.1:1/"))
    view = run.data.tasks[WORKER]
    assert (view.stalled_since, view.halted, view.halted_since) == (4.0, Halt.STOPPED, 9.0)
    assert view.url == "http://127.0.0.1:1/"
    run.handle(ev.TaskExited(13.0, WORKER, view.attempt, 0, None))
    for event in (
        ev.TasksStalled(14.0, {WORKER: 4.0}),
        ev.TaskHalted(14.0, WORKER, Halt.STOPPED, 9.0),
        ev.Forwarded(14.0, WORKER, "http://127.0.0.1:2/"),
    ):
        run.handle(event)
    view = run.data.tasks[WORKER]
    assert (view.stalled_since, view.halted, view.halted_since) == (None, Halt.NONE, None)
    assert view.url == ""


def test_a_clock_that_is_set_moves_what_lasts() -> None:
    """How long something has lasted is what it was."""
    run = running().run
    run.handle(ev.TasksStalled(10.0, {WORKER: 4.0}))
    before = run.data.run.started
    run.handle(ev.ClockSet(3610.0, 3600.0))
    assert run.data.run.started == before + 3600.0
    assert run.data.tasks[WORKER].stalled_since == 3604.0
    run.handle(ev.TaskGoesOn(3611.0, WORKER))
    assert run.data.tasks[WORKER].stalled_since is None


def test_the_story_of_a_crash_has_what_was_seen() -> None:
    """A task that stalls, and the look at it, are events like others."""
    run = running().run
    run.handle(ev.TasksStalled(10.0, {WORKER: 4.0}))
    hang = HangView(Hang.STALLED, "all wait for worker:0", "stacks-stalled.json", 11.0)
    run.handle(ev.HangJudged(11.0, None, hang))
    assert run.data.run.hang == hang
    told = "\n".join(run.story())
    assert "TasksStalled" in told and "all wait for worker:0" in told
