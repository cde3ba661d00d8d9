"""The way from a kill to its signals, whatever else there is to do, whoever else takes the run
over, and whoever was first at an agent's socket."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from launcher.agent import folders, wire
from launcher.client.run_client import RunClient
from launcher.cluster.read import loads
from launcher.run.states import HostState, RunPhase
from launcher.store.runs import RunFolder, socket_path
from tests.support import agent_client, command
from tests.support.agent_client import Client, state_folder
from tests.support.budgets import budget, soon
from tests.support.command import Up, python_task
from tests.support.paths import REPOSITORY
from tests.support.patience import PATIENCE, wait_until
from tests.support.requirements import require_testbed
from tests.support.scenario import FaultScenario, confirmed, last_states, notes, ready, receipt
from tests.testbed import private_tmp, proc
from tests.testbed.frozen import FreezableDisk, writers
from tests.testbed.inprocess import SshServer

SUBSCRIBE = b'{"command": "subscribe", "on_close": "nothing", "events": true}\n'
GOAL = 0.25
"""Seconds, 99 times of 100, on a machine that does nothing else."""
BOUND = 2.0
"""Beyond it, on an idle machine, something that a kill waits for is on its way."""
ROUNDS = budget(1, 20)
STAGED_BYTES = budget(100 << 20, 2 << 30)

SIGNALLED = """
import os, signal, sys, time

def told(*_):
    with open(os.path.join(NOTES, str(os.getpid())), 'w') as note:
        note.write(str(time.monotonic()))
    os._exit(0)

signal.signal(signal.SIGTERM, told)
print('it is ready', flush=True)
while True:
    WORK
"""
QUIET = "time.sleep(0.1)"
FLOOD = "os.write(1, b'a line of a flood that never ends\\n' * 1000)"
WORST = "os.write(1, b'loss: ' + b'1' * 64_000 + b'\\n'); time.sleep(0.01)"


def cluster(notes: Path, work: str, count: int, host: str = "") -> str:
    """A cluster of `count` tasks, each of which notes when it is signalled."""
    script = SIGNALLED.replace("NOTES", repr(str(notes))).replace("WORK", work)
    places = json.dumps([f"{'far' if host else 'localhost'}:auto"] * count)
    return (
        f'name = "control"\n{host}[jobs.worker]\ntasks = {places}\nin_cluster = false\n'
        f"command = {json.dumps(list(python_task(script)))}\n"
        'ready = { log = "^it is ready$" }\n'
        '[run]\nworkdir = ""\ngrace = 5\nlog_limit = 100000000\n'
    )


def one_kill(folder: Path, text: str, *, disturb: ExitStack | None = None) -> float:
    """Seconds from the command to the first signal."""
    folder.mkdir()
    session = RunClient.launch(loads(text, "control", folder), text)
    try:
        wait_until(lambda: session.snapshot().state is RunPhase.RUNNING, "it runs")
        if disturb is not None:
            disturb.enter_context(never_reading(session))
        wait_until(lambda: sum(t.log_size for t in session.snapshot().tasks) > 10, "it writes")
        began = time.monotonic()
        session.kill_all()
        wait_until(lambda: any(folder.iterdir()), "a signal")
        wait_until(lambda: session.snapshot().receipt, "a receipt")
    finally:
        session.kill_all()
        session.wait(PATIENCE)
    receipt = session.snapshot().receipt
    assert receipt is not None and receipt.clean
    return min(float(note.read_text() or "inf") for note in folder.iterdir()) - began


def report(name: str, times: list[float]) -> None:
    """Prints the figures; fails in a soak where something has held up a kill."""
    worst = max(times)
    print(f"{name}: {', '.join(f'{1000 * t:.0f}' for t in times)} ms (goal {1000 * GOAL:.0f})")
    assert soon(worst, BOUND)


@contextmanager
def never_reading(session: RunClient) -> Iterator[None]:
    """Clients of the control socket that want to be told everything and never read."""
    with ExitStack() as stack:
        for _ in range(20):
            link = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            link.connect(str(socket_path(session.run_id)))
            link.sendall(SUBSCRIBE)
        flooding = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        flooding.connect(str(socket_path(session.run_id)))
        flooding.settimeout(PATIENCE)
        with pytest.raises(OSError):
            for _ in range(100_000):  # it is let go
                flooding.sendall(b'{"command": "detach"}\n' * 100)
        yield


@pytest.mark.parametrize(
    ("name", "work", "count"),
    [("quiet", QUIET, 2), ("flood", FLOOD, budget(6, 16)), ("worst text", WORST, 4)],
)
def test_local_tasks_are_signalled_at_once(
    tmp_path: Path, name: str, work: str, count: int
) -> None:
    """Given local tasks that are silent, flood or write the worst text, when the run is killed,
    then a task is signalled (in a soak within two seconds), and the receipt is clean."""
    times = [
        one_kill(tmp_path / f"notes-{number}", cluster(tmp_path / f"notes-{number}", work, count))
        for number in range(ROUNDS)
    ]
    report(name, times)


def test_clients_that_never_read_delay_nothing(tmp_path: Path) -> None:
    """Given twenty clients that never read, and one that floods the control socket, when the run is
    killed, then a task is signalled (in a soak within two seconds), and the receipt is clean."""
    times = []
    for number in range(ROUNDS):
        folder = tmp_path / f"notes-{number}"
        with ExitStack() as stack:
            times.append(one_kill(folder, cluster(folder, QUIET, 2), disturb=stack))
    report("clients", times)


def test_a_frozen_disk_delays_nothing(
    tmp_path: Path, ssh_server: SshServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given tasks that flood on a host, and a launcher whose disk hangs, when the run is killed,
    then a task is signalled (in a soak within two seconds), and the receipt is clean."""
    require_testbed()
    times = []

    for number in range(ROUNDS):
        place = tmp_path / f"disk-{number}"
        with FreezableDisk(tmp_path / f"image-{number}", place) as disk:
            monkeypatch.setenv("XDG_DATA_HOME", str(place))
            notes = tmp_path / f"notes-{number}"
            text = cluster(notes, FLOOD, 4, ssh_server.host_toml("far", sys.executable))
            with ExitStack() as stack:
                stack.callback(disk.thaw)
                times.append(_kill_frozen(notes, text, disk))
            wait_until(lambda at=place: not writers(at), "nobody writes")  # type: ignore[misc]
    report("frozen disk", times)


