"""Journal of a real run: it gives the run back while it goes on and when it has ended."""

from __future__ import annotations

from pathlib import Path

from launcher.cluster.file import loads
from launcher.run.states import Outcome, RunPhase, TaskState
from launcher.session.attach import StoredRun
from launcher.session.client import RunClient
from launcher.session.engine import Engine
from launcher.session.history import FinishedRun, summary
from launcher.store.journal import read_final
from tests.journals import check_journal
from tests.launcher.agent_client import wait_until
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


def launched() -> tuple[RunClient, Engine]:
    """A run, and the engine of its launcher."""
    thread = LauncherThread()
    client = RunClient.launch(loads(CLUSTER, "kept.toml", Path("/")), CLUSTER, process=thread)
    return client, thread.launcher._engine


def test_the_journal_gives_the_run_back() -> None:
    """While it runs and at its end; a list needs only the last record."""
    client, engine = launched()
    folder = client.folder
    tasks = [view.id for view in client.snapshot().tasks]
    wait_until(lambda: client.snapshot().step == 7 and running(client), "all tasks run")
    wait_until(lambda: StoredRun(folder).run == engine.run, "the journal tells it")
    stored = StoredRun(folder)
    assert stored.complete and not stored.over
    assert stored.snapshot().step == 7 and read_final(folder.journal) is None
    client.kill_all()
    assert client.wait(60)
    assert StoredRun(folder).run == engine.run
    check_journal(folder)
    told = summary(folder)
    assert (told.outcome, told.exit_code, told.step) == (Outcome.KILLED, 130, 7)
    assert told.over and read_final(folder.journal) is not None
    past = FinishedRun(StoredRun(folder))
    assert past.snapshot().state is RunPhase.ENDED
    assert [point.values["loss"] for point in past.series(tasks[0]).points] == [0.5]


def running(client: RunClient) -> bool:
    """All its tasks have told metrics."""
    return all(view.state is TaskState.RUNNING for view in client.snapshot().tasks)


def test_a_launcher_that_takes_up_a_run_writes_on_in_its_journal() -> None:
    """Its life begins where the events stood that it has read."""
    first, engine = launched()
    wait_until(lambda: running(first), "all tasks run")
    wait_until(lambda: StoredRun(first.folder).run == engine.run, "the journal tells it")
    thread = LauncherThread()
    link = thread.order({"attach": first.run_id})
    second = RunClient(first.folder, first.snapshot(), link)
    assert first.wait(60) and first.snapshot().outcome is Outcome.DETACHED
    wait_until(lambda: running(second), "the second one has it")
    assert StoredRun(first.folder).run == thread.launcher._engine.run
    second.kill_all()
    assert second.wait(60)
    check_journal(first.folder)
    assert StoredRun(first.folder).over and summary(first.folder).exit_code == 130
