"""The launching machine's disk does not answer: no kill waits for it, and nothing is lost."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.cluster.read import load
from launcher.paths import runs_home
from launcher.run.states import RunPhase
from launcher.session.client import RunClient
from tests.support.budgets import soak
from tests.support.command import Up, python_task, write
from tests.support.paths import REPOSITORY
from tests.support.patience import PATIENCE, wait_until
from tests.support.requirements import require_testbed
from tests.support.scenario import FaultScenario, confirmed, notes, ready
from tests.testbed.frozen import FreezableDisk, writers
from tests.testbed.inprocess import SshServer

SCRIPT = """
import time
number = 0
with open(COPY, 'w') as copy:
    while True:
        line = f'{number} ' + 'x' * 100
        print(line, file=copy, flush=True)  # first: the log never has more
        print(line, flush=True)
        number += 1
        time.sleep(0.005)
"""


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FreezableDisk]:
    """The user's data folder is on it."""
    require_testbed()
    with FreezableDisk(tmp_path / "image", tmp_path / "disk") as frozen:
        monkeypatch.setenv("XDG_DATA_HOME", str(frozen.mountpoint))
        yield frozen
        frozen.thaw()
        wait_until(lambda: not writers(frozen.mountpoint), "nobody writes there any more")


def cluster(tmp_path: Path, server: SshServer) -> Path:
    """Two tasks on a host; each keeps its own copy of what it has written."""
    jobs = []
    for name in ("a", "b"):
        script = SCRIPT.replace("COPY", repr(str(tmp_path / f"copy-{name}")))
        jobs += [
            f"[jobs.{name}]",
            'tasks = ["far:auto"]',
            f"command = {json.dumps(list(python_task(script)))}",
            "ready = { log = '^1 x' }",
        ]
    text = ['name = "frozen"', server.host_toml("far", sys.executable), *jobs]
    text += ["[run]", 'workdir = ""', "grace = 1", "lease = 600"]
    return write(tmp_path, "\n".join(text) + "\n")


def kill(run_id: str) -> None:
    """`tfmux kill RUN`, until it has shown the receipt and ended."""
    argv = [sys.executable, "-m", "tui.main", "kill", run_id]
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY, check=True)
    assert "no process is left" in done.stdout


def copy(tmp_path: Path, name: str) -> bytes:
    return (tmp_path / f"copy-{name}").read_bytes()


def writes_on(tmp_path: Path) -> None:
    """Waits until both tasks have written more."""
    for name in ("a", "b"):
        size = len(copy(tmp_path, name))
        wait_until(lambda n=name, s=size: len(copy(tmp_path, n)) > s + 2000, f"{name} writes on")  # type: ignore[misc]


@pytest.mark.parametrize("means", [soak("ctrl-c"), "term", "kill"])
def test_a_run_is_ended_while_the_disk_is_frozen(
    tmp_path: Path, disk: FreezableDisk, ssh_server: SshServer, means: str
) -> None:
    """Given two tasks on a host, and a disk here that hangs, when Ctrl-C, TERM or `tfmux kill` ends
    the run, then receipt, exit code and a note of what is not stored come before the disk answers.
    The logs then lack nothing but their ends."""
    with Up("up", str(cluster(tmp_path, ssh_server)), "--json") as up:
        ready(up, "a:0", "b:0")
        run_id = up.run_id
        disk.freeze()
        writes_on(tmp_path)
        up.wait_for(lambda e: "not stored" in e.get("note", ""), "it is said")
        writes_on(tmp_path)
        if means == "kill":
            kill(run_id)
        else:
            up.process.send_signal(signal.SIGINT if means == "ctrl-c" else signal.SIGTERM)
            up.wait_for(lambda e: e["event"] == "receipt", "a receipt")
        assert confirmed(up)
        assert not [p for p in FaultScenario.here(run_id) if "/" in (p.tag or "")], "its tasks live"
        code = up.wait()
        assert code == (143 if means == "term" else 130), up.transcript()
        assert any("could not be stored" in note for note in notes(up)), notes(up)
    disk.thaw()
    for name in ("a", "b"):
        log = (runs_home() / run_id / f"{name}-0.log").read_bytes()
        assert copy(tmp_path, name).startswith(log) and log


def test_f9_ends_a_run_while_the_disk_is_frozen(
    tmp_path: Path, disk: FreezableDisk, ssh_server: SshServer
) -> None:
    """Given a run whose data folder is on a disk that hangs, when the screen kills it as F9 does,
    then the call returns, and a clean receipt and exit code 130 come before the disk answers."""
    file = cluster(tmp_path, ssh_server)
    session = RunClient.launch(load(file), file.read_text())
    wait_until(lambda: session.snapshot().state is RunPhase.RUNNING, "it runs")
    disk.freeze()
    writes_on(tmp_path)
    session.kill_all()
    wait_until(lambda: session.snapshot().receipt, "the receipt")
    assert session.wait(PATIENCE)
    receipt = session.snapshot().receipt
    assert receipt is not None and receipt.clean
    assert session.snapshot().exit_code == 130


def test_a_disk_that_answers_again_costs_nothing(
    tmp_path: Path, disk: FreezableDisk, ssh_server: SshServer
) -> None:
    """Given a run that goes on while the disk of its folder hangs, when the disk answers again and
    Ctrl-C ends the run, then its logs and events are whole."""
    with Up("up", str(cluster(tmp_path, ssh_server)), "--json") as up:
        ready(up, "a:0", "b:0")
        disk.freeze()
        up.wait_for(lambda e: "not stored" in e.get("note", ""), "it is said")
        writes_on(tmp_path)
        disk.thaw()
        folder = runs_home() / up.run_id
        size = (folder / "a-0.log").stat().st_size
        wait_until(lambda: (folder / "a-0.log").stat().st_size > size + 20_000, "logs go on")
        up.press_ctrl_c()
        assert up.wait() == 130, up.transcript()
        assert confirmed(up)
        for name in ("a", "b"):
            log, whole = (folder / f"{name}-0.log").read_bytes(), copy(tmp_path, name)
            # TERM may have come between the two writes of the last line.
            assert log in (whole, b"".join(whole.splitlines(keepends=True)[:-1]))
    stored = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    shown = [event for event in up.events if event["event"] != "log"]
    assert [e for e in shown if e not in stored] == []