def _kill_frozen(folder: Path, text: str, disk: FreezableDisk) -> float:
    folder.mkdir()
    session = RunClient.launch(loads(text, "control", folder), text)
    wait_until(lambda: session.snapshot().state is RunPhase.RUNNING, "it runs")
    disk.freeze()
    wait_until(lambda: any("not stored" in n for n in session.snapshot().notes), "it is said")
    began = time.monotonic()
    session.kill_all()
    wait_until(lambda: session.snapshot().receipt, "a receipt")
    assert session.wait(PATIENCE)
    receipt = session.snapshot().receipt
    assert receipt is not None and receipt.clean
    return min(float(note.read_text() or "inf") for note in folder.iterdir()) - began


def test_a_hosts_frozen_disk_delays_nothing(tmp_path: Path, ssh_server: SshServer) -> None:
    """Given a host whose disk hangs while files are staged there, when the run is killed after
    eight seconds, then the host is still connected, and a clean receipt comes (in a soak soon)."""
    require_testbed()
    (tmp_path / "work").mkdir()
    with (tmp_path / "work/big").open("wb") as big:
        big.truncate(STAGED_BYTES)
    text = cluster(tmp_path, QUIET, 1, ssh_server.host_toml("far", sys.executable))
    text = text.replace('workdir = ""', 'workdir = "work"')
    with FreezableDisk(tmp_path / "image", ssh_server.home / ".cache", 128) as disk:
        session = RunClient.launch(loads(text, "control", tmp_path), text)
        try:
            wait_until(lambda: _staged(session) > 4 << 20, "some of it is there")
            disk.freeze()
            stalled = _staged(session)
            time.sleep(8)  # a host that is silent for 6 s is cut off
            (host,) = session.snapshot().hosts
            assert host.state is HostState.UP, session.snapshot().notes
            assert stalled <= host.staged_bytes < host.staged_total
            began = time.monotonic()
            session.kill_all()
            wait_until(lambda: session.snapshot().receipt, "a receipt")
            seconds = time.monotonic() - began
        finally:
            disk.thaw()
            session.kill_all()
            session.wait(PATIENCE)
    receipt = session.snapshot().receipt
    assert receipt is not None and receipt.clean
    report("frozen disk of a host", [seconds])


def _staged(session: RunClient) -> int:
    return sum(host.staged_bytes for host in session.snapshot().hosts)


PLACES = {"ps": ["tf1"], "worker": ["tf3"]}
RULES = "lease = 600\ngrace = 1"


