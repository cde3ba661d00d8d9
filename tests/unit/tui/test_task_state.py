"""What screens say of tasks whose logs are empty, of those that are gone, and of progress."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from launcher.run.states import HostState, RunPhase, TaskState
from tests.support.fakes import ScriptedRun
from tui.format import bar
from tui.outcome import TERMINAL
from tui.widgets.header import header_parts
from tui.widgets.titles import empty_text


@pytest.fixture
def starting(tmp_path: Path) -> ScriptedRun:
    """A run of a ps, a chief and two workers that start one stage after the other."""
    return ScriptedRun(tmp_path, ps=2, workers=3, hosts=5)


def said(run: ScriptedRun, name: str) -> str:
    snapshot = run.snapshot()
    task = next(task for task in snapshot.tasks if str(task.id) == name)
    return empty_text(task, snapshot, 106.0)


def test_an_empty_pane_says_what_is_waited_for(starting: ScriptedRun) -> None:
    """Given tasks of later stages, then each names the tasks before it that are not ready; one
    whose turn has come says that, and one whose host is not connected to names the host."""
    assert said(starting, "ps:0") == "starts next"
    assert said(starting, "worker:0") == "starts when ps:0–1 are ready"
    assert said(starting, "worker:1") == "starts when worker:0 is ready"
    starting.task("ps:1", state=TaskState.READY, attempt=1)
    assert said(starting, "worker:0") == "starts when ps:0 is ready"
    starting.task("ps:0", state=TaskState.READY, attempt=1)
    assert said(starting, "worker:0") == "starts next"
    hosts = starting.snapshot().hosts
    starting.change(hosts=(replace(hosts[0], state=HostState.CONNECTING), *hosts[1:]))
    starting.task("ps:0", state=TaskState.PENDING)
    assert said(starting, "ps:0") == "waits for the connection to tf1"


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (TaskState.WARMING, "imports its modules, 6 s; starts when ps:0–1 are ready"),
        (TaskState.STARTING, "starting, 6 s: no output yet"),
        (TaskState.RUNNING, "running, 6 s: no output yet"),
        (TaskState.BACKOFF, "waits before its next attempt"),
        (TaskState.LOST, "its host is lost: no answer for 14 s"),
        (TaskState.FAILED, "exit 3: no output"),
    ],
)
def test_an_empty_pane_says_what_its_task_does(
    starting: ScriptedRun, state: TaskState, words: str
) -> None:
    """Given a task that has printed nothing, then its state is a sentence, with its time."""
    code, reason = (3, "") if state is TaskState.FAILED else (None, "no answer for 14 s")
    starting.task("worker:0", state=state, started=100.0, exit_code=code, reason=reason)
    assert said(starting, "worker:0") == words


def test_files_on_their_way_are_counted(starting: ScriptedRun) -> None:
    """Given a host that gets files, then the pane says how much of them is there."""
    hosts = starting.snapshot().hosts
    staged = replace(hosts[0], staged_bytes=12_000_000, staged_total=40_000_000)
    starting.change(hosts=(staged, *hosts[1:]))
    starting.task("ps:0", state=TaskState.STAGING)
    assert said(starting, "ps:0") == "gets its files, 12 MB of 40 MB; starts next"


def test_the_header_counts_the_tasks_that_are_alive(starting: ScriptedRun) -> None:
    """Given a run that goes on with failures kept, then the header says how many tasks are alive;
    while all are, it does not."""
    starting.all_tasks(state=TaskState.RUNNING, attempt=1)
    starting.change(state=RunPhase.RUNNING)

    def row() -> list[str]:
        parts = header_parts(starting.snapshot(), 106.0, dict(TERMINAL), lambda name: name)
        return [part.text for part in parts]

    assert not any("alive" in text for text in row())
    starting.task("worker:1", state=TaskState.FAILED, exit_code=1, ended=1.0)
    starting.task("worker:2", state=TaskState.EXITED, exit_code=0, ended=1.0)
    assert "3/5 tasks alive" in row()


@pytest.mark.parametrize(
    ("share", "drawn"),
    [
        (0.0, "░░░░░░░░░░"),
        (0.001, "▋░░░░░░░░░"),
        (0.01, "▋░░░░░░░░░"),
        (0.1, "█░░░░░░░░░"),
        (0.96, "█████████▋"),
        (0.999, "█████████▋"),
        (1.0, "██████████"),
        (1.7, "██████████"),
    ],
)
def test_a_bar_has_begun_and_has_not_ended(share: float, drawn: str) -> None:
    """Given a share of 1 %, then the bar is not empty; full it is at the end alone."""
    assert bar(share, 10) == drawn
