"""Story of a run's last events, and its new notes."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.cluster.read import loads
from launcher.ids import TaskId
from launcher.plan.facts import HostFacts
from launcher.run import events as ev
from launcher.run.machine import RunStateMachine
from launcher.run.snapshot import new_notes

TEXT = """
name = "told"
[jobs.worker]
tasks = ["localhost:auto"]
[run]
command = ["x"]
"""


def machine(folder: Path) -> RunStateMachine:
    """A run that has been begun."""
    run = RunStateMachine(loads(TEXT, "told.toml", folder), "told-1", 1.0)
    run.handle(ev.Begin(1.0))
    return run


def test_a_story_is_bounded(tmp_path: Path) -> None:
    """Given a run with a thousand long events, when its story is told, then it has the last 200,
    the newest last, each on a line of a bounded length without control characters."""
    run = machine(tmp_path)
    for number in range(1000):
        run.handle(ev.NoteAdded(2.0, f"{number} \x1b[2J\n{'x' * 10_000}"))
    told = list(run.story())
    assert len(told) == 200 and "NoteAdded(text=999" in told[-1] and "800" in told[0]
    assert all(len(line) <= 300 and line.isprintable() for line in told)


def test_a_story_has_no_environment_and_no_output(tmp_path: Path) -> None:
    """Given events with a host's variables and a task's last lines, when the story is told, then
    it has neither of them, but who was looked at and how the task has ended."""
    task, run = TaskId("worker", 0), machine(tmp_path)
    run.handle(ev.HostUp(2.0, "localhost"))
    facts = HostFacts(environ={"PYTHONPATH": "hush"}, ports={task: 15000})
    run.handle(ev.HostsChecked(3.0, {"localhost": facts}))
    run.handle(ev.Staged(3.5, "localhost"))
    run.handle(ev.TaskStarted(4.0, task, 1, 77))
    run.handle(ev.TaskExited(5.0, task, 1, 3, None, tail=("hush",)))
    told = "\n".join(run.story())
    assert "HostsChecked(facts={localhost: …})" in told and "hush" not in told
    assert "TaskExited(task=worker:0, attempt=1, status=3, tail=1 left out" in told


# Which notes of a run are new: each is shown once.


@pytest.mark.parametrize(
    ("before", "after", "new"),
    [
        ("", "ab", "ab"),
        ("ab", "abc", "c"),
        ("abc", "bcd", "d"),
        ("aa", "aaa", "a"),
        ("abz", "abcz", "c"),
        ("z", "abz", "ab"),
        ("abc", "xyz", "xyz"),
    ],
)
def test_a_note_is_new_once(before: str, after: str, new: str) -> None:
    """Given notes, of which the oldest may have been dropped, and a last one of the connection (z)
    before which the run has got another, then only what was not there is new."""
    assert new_notes(tuple(before), tuple(after)) == tuple(new)
