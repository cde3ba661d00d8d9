"""A run that prints no figures is called a hang where that is sure, and in no other case."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from launcher.run.states import Hang, RunPhase
from launcher.session import hang
from launcher.session.client import RunClient
from launcher.session.run_shell import RunShell
from tests.support.budgets import variants
from tests.support.command import write
from tests.support.patience import PATIENCE, wait_until
from tests.support.silent import silent_ranks, silent_ranks_below_launchers
from tests.testbed.launcher_thread import LauncherThread


@contextmanager
def launched(
    folder: Path,
    how: str,
    monkeypatch: pytest.MonkeyPatch,
    ranks: Callable[..., str] = silent_ranks,
) -> Iterator[tuple[RunClient, RunShell]]:
    """The run, looked at as if minutes were seconds, from when all ranks are where they stay."""
    monkeypatch.setattr(hang, "_QUIET_TICKS", ())
    monkeypatch.setattr(hang, "_QUIET_LOOK", 1.0)
    from launcher.cluster.read import load

    file = write(folder, ranks(folder, how))
    thread = LauncherThread()
    client = RunClient.launch(load(file, for_launch=True), file.read_text(), process=thread)
    client.await_state()
    try:
        wait_until(
            lambda: all(task.last_output for task in client.snapshot().tasks), "all have begun"
        )
        monkeypatch.setattr(hang, "_QUIET_TICKS", range(3, 1000))
        yield client, thread.shell
    finally:
        client.kill_all()
        assert client.wait(PATIENCE)


def judges(shell: RunShell) -> bool:
    return any(work.get_name() == "hang" for work in list(shell._work))


def test_a_rank_that_does_nothing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given four silent ranks, when three wait in a framework for one that sleeps, then the run's
    record names that one for sure, in time; no task has stalled, and nothing is ended."""
    with launched(tmp_path, "sleeps", monkeypatch) as (client, _):
        wait_until(lambda: client.snapshot().verdict, "a verdict")
        snapshot = client.snapshot()
        verdict, found = snapshot.verdict, snapshot.hang
        assert verdict is not None and [str(one) for one in verdict.tasks] == ["worker:2"]
        assert verdict.sure and "is in next_batch" in verdict.text
        assert found is not None and found.reason is Hang.SILENT
        assert not snapshot.stalled and snapshot.state is RunPhase.RUNNING
        file = client.folder.path / found.file
        wait_until(file.exists, "all stacks are kept")


@pytest.mark.parametrize("how", ["sleeps", "stopped"])
def test_a_rank_below_a_launcher_of_ranks_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Given two tasks that have started two ranks each, as torchrun does, when three ranks wait for
    the third, then that rank is named, and its task, for sure."""
    below = silent_ranks_below_launchers
    with launched(tmp_path, how, monkeypatch, below) as (client, _):
        wait_until(lambda: client.snapshot().verdict, "a verdict")
        verdict = client.snapshot().verdict
        assert verdict is not None and [str(one) for one in verdict.tasks] == ["worker:1"]
        assert verdict.text.startswith("rank 2 of worker:1 on localhost is ") and verdict.sure
        assert "3 others wait in all_reduce" in verdict.text


@variants("how", ["all wait", "serves", "works"], test=1)
def test_a_quiet_run_that_is_well_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Given four silent ranks, when all wait in a framework as a long step has it, or for requests,
    or for one that works, then a look at them leaves no trace."""
    with launched(tmp_path, how, monkeypatch) as (client, shell):
        looks = 2 if how == "works" else 1
        wait_until(lambda: len(shell.parts.stacks.looks) >= looks, "it was looked at")
        wait_until(lambda: not judges(shell), "it was judged")
        snapshot = client.snapshot()
        assert (snapshot.verdict, snapshot.hang, snapshot.stalled) == (None, None, ())
