"""A run that another launcher tends, seen and ended from outside. Real launchers, real tasks."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from launcher.cluster.file import load
from launcher.ids import TaskId
from launcher.run.snapshot import HostView, Snapshot, TaskView
from launcher.run.states import HostState, Outcome, RunState, TaskState
from launcher.session.attach import StoredRun
from launcher.session.control import RunControl
from launcher.session.session import Session
from launcher.session.shown import decode, encode
from launcher.session.viewing import Viewer
from launcher.store.runs import RunFolder
from tests.beds import guard
from tests.command import DEADLINE, write
from tests.conftest import REPOSITORY

TICKER = (
    "import socket, sys, time\n"
    "server = socket.create_server(('127.0.0.1', int(sys.argv[1])))\n"
    "for step in range(100000):\n"
    "    print('step', step, 'loss', 1 / (step + 1), flush=True)\n"
    "    time.sleep(0.05)\n"
)
CLUSTER = f'''
name = "seen"
[jobs.ps]
tasks = ["localhost:auto"]
[jobs.worker]
tasks = ["localhost:auto"]
[run]
workdir = ""
on_disconnect = "stop"
command = ["{{python}}", "-u", "-c", """{TICKER}""", "{{port}}"]
'''
WORKER = TaskId("worker", 0)


@contextmanager
def launched(folder: Path, text: str = CLUSTER) -> Iterator[Session]:
    """A run with its launcher in this process."""
    file = write(folder, text)
    session = Session.launch(load(file), text)
    session.start()
    try:
        yield session
    finally:
        session.kill_all()
        session.kill_all()
        session.wait(DEADLINE)


@contextmanager
def viewed(folder: RunFolder, rescue: Callable[[], None] | None = None) -> Iterator[Viewer]:
    """Somebody who looks at it."""
    viewer = Viewer(folder, rescue=rescue)
    try:
        yield viewer
    finally:
        viewer.close()


def wait(control: RunControl, condition: Callable[[Snapshot], object], what: str) -> Snapshot:
    """The first snapshot for which the condition holds."""
    deadline = time.monotonic() + DEADLINE
    while not condition(snapshot := control.snapshot()):
        assert time.monotonic() < deadline, f"never {what}: {snapshot}"
        time.sleep(0.02)
    return snapshot


def stepping(least: int) -> Callable[[Snapshot], object]:
    """The worker has come to a step."""
    return lambda snapshot: (snapshot.task(WORKER).step or 0) >= least


def test_a_viewer_shows_all_that_the_launcher_shows(tmp_path: Path) -> None:
    """States, steps, loads of hosts, series and whole logs; also one who comes late."""
    with launched(tmp_path) as session, viewed(session.folder) as viewer:
        heard = threading.Event()
        viewer.subscribe(lambda _: heard.set())
        wait(viewer, stepping(5), "step 5")
        seen = wait(viewer, lambda s: s.hosts[0].usage and s.hosts[0].cpu is not None, "loads")
        own = session.snapshot()
        assert [(t.id, t.pid, t.address, t.attempts, t.started) for t in seen.tasks] == [
            (t.id, t.pid, t.address, t.attempts, t.started) for t in own.tasks
        ]
        assert seen.hosts[0].memory_total == own.hosts[0].memory_total
        assert seen.hosts[0].usage.keys() == own.hosts[0].usage.keys()
        assert (seen.rate is not None) and seen.started == own.started
        assert heard.is_set()
        with viewed(session.folder) as late:
            assert late.run_id == session.folder.run_id
            wait(late, stepping(5), "step 5")
            assert late.series(WORKER).points
            assert b"step 0 loss 1.0\n" in late.logs.open(WORKER).read(0, 1000)
            wait(late, lambda s: s.task(WORKER).log_size > 100, "a log that grows")


def test_what_is_waited_for_is_seen(tmp_path: Path) -> None:
    """Only the launcher knows it: it stands in no event."""
    never = CLUSTER.replace(TICKER, "import time\ntime.sleep(1000)\n")
    with launched(tmp_path, never) as session, viewed(session.folder) as viewer:
        seen = wait(viewer, lambda s: "ps:0" in s.waiting, "waiting for ps:0")
        assert seen.state is RunState.STARTING and seen.waiting_since is not None


def test_anyone_who_looks_may_end_the_run_and_all_see_the_receipt(tmp_path: Path) -> None:
    """The kill goes by the door; receipts, exit code and notes are the launcher's own."""
    with launched(tmp_path) as session, viewed(session.folder) as one:
        with viewed(session.folder) as other:
            wait(one, stepping(1), "step 1")
            one.kill_all()
            for viewer in (one, other):
                ended = wait(viewer, lambda s: s.state is RunState.ENDED and s.receipt, "the end")
                assert (ended.outcome, ended.exit_code) == (Outcome.KILLED, 130)
                assert ended.receipt is not None and ended.receipt.clean
            session.wait(DEADLINE)
            assert one.snapshot().receipt == session.snapshot().receipt
            assert not guard.tagged_here()
            wait(other, lambda s: not other.living, "its end")