def test_a_kill_ends_a_launcher_that_stands_still_and_then_the_run(
    scenario: FaultScenario,
) -> None:
    """Given a launcher that stands still, with tasks on hosts and on this machine, when `tfmux
    kill` is called, then it kills that launcher and ends the run, whose command is exit 130; tasks
    here that end with the launcher count as signalled."""
    places = {"ps": ["tf1"], "worker": ["tf3", "here", "here"]}
    with scenario.up(scenario.file(places, run=RULES, modes={"worker": "stubborn"})) as up:
        ready(up, "ps:0", "worker:0", "worker:1", "worker:2")
        pid = RunFolder.find(up.run_id).launcher_pid()
        assert pid
        up.signal_launcher(signal.SIGSTOP)
        code, said = scenario.kill(up.run_id)
        assert code == 0 and "no process is left" in said, said
        scenario.wait_dead(up.run_id)
        wait_until(lambda: proc.read(pid) is None, "the first launcher has gone")
        assert up.wait() == 130, up.transcript()
        assert set(last_states(up).values()) == {"killed"} and confirmed(up)
        assert receipt(up)["localhost"]["signalled"] >= 2, receipt(up)
        assert "the run goes on" not in up.said


def test_an_attach_names_a_launcher_that_stands_still_and_leaves_it_alone(
    scenario: FaultScenario,
) -> None:
    """Given a stopped launcher, with which tasks of this machine would die, when `tfmux attach` is
    called, then it exits with 2 and says how to resume that launcher, which has lost nothing."""
    with scenario.up(scenario.file({"ps": ["tf1"], "worker": ["tf3", "here"]}, run=RULES)) as up:
        ready(up, "ps:0", "worker:0", "worker:1")
        pid = RunFolder.find(up.run_id).launcher_pid()
        up.signal_launcher(signal.SIGSTOP)
        try:
            done = command.run("attach", up.run_id, "--json")
        finally:
            up.signal_launcher(signal.SIGCONT)
        assert done.returncode == 2 and f"kill -CONT {pid}" in done.stderr, done.stderr
        with Up("attach", up.run_id, "--json") as other:
            other.wait_for(lambda e: e["event"] == "log", "it follows the run")
            other.press_ctrl_c()
            assert other.wait() == 130, other.transcript()
        assert up.wait() == 130, up.transcript()
        assert set(last_states(up).values()) == {"killed"} and confirmed(up)
        assert not any("lost" in note for note in notes(up))
    scenario.wait_dead()


TAKER = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from launcher.cluster.read import load
from launcher.hosts.bootstrap import LinkSettings
from launcher.hosts.ways import transport_factory
from launcher.hosts.link import Link, LogSink
from launcher.hosts.ssh import SshConnector
from launcher.plan.planner import make_plan
from launcher.store.runs import RunFolder

class NoLogs(LogSink):
    pass

class Ears:
    def __getattr__(self, name):
        def hear(*words):
            if name == "link_up":
                print("taken", flush=True)
        return hear

async def main():
    folder = RunFolder.find(sys.argv[2])
    plan = make_plan(load(folder.cluster_file, base=folder.origin), folder.run_id)
    host = plan.host(sys.argv[3])
    logins = SshConnector(None)
    settings = LinkSettings.of(plan, host, folder.path, persistent=True)
    link = Link(settings, transport_factory(host, logins), NoLogs(), Ears())
    running = asyncio.create_task(link.run())
    await asyncio.to_thread(sys.stdin.readline)
    await link.aclose()
    await logins.aclose()

