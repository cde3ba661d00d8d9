"""Disks that hang, of a host or of the launching machine: tasks, beats and kills go on, and nothing
is lost."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from launcher.agent import processes, wire
from launcher.agent.processes import environ_of, table
from launcher.client.run_client import RunClient
from launcher.cluster.read import load
from launcher.paths import runs_home
from launcher.run.states import RunPhase
from tests.support.agent_client import Client, family, watchdog_and_agent
from tests.support.budgets import budget, soak, soon
from tests.support.command import Up, python_task, write
from tests.support.paths import REPOSITORY
from tests.support.patience import PATIENCE, wait_until
from tests.support.requirements import require_testbed
from tests.support.scenario import FaultScenario, confirmed, notes, ready
from tests.testbed import proc
from tests.testbed.frozen import FreezableDisk, writers
from tests.testbed.inprocess import SshServer

FROZEN_SECONDS = 60.0 if os.environ.get("CHAOS") else 12.0
"""Longer than the watchdog waits for a beat."""

TRAINING = """
import os, sys, time
ledger = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
step = 0
while True:
    if os.fork() == 0:
        os._exit(0)
    os.wait()
    step += 1
    os.write(1, b"step %d\\n" % step)
    os.write(ledger, b"%d\\n" % step)
    time.sleep(0.02)
"""
"""Forks, prints, and notes each step where no disk hangs."""

FLOOD = """
import os, signal, sys, time
mark = sys.argv[1]
def hit(*_):
    with open(mark + ".new", "w") as file:
        file.write(repr(time.monotonic()))
    os.rename(mark + ".new", mark)
    os._exit(0)
signal.signal(signal.SIGTERM, hit)
os.write(1, b"the flood begins\\n")
open(mark + ".up", "w").close()
os.set_blocking(1, False)
while True:
    try:
        os.write(1, b"a line of a flood that never ends\\n" * 1000)
    except BlockingIOError:
        time.sleep(0.001)
