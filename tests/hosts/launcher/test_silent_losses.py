"""The host of a silent run is lost: the others do nothing from then on, and the record says why."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from launcher.cluster.read import load
from launcher.run.cause import Kind
from launcher.run.states import Hang, RunPhase
from launcher.session import hang
from launcher.session.client import RunClient
from tests.support.budgets import variants
from tests.support.cluster_texts import cluster_text
from tests.support.command import python_task, write
from tests.support.patience import PATIENCE, wait_until
from tests.testbed.launcher_thread import LauncherThread
from tests.testbed.namespaces import Testbed

# A session in which a worker waits as well as computes: its name says nothing.
_FRAMEWORK = """
import time

def run_session(seconds):
    time.sleep(seconds)
"""
_PROGRAM = """
import sys, time
sys.path.insert(0, "site-packages")
from framework import run_session

print("begins", flush=True)
while sys.argv[1] == sys.argv[2]:
    run_session(0.5)
    print("goes on", flush=True)
while sys.argv[1] == "worker:0":
    run_session(0.3)
    print("CreateSession still waiting for response from worker: /job:ps/task:0", flush=True)
run_session(1000)
"""
PLACES = {"ps": "tf1", "chief": "tf2", "worker": "tf3 tf4"}
HOSTS = {"ps:0": "tf1", "chief:0": "tf2", "worker:1": "tf4"}


@contextmanager
def launched(
    testbed: Testbed, folder: Path, speaker: str, monkeypatch: pytest.MonkeyPatch, on_failure: str
) -> Iterator[RunClient]:
    """A ps, a chief and two workers: one writes, one says that it waits, the others are silent; a
    run is looked at as if half a minute were seconds."""
    monkeypatch.setattr(hang, "_SUSPECT_TICKS", range(3, 1000))
    monkeypatch.setattr(hang, "_QUIET_LOOK", 1.0)
    site = folder / "job/site-packages"
    site.mkdir(parents=True)
    (site / "framework.py").write_text(_FRAMEWORK)
    text = cluster_text(
        PLACES,
        "silent",
        testbed.hosts_toml(),
        command=[*python_task(_PROGRAM), "{job}:{index}", speaker],
        start={"order": [[*PLACES]], "ready": dict.fromkeys(PLACES, "started")},
        grace=1,
        on_failure=on_failure,
    )
    file = write(folder / "job", text)
    client = RunClient.launch(
        load(file, for_launch=True), file.read_text(), process=LauncherThread()
    )
    client.await_state()
    try:
        wait_until(
            lambda: all(task.last_output for task in client.snapshot().tasks), "all have begun"
        )
        yield client
    finally:
        for host in testbed:
            host.heal()
        client.kill_all()
        assert client.wait(PATIENCE)


@variants(
    ("task", "on_failure"),
    [("ps:0", "stop"), ("chief:0", "restart-all"), ("worker:1", "keep")],
    test=1,
)
def test_a_lost_host_is_the_cause_until_the_run_goes_on(
    testbed: Testbed,
    tmp_path: Path,
    tfmux_home: Path,
    monkeypatch: pytest.MonkeyPatch,
    task: str,
    on_failure: str,
) -> None:
    """Given a run without figures, when the host of the only task that writes is cut off, then the
    record names the task's host for sure, whatever a failure would mean, and the run goes on; when
    the host is back and the task writes again, then nothing hangs any more."""
    testbed.give_access(tfmux_home)
    with launched(testbed, tmp_path, task, monkeypatch, on_failure) as client:
        testbed[HOSTS[task]].pull()
        wait_until(lambda: client.snapshot().verdict, "a verdict")
        snapshot = client.snapshot()
        verdict, found = snapshot.verdict, snapshot.hang
        assert verdict is not None and found is not None
        assert [str(one) for one in verdict.tasks] == [task]
        assert verdict.kind is Kind.HOST_LOST and verdict.sure, verdict
        assert verdict.text.startswith(f"{HOSTS[task]}: the host was lost ({task})")
        assert found.reason is Hang.SILENT and snapshot.state is RunPhase.RUNNING
        testbed[HOSTS[task]].heal()
        wait_until(lambda: client.snapshot().verdict is None, "the run goes on")