asyncio.run(main())
"""


def test_a_host_that_another_machine_takes_ends_this_launcher(scenario: FaultScenario) -> None:
    """Given a run on two hosts, when a launcher elsewhere takes one of them over, then this one
    says so and exits with 5, all tasks live on, and `tfmux kill` ends them."""
    with scenario.up(scenario.file(PLACES, run=RULES)) as up:
        ready(up, "ps:0", "worker:0")
        argv = [sys.executable, "-c", TAKER, str(REPOSITORY), up.run_id, "tf1"]
        taker = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            assert taker.stdout is not None and taker.stdout.readline() == "taken\n"
            assert up.wait() == 5, up.transcript()
            assert any("has taken tf1 over" in note for note in notes(up))
            assert "has taken the run over to supervise it; how it ends is known there" in up.said
            assert scenario.of("tf3", "worker:0") and scenario.of("tf1", "ps:0")
        finally:
            taker.communicate("\n", timeout=PATIENCE)
        done = command.run("kill", up.run_id)
        assert done.returncode == 0, done.stdout + done.stderr
    scenario.wait_dead()


OTHER = 4242
"""The uid of another user of the host."""


@pytest.fixture
def before(testbed_possible: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What to put in front of a command so that it has a `/tmp` of the test's own."""
    state = Path("/dev/shm", f"tfmux-test-{os.urandom(4).hex()}")
    for name in ("HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        folder = state / name
        folder.mkdir(parents=True, mode=0o700)
        monkeypatch.setenv(name, str(folder))
    script = f"set -e\n{private_tmp.mounting()}\necho up\nexec sleep 1000"
    words = ["unshare", "-m", "sh", "-c", script]
    try:
        with subprocess.Popen(words, stdout=subprocess.PIPE) as holder:
            try:
                assert holder.stdout is not None and holder.stdout.readline() == b"up\n"
                yield ["nsenter", "-m", "-t", str(holder.pid), "--"]
            finally:
                holder.kill()
    finally:
        shutil.rmtree(state)


def inside(before: list[str], script: str) -> str:
    """What a shell script says there."""
    done = subprocess.run([*before, "sh", "-c", script], check=True, capture_output=True, text=True)
    return done.stdout


def admitted_at_once(run_id: str, before: list[str], count: int = 4) -> list[Client]:
    """Opens `count` channels to the run's agent at the same time; the agent's pid is one and the
    same for all."""
    found: list[tuple[Client, int]] = []
    failed: list[BaseException] = []

    def connect() -> None:
        try:
            client = Client(run_id, before=before)
            found.append((client, client.hello(rules=None)["pid"]))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=connect) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed
    assert len({pid for _, pid in found}) == 1, "more than one agent"
    return [client for client, _ in found]


def finish(clients: list[Client]) -> None:
    """Ends the run."""
    clients[0].hello()
    clients[0].kill()
    clients[0].leave()
    for client in clients[1:]:
        client.close()


def test_a_folder_of_another_user_locks_nobody_out(before: list[str]) -> None:
    """Given a `/tmp/tfmux-UID` of another user, when four bridges connect to a new run at once,
    then they share one agent, whose socket lies in a private folder of ours."""
    taken = f"/tmp/tfmux-{os.getuid()}"
    inside(before, f"mkdir -m 777 {taken} && chown {OTHER} {taken}")
    clients = admitted_at_once(f"t-{os.urandom(4).hex()}", before)
    assert inside(before, f"ls -A {taken}") == ""
    assert inside(before, f"stat -c '%a %u' {taken}-*") == f"700 {os.getuid()}\n"
    assert len(inside(before, f"ls {taken}-*/*.sock").split()) == 1
    finish(clients)


def test_the_folder_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a link and a file in the place of the agent's folder, when that is looked for, then a
    private one is made beside them and found again; without the link the usual name is taken."""
    monkeypatch.setattr(folders, "_TEMPORARY", str(tmp_path))
    name = f"tfmux-{os.getuid()}"
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / name).symlink_to(tmp_path / "elsewhere")
    (tmp_path / f"{name}-1").write_text("")
    (tmp_path / f"{name}0-x").mkdir()
    found = folders.local_folder()
    assert Path(found).name.startswith(f"{name}-") and Path(found).stat().st_mode & 0o777 == 0o700
    assert folders.local_folder() == found
    Path(found).chmod(0o755)
    assert folders.local_folder() == found and Path(found).stat().st_mode & 0o777 == 0o700
    Path(found).rmdir()
    (tmp_path / name).unlink()
    assert folders.local_folder() == str(tmp_path / name)
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize("umask", ["077", "027", "000"])
def test_the_umask_of_the_login_is_the_tasks(umask: str) -> None:
    """Given a login with any umask, when a task is started there, then it has that umask, as at the
    login's prompt, and all that is the agent's own is private."""
    with Client(before=["sh", "-c", f'umask {umask}; exec "$@"', "sh"]) as client:
        client.hello()
        client.start("w:0", ["sh", "-c", "umask"])
        client.get(wire.EOF, task="w:0")
        client.follow("w:0")
        assert client.log_until(b"\n") == f"0{umask}\n".encode()
        run = state_folder(client.run_id)
        socket = Path(agent_client.socket_path(client.run_id))
        ours = [run, *run.rglob("*"), socket, socket.with_suffix(".lock"), socket.parent]
        modes = {path: path.stat().st_mode & 0o077 for path in ours}
        client.kill()
        client.leave()
    assert not any(modes.values()), modes