def test_one_task_is_restarted_and_signalled_from_outside(tmp_path: Path) -> None:
    """The other goes on."""
    with launched(tmp_path) as session, viewed(session.folder) as viewer:
        before = wait(viewer, stepping(1), "step 1")
        viewer.restart(WORKER)
        after = wait(viewer, lambda s: len(s.task(WORKER).attempts) == 2, "a second attempt")
        assert after.task(TaskId("ps", 0)).pid == before.task(TaskId("ps", 0)).pid
        viewer.signal(WORKER, "KILL")
        ended = wait(viewer, lambda s: s.task(WORKER).state.ended, "the worker's end")
        assert ended.task(WORKER).exit_signal == "KILL"


def test_detaching_a_viewer_ends_nothing(tmp_path: Path) -> None:
    """It looks no more, and says so as a launcher does."""
    with launched(tmp_path) as session, viewed(session.folder) as viewer:
        wait(viewer, stepping(1), "step 1")
        viewer.detach()
        assert viewer.snapshot().outcome is Outcome.DETACHED
        step = session.snapshot().step or 0
        wait(session, lambda s: (s.step or 0) > step + 5, "later steps")


def test_a_kill_before_the_launcher_listens_is_not_lost(tmp_path: Path) -> None:
    """The key was pressed while the launcher was still starting."""
    file = write(tmp_path, CLUSTER)
    cluster = load(file)
    folder = RunFolder.create("seen-1", CLUSTER, cluster)
    with viewed(folder) as viewer:
        viewer.kill_all()
        session = Session.begin(folder, cluster)
        session.start()
        try:
            ended = wait(viewer, lambda s: s.state is RunState.ENDED, "the end")
            assert ended.outcome is Outcome.KILLED
        finally:
            session.kill_all()
            assert session.wait(DEADLINE)


def test_a_launcher_that_dies_is_told_and_a_kill_finds_another(tmp_path: Path) -> None:
    """Tasks that nobody watches are not shown as running; the kill starts a launcher that ends
    what is left and proves it."""
    text = CLUSTER.replace('on_disconnect = "stop"', 'on_disconnect = "keep"')
    words = [sys.executable, "-m", "tui.main", "up", str(write(tmp_path, text)), "--headless"]
    up = subprocess.Popen(
        words, cwd=REPOSITORY, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    rescuers: list[Session] = []

    def rescue() -> None:
        rescuers.append(StoredRun(folder).attach())
        rescuers[-1].start()

    try:
        deadline = time.monotonic() + DEADLINE
        while not RunFolder.all():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        folder = RunFolder.all()[0]
        with viewed(folder, rescue) as viewer:
            wait(viewer, stepping(1), "step 1")
            os.kill(up.pid, signal.SIGKILL)
            up.wait()
            lost = wait(viewer, lambda s: s.task(WORKER).state is TaskState.LOST, "lost")
            assert any("no launcher tends" in note for note in lost.notes)
            assert viewer.living
            viewer.restart(WORKER)
            wait(viewer, lambda s: any("not heard" in note for note in s.notes), "a note")
            viewer.kill_all()
            ended = wait(viewer, lambda s: s.state is RunState.ENDED and s.receipt, "the end")
            assert ended.receipt is not None and ended.receipt.clean
            assert len(rescuers) == 1 and rescuers[0].wait(DEADLINE)
    finally:
        if up.poll() is None:
            up.kill()
            up.wait()
    assert not guard.tagged_here()


@pytest.mark.parametrize("loss", [0.5, math.inf, math.nan, None])
def test_a_snapshot_is_the_same_behind_the_door(loss: float | None) -> None:
    """Also a loss that is no number."""
    task = TaskView(WORKER, "tf1", "tf1:1", TaskState.RUNNING, loss=loss, metrics={"x": 1.0})
    host = HostView("tf1", "root@tf1", HostState.UP, usage={WORKER: (0.5, 1 << 30)})
    before = Snapshot("r", "seen", RunState.RUNNING, (task,), (host,), 1.0, notes=("a\nb",))
    after = decode(encode(before))
    assert encode(before).count(b"\n") == 1
    if loss is not None and math.isnan(loss):
        assert math.isnan(after.tasks[0].loss or 0.0)
        before, after = (replace(s, tasks=()) for s in (before, after))
    assert after == before
