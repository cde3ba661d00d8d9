"""The launching machine's disk does not answer: no kill waits for it, and nothing is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.cluster.file import load
from launcher.paths import runs_home
from launcher.run.states import RunPhase
from launcher.session.client import RunClient
from tests import command
from tests.command import Up, python_task, write
from tests.conftest import require_testbed
from tests.faults.scenario import FaultScenario, confirmed, notes, ready
from tests.paths import REPOSITORY
from tests.patience import wait_until
from tests.testbed.frozen import FreezableDisk
from tests.testbed.inprocess import SshServer

pytestmark = pytest.mark.testbed

SCRIPT = """
import time
number = 0
with open(COPY, 'w') as copy:
    while True:
        line = f'{number} ' + 'x' * 100
        print(line, flush=True)
        print(line, file=copy, flush=True)
        number += 1
        time.sleep(0.005)
"""
SECONDS = 5.0
"""For a receipt; about one is the aim, and without an answer from the disk it never came."""


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FreezableDisk]:
    """The user's data folder is on it."""
    require_testbed()
    with FreezableDisk(tmp_path / "image", tmp_path / "disk") as frozen:
        monkeypatch.setenv("XDG_DATA_HOME", str(frozen.mountpoint))
        yield frozen
        frozen.thaw()
        wait_until(lambda: not writers(frozen.mountpoint), "nobody writes there any more")


def descriptors(process: Path) -> list[Path]:
    """The descriptors of a process; none when it has ended."""
    try:
        return list((process / "fd").iterdir())
    except OSError:
        return []


def writers(folder: Path) -> list[str]:
    """Processes that have a file below a folder open."""
    found = []
    for fd in (fd for process in Path("/proc").glob("[0-9]*") for fd in descriptors(process)):
        try:
            if os.readlink(fd).startswith(f"{folder}/"):
                found.append(str(fd))
        except OSError:
            continue
    return found


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
    text += ["[run]", 'workdir = ""', "grace = 1", "lease = 60"]
    return write(tmp_path, "\n".join(text) + "\n")


def time_of_kill(run_id: str) -> float:
    """How long `tfmux kill RUN` takes to show the receipt, from when it could know it."""
    argv = [sys.executable, "-m", "tui.main", "kill", run_id]
    began = time.monotonic()
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY) as kill:
        assert kill.stdout is not None
        lines = iter(kill.stdout.readline, "")
        assert any("nothing is left on any host" in line for line in lines)
        told = time.monotonic() - began
        assert kill.wait(60) == 0
    return told


def copy(tmp_path: Path, name: str) -> bytes:
    return (tmp_path / f"copy-{name}").read_bytes()


def writes_on(tmp_path: Path) -> None:
    """Waits until both tasks have written more."""
    for name in ("a", "b"):
        size = len(copy(tmp_path, name))
        wait_until(lambda n=name, s=size: len(copy(tmp_path, n)) > s + 2000, f"{name} writes on")  # type: ignore[misc]


@pytest.mark.parametrize("means", ["ctrl-c", "term", "kill"])
def test_a_run_is_ended_while_the_disk_is_frozen(
    tmp_path: Path, disk: FreezableDisk, ssh_server: SshServer, means: str
) -> None:
    """The receipt comes in about a second, the launcher ends in a few with the right code and
    says what it could not store; when the disk answers again, what is there is whole."""
    slowness = command.slowness()
    with Up("up", str(cluster(tmp_path, ssh_server)), "--json") as up:
        ready(up, "a:0", "b:0")
        run_id = up.run_id
        disk.freeze()
        writes_on(tmp_path)
        up.wait_for(lambda e: "not stored" in e.get("note", ""), "it is said")
        writes_on(tmp_path)
        began = time.monotonic()
        if means == "kill":
            told = time_of_kill(run_id)
        else:
            up.process.send_signal(signal.SIGINT if means == "ctrl-c" else signal.SIGTERM)
            up.wait_for(lambda e: e["event"] == "receipt", "a receipt")
            told = time.monotonic() - began
        assert confirmed(up)
        assert not [p for p in FaultScenario.here(run_id) if "/" in (p.tag or "")], "its tasks live"
        code = up.wait()
        ended = time.monotonic() - began
        print(f"{means}: receipt after {told:.2f} s, end after {ended:.2f} s")
        assert code == (143 if means == "term" else 130), up.transcript()
        assert told < SECONDS * slowness
        assert any("are not stored here" in note for note in notes(up)), notes(up)
    disk.thaw()
    for name in ("a", "b"):
        log = (runs_home() / run_id / f"{name}-0.log").read_bytes()
        assert copy(tmp_path, name).startswith(log) and log


def test_f9_ends_a_run_while_the_disk_is_frozen(
    tmp_path: Path, disk: FreezableDisk, ssh_server: SshServer
) -> None:
    """What the key calls, from the process of the screen: it returns at once, and the receipt
    comes."""
    file = cluster(tmp_path, ssh_server)
    slowness = command.slowness()
    session = RunClient.launch(load(file), file.read_text())
    wait_until(lambda: session.snapshot().state is RunPhase.RUNNING, "it runs")
    disk.freeze()
    writes_on(tmp_path)
    began = time.monotonic()
    session.kill_all()
    assert time.monotonic() - began < 0.5 * slowness
    wait_until(lambda: session.snapshot().receipt, "the receipt")
    told = time.monotonic() - began
    assert session.wait(30)
    print(f"F9: receipt after {told:.2f} s, end after {time.monotonic() - began:.2f} s")
    receipt = session.snapshot().receipt
    assert receipt is not None and receipt.clean
    assert session.snapshot().exit_code == 130
    assert told < SECONDS * slowness


def test_a_disk_that_answers_again_costs_nothing(
    tmp_path: Path, disk: FreezableDisk, ssh_server: SshServer
) -> None:
    """Training goes on while it is frozen; afterwards events and logs are whole."""
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
            assert (folder / f"{name}-0.log").read_bytes() == copy(tmp_path, name)
    stored = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    shown = [event for event in up.events if event["event"] != "log"]
    assert [e for e in shown if e not in stored] == []