"""
"""Writes as fast as it can, and notes that it does, and when the first signal came."""


@pytest.fixture
def disk(
    testbed_possible: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FreezableDisk]:
    """The home and state directory of the agent on a disk that can be made to hang."""
    with FreezableDisk(tmp_path / "image", tmp_path / "disk", megabytes=512) as disk:
        monkeypatch.setenv("HOME", str(disk.mountpoint))
        monkeypatch.setenv("XDG_STATE_HOME", str(disk.mountpoint / "state"))
        monkeypatch.setenv("XDG_CACHE_HOME", str(disk.mountpoint / "cache"))
        yield disk


@pytest.fixture
def client(disk: FreezableDisk) -> Iterator[Client]:
    """An admitted channel to a fresh agent, whose home is on that disk."""
    with Client() as channel:
        channel.hello()
        yield channel
        disk.thaw()
        if channel.process.poll() is None:
            channel.kill()
            channel.leave()


def steps(ledger: Path) -> int:
    """Steps that a training has noted."""
    return len(ledger.read_bytes().splitlines())


def beat(client: Client) -> float:
    """Seconds that a beat takes."""
    began = time.monotonic()
    client.send(wire.BEAT)
    client.get(wire.PONG)
    return time.monotonic() - began


def frozen_in_threads_only(client: Client) -> None:
    """Waits until a thread of the agent, but not its main one, hangs with the disk."""
    _, agent = watchdog_and_agent(client.run_id)

    def hangs() -> bool:
        states = {}
        for thread in Path(f"/proc/{agent.pid}/task").iterdir():
            with suppress(OSError):  # it has ended
                states[thread.name] = (thread / "stat").read_text().rpartition(")")[2].split()[0]
        return states.pop(str(agent.pid)) != "D" and "D" in states.values()

    wait_until(hangs, "a thread of the agent waits for the disk, and not the main one")


@pytest.mark.soak
def test_a_training_goes_on_while_the_home_hangs(
    client: Client, disk: FreezableDisk, tmp_path: Path
) -> None:
    """Given a task that trains, when the agent's disk hangs longer than the watchdog's patience,
    then the process trains on, beats are answered, a start waits, and the log ends up whole."""
    ledger = tmp_path / "ledger"
    started = client.python("w:0", TRAINING, str(ledger))
    wait_until(lambda: ledger.exists() and steps(ledger) > 3, "it trains")
    disk.freeze()
    began = time.monotonic()
    frozen_in_threads_only(client)
    before = steps(ledger)
    waiting = {"task": "w:1", "attempt": 1, "argv": ["sleep", "1000"], "env": {}, "cwd": "/"}
    client.send(wire.START, {**waiting, "log_limit": 1 << 30, "port": None, "pty": False})
    beats = []
    while time.monotonic() - began < FROZEN_SECONDS or steps(ledger) <= before + 100:
        assert time.monotonic() - began < PATIENCE, "it does not train on"
        beats.append(beat(client))
        time.sleep(0.2)
    assert soon(max(beats), 2.0)
    disk.thaw()
    assert client.get(wire.STARTED, task="w:1")["error"] == ""
    process = proc.read(started["pid"])
    assert process is not None and process.alive
    receipt = client.kill()
    assert receipt["confirmed"] and not receipt["survivors"] and receipt["signalled"] >= 2
    end = client.get(wire.EOF, task="w:0")
    client.follow("w:0")
    last = steps(ledger)
    log = client.log_until(b"step %d\n" % last)
    assert end["size"] == len(log) and end["lost"] == end["cut"] == 0
    numbers = [int(line.split()[1]) for line in log.splitlines()]
    assert numbers == list(range(1, len(numbers) + 1))


def test_a_kill_does_not_wait_for_the_disk(
    client: Client, disk: FreezableDisk, tmp_path: Path
) -> None:
    """Given a task that trains and one whose start waits for the agent's disk, which hangs, when
    all is killed, then the receipt confirms it at once, and the waiting task is never started."""
    ledger = tmp_path / "ledger"
    client.python("w:0", TRAINING, str(ledger))
    wait_until(lambda: ledger.exists() and steps(ledger) > 3, "it trains")
    disk.freeze()
    frozen_in_threads_only(client)
    waiting = {"task": "w:1", "attempt": 1, "argv": ["sleep", "1000"], "env": {}, "cwd": "/"}
    client.send(wire.START, {**waiting, "log_limit": 1 << 30, "port": None, "pty": False})
    began = time.monotonic()
    receipt = client.kill()
    assert receipt["confirmed"] and not receipt["survivors"]
    assert soon(time.monotonic() - began, 2.0)
    assert client.get(wire.STARTED, task="w:1")["error"] == "the run is being ended"
    assert client.get(wire.EXITED, task="w:0")["signal"] == "KILL"
    assert len(family(client.run_id)) == 3
    beat(client)


def test_an_agent_that_dies_while_the_disk_hangs_takes_all_along(
    client: Client, disk: FreezableDisk, tmp_path: Path
) -> None:
    """Given a task that trains while its agent's disk hangs, when the agent is killed, then its
    watchdog ends the task before the disk answers. The watchdog writes nothing before it kills."""
    ledger = tmp_path / "ledger"
    client.python("w:0", TRAINING, str(ledger))
    wait_until(lambda: ledger.exists() and steps(ledger) > 3, "it trains")
    disk.freeze()
    frozen_in_threads_only(client)
    _, agent = watchdog_and_agent(client.run_id)
    os.kill(agent.pid, 9)
    wait_until(
        lambda: not [p for p in family(client.run_id) if "TFMUX_TASK" in p.environ],
        "the tasks are dead",
    )
    disk.thaw()
    client.everything()
    client.process.wait(PATIENCE)
    wait_until(lambda: not family(client.run_id), "all of it has gone")


def test_a_run_ends_while_the_disk_hangs(client: Client, disk: FreezableDisk) -> None:
    """Given a killed run on a host whose disk hangs, when the launcher leaves, then the agent lets
    it go at once, and removes the run's folder when the disk answers."""
    client.start("w:0", ["sleep", "1000"])
    disk.freeze()
    assert client.kill()["confirmed"]
    client.send(wire.LEAVE, {"remove": True})
    client.process.wait(PATIENCE)
    disk.thaw()
    wait_until(lambda: not family(client.run_id), "agent and watchdog have gone")
    assert not list((disk.mountpoint / "state/tfmux").iterdir())


@pytest.mark.parametrize("frozen", [False, True], ids=["flood", "flood and frozen disk"])
def test_how_soon_the_first_signal_comes(
    client: Client, disk: FreezableDisk, tmp_path: Path, frozen: bool
) -> None:
    """Given 16 tasks that flood on a disk that answers or hangs, when a launcher that reads no log
    kills them, then each sees TERM (in a soak within two seconds), and the receipt is clean."""
    delays = []
    for round_ in range(1, budget(1, 4) + 1):
        marks = [tmp_path / f"mark-{round_}-{number}" for number in range(16)]
        for number, mark in enumerate(marks):
            client.python(f"w:{number}", FLOOD, str(mark), attempt=round_, log_limit=4 << 20)
        if round_ == 1:
            for number in range(16):
                client.follow(f"w:{number}", number)
        flooding = [mark.with_name(f"{mark.name}.up") for mark in marks]
        wait_until(lambda: all(mark.exists() for mark in flooding), "all flood")  # noqa: B023
        if frozen:
            disk.freeze()
        sent = time.monotonic()
        client.send(wire.KILL, {"id": round_, "tasks": None, "grace": 5.0})
        wait_until(lambda: all(mark.exists() for mark in marks), "each has seen the signal")  # noqa: B023
        delays += [float(mark.read_text()) - sent for mark in marks]
        disk.thaw()
        receipt = client.get(wire.RECEIPT, ids=[round_])
        assert receipt["confirmed"] and not receipt["survivors"]
    delays.sort()
    p99 = delays[int(len(delays) * 0.99)]
    print(f"kill to signal: median {statistics.median(delays):.3f} s, p99 {p99:.3f} s")
    assert soon(p99, 2.0)


