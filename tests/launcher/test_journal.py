"""Journal of a real run: it gives the run back while it goes on and when it has ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.cluster import loads
from launcher.run import events as ev
from launcher.run.run import RunStateMachine
from launcher.run.states import Outcome, RunPhase, TaskState
from launcher.session.attach import StoredRun
from launcher.session.client import RunClient
from launcher.session.history import FinishedRun, summary
from launcher.session.run_loop import RunLoop
from launcher.store import snapshot_codec
from launcher.store.journal import decode, final_record, read_final
from tests.journals import check_journal
from tests.patience import wait_until
from tests.testbed.launcher_thread import LauncherThread

CLUSTER = """
name = "kept"
[jobs.worker]
tasks = ["localhost:auto", "localhost:auto"]
[run]
command = ["sh", "-c", "echo 'step 7 loss 0.5'; sleep 1000"]
workdir = ""
grace = 1
[start.ready]
worker = "started"
"""


def launched() -> tuple[RunClient, RunLoop]:
    """A run, and the loop of its launcher."""
    thread = LauncherThread()
    client = RunClient.launch(loads(CLUSTER, "kept.toml", Path("/")), CLUSTER, process=thread)
    return client, thread.launcher._run_loop


def test_the_journal_gives_the_run_back() -> None:
    """While it runs and at its end; a list needs only the last record."""
    client, run_loop = launched()
    folder = client.folder
    tasks = [view.id for view in client.snapshot().tasks]
    wait_until(lambda: client.snapshot().step == 7 and running(client), "all tasks run")
    wait_until(lambda: StoredRun(folder).run == run_loop.run, "the journal tells it")
    stored = StoredRun(folder)
    assert not stored.damage and not stored.over
    assert stored.snapshot().step == 7 and read_final(folder.journal) is None
    client.kill_all()
    assert client.wait(60)
    assert StoredRun(folder).run == run_loop.run
    check_journal(folder)
    told = summary(folder)
    assert (told.outcome, told.exit_code, told.step) == (Outcome.KILLED, 130, 7)
    assert told.over and read_final(folder.journal) is not None
    past = FinishedRun(StoredRun(folder))
    assert past.snapshot().state is RunPhase.ENDED
    assert list(past.series(tasks[0]).points.losses) == [0.5]


def running(client: RunClient) -> bool:
    """All its tasks have told metrics."""
    return all(view.state is TaskState.RUNNING for view in client.snapshot().tasks)


def test_a_kill_of_an_earlier_version_is_read() -> None:
    """It did not say whether it was forced, nor its last record whether a person had asked."""
    record = {"launcher": "a", "event": "kill_all", "time": 1000.0, "by_person": True}
    assert decode(record) == ev.KillAll(1000.0, by_person=True, force=False)
    snapshot = RunStateMachine(loads(CLUSTER, "kept.toml", Path("/")), "r", 1.0).snapshot()
    final = final_record(snapshot)
    del final["snapshot"]["kill_asked"]
    assert snapshot_codec.decode(final["snapshot"]) == snapshot


def test_a_launcher_that_takes_up_a_run_writes_on_in_its_journal() -> None:
    """Its life begins where the events stood that it has read."""
    first, run_loop = launched()
    wait_until(lambda: running(first), "all tasks run")
    wait_until(lambda: StoredRun(first.folder).run == run_loop.run, "the journal tells it")
    thread = LauncherThread()
    link = thread.order({"attach": first.run_id})
    second = RunClient(first.folder, first.snapshot(), link)
    assert first.wait(60) and first.snapshot().outcome is Outcome.DETACHED
    wait_until(lambda: running(second), "the second one has it")
    assert StoredRun(first.folder).run == thread.launcher._run_loop.run
    second.kill_all()
    assert second.wait(60)
    check_journal(first.folder)
    assert StoredRun(first.folder).over and summary(first.folder).exit_code == 130


def test_a_record_that_is_too_long_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A note says that the journal lacks it; the run goes on and ends as ever."""
    monkeypatch.setattr("launcher.store.run_writer.LONGEST", 250)
    client, _ = launched()
    wait_until(lambda: running(client), "all tasks run")
    told = "it is too long to be read again"
    wait_until(lambda: any(told in note for note in client.snapshot().notes), "it is told")
    client.kill_all()
    assert client.wait(60) and client.snapshot().outcome is Outcome.KILLED
    stored = StoredRun(client.folder)
    assert stored.damage and not stored.complete and not summary(client.folder).over
