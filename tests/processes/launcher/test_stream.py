"""Stream of a real run: it gives the run back while it goes on and when it has ended."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from launcher.cluster.read import loads
from launcher.run.snapshot import TaskView
from launcher.run.states import Outcome, RunPhase, TaskState
from launcher.run.views import Views
from launcher.session.client import RunClient
from launcher.session.launcher_link import attach_order
from launcher.session.run_list import read_run
from launcher.session.run_shell import RunShell
from launcher.session.stored import FinishedRun, StoredRun
from launcher.store.runs import RunFolder
from launcher.store.stream import read_end, read_stream
from tests.support.cluster_texts import cluster_text
from tests.support.patience import PATIENCE, wait_until
from tests.support.streams import check_stream
from tests.testbed.launcher_thread import LauncherThread

CLUSTER = cluster_text(
    {"worker": 2},
    "kept",
    command=["sh", "-c", "echo 'step 7 loss 0.5'; sleep 1000"],
    workdir="",
    grace=1,
    start={"ready": {"worker": "started"}},
)


def tells(folder: RunFolder, shell: RunShell) -> bool:
    """Whoever folds the stream has the launcher's own views, but for figures."""
    kept, views = read_stream(folder.events, folder.run_id).views, shell.data
    return (
        [without_figures(view) for view in kept.tasks.values()]
        == [without_figures(view) for view in views.tasks.values()]
        and [replace(host, **BLANK) for host in kept.hosts.values()]
        == [replace(host, **BLANK) for host in views.hosts.values()]
        and replace(kept.run, waiting="") == replace(views.run, waiting="")
        and (kept.notes, kept.receipt, kept.facts) == (views.notes, views.receipt, views.facts)
    )


BLANK: dict[str, Any] = {
    "last_heard": None,
    "cpu": None,
    "memory_used": None,
    "memory_total": None,
    "gpus": (),
    "gpu_problem": "",
    "usage": {},
}


def without_figures(view: TaskView) -> TaskView:
    """What is recorded of a task at once."""
    return replace(view, step=None, loss=None, rate=None, metrics={}, last_output=None, log_size=0)


def launched() -> tuple[RunClient, RunShell]:
    """A run, and its launcher's shell."""
    thread = LauncherThread()
    client = RunClient.launch(loads(CLUSTER, "kept.toml", Path("/")), CLUSTER, process=thread)
    client.await_state(PATIENCE)
    return client, thread.shell


def test_the_stream_gives_the_run_back() -> None:
    """While it runs and at its end; a list needs only the last record."""
    client, shell = launched()
    folder = client.folder
    tasks = [view.id for view in client.snapshot().tasks]
    wait_until(lambda: client.snapshot().step == 7 and running(client), "all tasks run")
    wait_until(lambda: tells(folder, shell), "the stream tells it")
    stored = StoredRun(folder)
    assert not stored.damage and not stored.over
    assert stored.snapshot().step == 7 and read_end(folder.events, folder.run_id) is None
    client.kill_all()
    assert client.wait(PATIENCE)
    assert tells(folder, shell)
    check_stream(folder)
    told = read_run(folder)
    seen = told.summary
    assert (seen.outcome, seen.exit_code, seen.step) == (Outcome.KILLED, 130, 7)
    assert told.over and read_end(folder.events, folder.run_id) is not None
    past = FinishedRun(StoredRun(folder))
    assert past.snapshot().state is RunPhase.ENDED
    assert list(past.series(tasks[0]).points.losses) == [0.5]


def running(client: RunClient) -> bool:
    """All its tasks have told metrics."""
    return all(view.state is TaskState.RUNNING for view in client.snapshot().tasks)


def test_a_launcher_that_takes_up_a_run_writes_on_in_its_stream() -> None:
    """From the views that it has read."""
    first, shell = launched()
    wait_until(lambda: running(first), "all tasks run")
    wait_until(lambda: tells(first.folder, shell), "the stream tells it")
    thread = LauncherThread()
    link = thread.order(attach_order(first.folder, "nothing"))
    second = RunClient(first.folder, Views.of(first.snapshot()), link)
    assert first.wait(PATIENCE) and first.snapshot().outcome is Outcome.TAKEN_OVER
    wait_until(lambda: running(second), "the second one has it")
    second.kill_all()
    assert second.wait(PATIENCE)
    assert tells(first.folder, thread.shell)
    check_stream(first.folder)
    assert StoredRun(first.folder).over and read_run(first.folder).summary.exit_code == 130