def test_a_process_that_cannot_be_looked_at_holds_up_nobody_and_is_named(
    tmp_path: Path, testbed_possible: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a process whose environment cannot be read while a disk hangs, when the agent scans,
    then that process is named and asked only once; when the disk answers, then it has been read."""
    stuck, read = os.getpid(), environ_of
    everyone = {pid: table()[pid] for pid in (stuck, os.getppid())}  # others may hang, too
    with FreezableDisk(tmp_path / "image", tmp_path / "disk") as disk:

        def environ(pid: int) -> bytes:
            if pid == stuck:  # what waits on a frozen disk sleeps as one that waits for a lock does
                (disk.mountpoint / "file").write_text("text")
            return read(pid)

        monkeypatch.setattr("launcher.agent.processes.environ_of", environ)
        looks = processes.ProcessTracker("nobody-20260101-000000-abcd")
        disk.freeze()
        looks.scan(everyone)
        assert looks.unread == [stuck]
        looks.scan(everyone)
        assert looks.unread == [stuck], "it is not asked twice"
        disk.thaw()

        def is_read() -> bool:
            looks.scan(everyone)
            return not looks.unread

        wait_until(is_read, "the reading has ended")


def test_a_busy_machine_makes_no_process_a_bystander(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given fifty processes of a run whose environments take long to read on a busy machine, when
    the agent scans them, then it waits for each and finds them all."""
    marked: list[int] = []

    def environ(pid: int) -> bytes:
        time.sleep(0.01)
        marked.append(pid)
        return b"TFMUX_TASK=busy-20260101-000000-abcd/w:0/1;\0"

    monkeypatch.setattr("launcher.agent.processes.environ_of", environ)
    everyone = dict(list(table().items())[:50])
    tracker = processes.ProcessTracker("busy-20260101-000000-abcd", agent_session=-1)
    found = tracker.scan(everyone)
    assert set(found) == set(everyone) - {os.getpid()} and set(marked) == set(everyone)


def test_a_reading_that_ends_during_a_look_loses_no_process() -> None:
    """Given processes whose environments could not be read, when their reading ends in the middle
    of a scan, then the scan does not fail, and none of them stays unread."""

    class Shrinking(set[tuple[int, int]]):
        """Forgets what it is asked for, as the thread that reads does when it comes back."""

        def __contains__(self, key: object) -> bool:
            found = super().__contains__(key)
            self.difference_update({key})
            return found

    everyone = {pid: table()[pid] for pid in (os.getpid(), os.getppid())}  # others may hang
    looks = processes.ProcessTracker("nobody-20260101-000000-abcd")
    looks._marks.unread = Shrinking((p.pid, p.start) for p in everyone.values())
    assert set(looks.scan(everyone)) <= looks.below
    assert not looks.unread


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
def here_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FreezableDisk]:
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
    tmp_path: Path, here_disk: FreezableDisk, ssh_server: SshServer, means: str
) -> None:
    """Given two tasks on a host, and a disk here that hangs, when Ctrl-C, TERM or `tfmux kill` ends
    the run, then receipt, exit code and a note of what is not stored come before the disk answers.
    The logs then lack nothing but their ends."""
    with Up("up", str(cluster(tmp_path, ssh_server)), "--json") as up:
        ready(up, "a:0", "b:0")
        run_id = up.run_id
        here_disk.freeze()
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
    here_disk.thaw()
    for name in ("a", "b"):
        log = (runs_home() / run_id / f"{name}-0.log").read_bytes()
        assert copy(tmp_path, name).startswith(log) and log


def test_f9_ends_a_run_while_the_disk_is_frozen(
    tmp_path: Path, here_disk: FreezableDisk, ssh_server: SshServer
) -> None:
    """Given a run whose data folder is on a disk that hangs, when the screen kills it as F9 does,
    then the call returns, and a clean receipt and exit code 130 come before the disk answers."""
    file = cluster(tmp_path, ssh_server)
    session = RunClient.launch(load(file), file.read_text())
    wait_until(lambda: session.snapshot().state is RunPhase.RUNNING, "it runs")
    here_disk.freeze()
    writes_on(tmp_path)
    session.kill_all()
    wait_until(lambda: session.snapshot().receipt, "the receipt")
    assert session.wait(PATIENCE)
    receipt = session.snapshot().receipt
    assert receipt is not None and receipt.clean
    assert session.snapshot().exit_code == 130


def test_a_disk_that_answers_again_costs_nothing(
    tmp_path: Path, here_disk: FreezableDisk, ssh_server: SshServer
) -> None:
    """Given a run that goes on while the disk of its folder hangs, when the disk answers again and
    Ctrl-C ends the run, then its logs and events are whole."""
    with Up("up", str(cluster(tmp_path, ssh_server)), "--json") as up:
        ready(up, "a:0", "b:0")
        here_disk.freeze()
        up.wait_for(lambda e: "not stored" in e.get("note", ""), "it is said")
        writes_on(tmp_path)
        here_disk.thaw()
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
