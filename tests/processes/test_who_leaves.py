"""Runs whose clients leave, or are elsewhere: screens, terminals, machines and launcher processes
that go."""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from launcher.client.run_client import RunClient
from launcher.paths import runs_home
from launcher.run.states import RunPhase, TaskState
from launcher.store.launcher_socket import connect
from launcher.store.runs import RunFolder
from tests.support import command
from tests.support.budgets import soak, variants
from tests.support.cluster_texts import one_task
from tests.support.command import Up, run, write
from tests.support.paths import REPOSITORY
from tests.support.patience import PATIENCE, wait_until
from tests.support.streams import records
from tests.support.terminal import Terminal, cluster, living
from tests.testbed import guard, proc
from tests.testbed.launcher_thread import LauncherThread

EVERYONE = {"ps:0", "worker:0", "worker:1"}
SUBSCRIBE = b'{"command": "subscribe", "on_close": "nothing", "events": true}\n'


def ticking(folder: Path, settings: str) -> Path:
    """The cluster of `test_terminal` with other rules."""
    file = cluster(folder)
    file.write_text(file.read_text() + settings + "\n")
    return file


def pids_of_everyone() -> dict[str, int]:
    """The first process of each task, when all three tasks have one."""
    wait_until(lambda: living() == EVERYONE, "all three processes")
    return guard.first_pids()


def screen_pid() -> int:
    """The process of the only screen."""
    (found,) = guard.screens_here()
    return found.pid


def run_of_launcher() -> RunFolder:
    """The only run; it has a launcher process."""
    (run,) = RunFolder.all()
    wait_until(lambda: run.launcher_pid(), "a launcher process")
    return run


@variants(
    ("rule", "how"),  # under "kill" `test_terminal` closes a terminal, too
    [("kill", "killed"), ("detach", "closed"), soak("kill", "closed"), soak("detach", "killed")],
    test=2,
)
def test_what_on_hangup_says(
    terminal: Callable[[int, int], Terminal], tmp_path: Path, rule: str, how: str
) -> None:
    """The terminal is closed, or its screen SIGKILLed: every task is dead, or every task is the
    same process as before."""
    window = terminal(120, 40)
    window.run("up", str(ticking(tmp_path, f'on_hangup = "{rule}"')))
    window.wait_for("worker:1 @localhost", "step 2")
    before, run = pids_of_everyone(), run_of_launcher()
    if how == "killed":
        os.kill(screen_pid(), signal.SIGKILL)
    else:
        window.close()
    if rule == "kill":
        wait_until(lambda: run.launcher_pid() is None, "the launcher process has ended", PATIENCE)
        assert not living()
        (listed,) = [e for e in records(run) if e["event"] == "run" and "outcome" in e]
        assert (listed["outcome"], listed["exit_code"]) == ("terminated", 143)
        return
    wait_until(lambda: not guard.screens_here(), "the screen's process is gone", PATIENCE)
    step = (run.path / "worker-0.log").stat().st_size
    wait_until(lambda: (run.path / "worker-0.log").stat().st_size > step, "later steps")
    assert guard.first_pids() == before
    assert command.run("kill", run.run_id).returncode == 0
    assert not living()


def test_a_terminal_that_goes_without_a_signal(tmp_path: Path) -> None:
    """Given a terminal that controls nobody, so that the kernel sends no SIGHUP: the screen went
    on, and took a whole processor to read the end of its input."""
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "tui.main", "up", str(ticking(tmp_path, ""))]
    screen = subprocess.Popen(
        words, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    try:
        painted = b""
        while b"step 2" not in painted:
            painted = painted[-4096:] + os.read(ours, 1 << 16)
        run = run_of_launcher()
        os.close(ours)
        assert screen.wait(PATIENCE) == 143
        wait_until(lambda: run.launcher_pid() is None, "the launcher process has ended", PATIENCE)
        assert not living()
    finally:
        screen.send_signal(signal.SIGHUP)
        screen.wait()


@pytest.mark.prove
def test_two_terminals_detach_and_attach_at_once(
    terminal: Callable[[int, int], Terminal], tmp_path: Path
) -> None:
    """`d` leaves a launcher in the background. Both come back to that process, and see all from the
    first line on; the first F9 ends the run for both. A screen that is stopped holds up no kill:
    when it goes on it says so."""
    first, second = terminal(120, 40), terminal(120, 40)
    first.run("up", str(cluster(tmp_path)))
    first.wait_for("worker:1 @localhost", "step 2")
    run = run_of_launcher()
    launcher, before = run.launcher_pid(), pids_of_everyone()
    second.run("attach", run.run_id)
    second.wait_for("worker:1 @localhost", "running")
    for window in (first, second):
        window.keys("d", "y")
    for window in (first, second):
        window.wait_for("EXIT-CODE 0", "tfmux attach")
    assert run.launcher_pid() == launcher and guard.first_pids() == before
    third, fourth = terminal(120, 40), terminal(120, 40)
    third.run("attach", run.run_id)
    third.wait_for("worker:1 @localhost", "running")
    pid = screen_pid()
    fourth.run("attach", run.run_id)
    fourth.wait_for("worker:1 @localhost", "running")
    assert run.launcher_pid() == launcher and guard.first_pids() == before
    fourth.keys("z", "g")
    fourth.wait_for("step 0 loss 1.0")
    os.kill(pid, signal.SIGSTOP)
    try:
        fourth.keys("F9")
        fourth.wait_for("no process is left")
        assert not living()
    finally:
        os.kill(pid, signal.SIGCONT)
    third.wait_for("Receipt", "no process is left")
    third.keys("q")
    third.wait_for("EXIT-CODE 130")


@variants("jump", [-3600.0, 3600.0], test=1)
def test_the_launcher_dies_and_the_clock_jumps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    """Another launcher goes on by its own clock; leases and graces are not the clock's."""
    file = ticking(tmp_path, 'on_disconnect = "keep"')
    with Up("up", str(file), "--json") as up:
        up.state("worker:1", "running")
        before = pids_of_everyone()
        up.kill_launcher()
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + jump)
    (run,) = RunFolder.all()
    monkeypatch.setattr("launcher.client.run_client.LauncherProcess", LauncherThread)
    client = RunClient.attach(run)
    try:
        wait_until(lambda: client.snapshot().state is RunPhase.RUNNING, "running", PATIENCE)
        tasks = client.snapshot().tasks
        assert {view.state for view in tasks} <= {TaskState.READY, TaskState.RUNNING}
        assert guard.first_pids() == before
        client.kill_all()
        assert client.wait(PATIENCE)
        receipt = client.snapshot().receipt
        assert receipt is not None and receipt.clean
        assert client.snapshot().exit_code == 130
        assert {view.exit_signal for view in client.snapshot().tasks} == {"TERM"}
    finally:
        client.close()
    assert not living()


def test_another_user_is_not_heard(tmp_path: Path) -> None:
    """The socket's folder keeps them out; who got hold of a connection all the same is cut off."""
    script = """
import os, socket, sys
path = sys.argv[1]
for _ in range(100):  # each launcher that begins closes the folder to others again
    os.chmod(os.path.dirname(path), 0o711)
    os.chmod(path, 0o666)
    pid = os.fork()
    if pid == 0:
        os.setgid(65534)
        os.setuid(65534)
        link = socket.socket(socket.AF_UNIX)
        try:
            link.connect(path)
        except PermissionError:
            os._exit(1)
        try:
            link.sendall(b'{"command": "kill_all", "by_person": true}\\n')
            print(repr(link.recv(10)), flush=True)
        except (BrokenPipeError, ConnectionResetError):
            print(repr(b""), flush=True)
        os._exit(0)
    if os.waitpid(pid, 0)[1] == 0:
        break
"""
    if os.getuid() != 0:
        pytest.skip("needs root, to become somebody else")
    from launcher.store.runs import socket_path

    with Up("up", str(cluster(tmp_path)), "--json") as up:
        up.state("worker:1", "running")
        path = socket_path(up.run_id)
        try:
            done = subprocess.run(
                [sys.executable, "-c", script, str(path)],
                capture_output=True,
                text=True,
                cwd=REPOSITORY,
                timeout=PATIENCE,
            )
        finally:
            path.parent.chmod(0o700)
        assert done.stdout == "b''\n", done.stderr
        with connect(up.run_id) as link:
            link.sendall(SUBSCRIBE)
            link.settimeout(PATIENCE)
            while b'"state": "running"' not in (line := read(link)):
                assert line.startswith(b'{"event":'), line
        up.press_ctrl_c()
        assert up.wait() == 130


def read(link: socket.socket) -> bytes:
    """The first line that comes."""
    data = b""
    while b"\n" not in data:
        data += link.recv(1 << 16)
    return data


def test_a_launcher_process_is_nobodys_leftover(tmp_path: Path) -> None:
    """A launcher process ends with its run, and leaves no socket."""
    from launcher.store.runs import socket_path

    with Up("up", str(cluster(tmp_path)), "--json") as up:
        up.state("worker:1", "running")
        launcher, path = up.launcher, socket_path(up.run_id)
        assert path.exists()
        up.press_ctrl_c()
        assert up.wait() == 130
        wait_until(lambda: proc.read(launcher) is None, "the launcher process has gone")
    assert not path.exists()


SLEEPS = "import time; print('up', flush=True); time.sleep(1000)"
CASES = ("lives", "stopped", "killed")


@pytest.mark.parametrize("launcher", CASES)
def test_a_run_that_is_left_goes_on_only_where_its_launcher_lives(
    tmp_path: Path, launcher: str
) -> None:
    """Given a terminal that closes while the launcher process lives, stands still, or has just been
    killed, then "the run continues" and 0 are said in the first case alone, and 4 otherwise."""
    file = write(tmp_path, one_task(SLEEPS, settings='on_hangup = "detach"'))
    with Up("up", str(file), "--json") as up:
        up.log("worker:0", "up")
        pid = up.launcher
        up.process.send_signal(signal.SIGSTOP)
        if launcher == "killed":
            os.kill(pid, signal.SIGKILL)
            folder = RunFolder.find(up.run_id)
            wait_until(lambda: folder.launcher_pid() is None, "the launcher has ended")
        elif launcher == "stopped":
            os.kill(pid, signal.SIGSTOP)
        up.process.send_signal(signal.SIGHUP)
        up.process.send_signal(signal.SIGCONT)
        status = up.wait()
        if launcher == "stopped":
            os.kill(pid, signal.SIGCONT)
        assert ("the run continues; come back with" in up.said) == (launcher == "lives"), up.said
        assert status == (0 if launcher == "lives" else 4), up.transcript()
        if launcher == "stopped":
            assert f"kill -CONT {pid}" in up.said
        if launcher == "killed":
            assert "its launcher process has ended" in up.said
        run("kill", up.run_id)


SLOWLY = "import time\nfor step in range(100000): print('step', step, flush=True); time.sleep(0.05)"
KEPT = 'on_hangup = "detach"\non_disconnect = "keep"'
ELSEWHERE = "not confirmed: localhost of this run is other, which launched it: use tfmux there"
UNKNOWN = "not confirmed: localhost of this run is another machine or account, which launched it"


def test_a_kill_from_another_machine_confirms_no_local_task(tmp_path: Path) -> None:
    """Given a folder that another machine has launched, then `ps`, `rm` and `kill` name that
    machine or its host, the kill fails, and the task lives, whatever host of another file the
    record's last line says was the run's; on that machine it is ended. The same with the
    cluster file alone, where the folder is not there, and nobody knows the machine."""
    cluster = write(tmp_path, one_task(SLOWLY, settings=KEPT))
    with Up("up", str(cluster), "--json") as up:
        up.log("worker:0", "step 3")
        run_id = up.run_id
        up.kill_launcher()
    run = runs_home() / run_id
    kept = shutil.copytree(run, tmp_path / "kept")
    file = run / "launch.json"
    here = json.loads(file.read_text())
    there = {**here["machine"], "name": "other", "boot": "other-boot", "id": "other-id"}
    file.write_text(json.dumps({**here, "machine": there}))
    listed = command.run("ps")
    assert run_id in listed.stdout and "other" in listed.stdout + listed.stderr
    told = (run / "events.jsonl").read_bytes()
    lie = {"time": 1e9, "event": "end", "run": run_id, "name": "one", "state": "ended"}
    lie |= {"started": 1.0, "ended": 2.0, "outcome": "success", "exit_code": 0, "clean": True}
    for last in (b"", json.dumps({**lie, "hosts": ["tf9"]}).encode() + b"\n"):
        (run / "events.jsonl").write_bytes(told + last)
        deleted = command.run("rm", "--force", run_id)
        assert deleted.returncode == 1 and "may have processes on localhost" in deleted.stderr
    (run / "events.jsonl").write_bytes(told)
    done = command.run("kill", run_id)
    assert done.returncode == 4, done.stdout + done.stderr
    assert ELSEWHERE in done.stdout and "no process is left" not in done.stdout
    assert len(living()) == 1

    shutil.rmtree(run)
    elsewhere = command.other_machine(Path(os.environ["XDG_DATA_HOME"]))
    no_processes = ["unshare", "-pf", "--mount-proc", *elsewhere]  # of this machine
    done = command.run("kill", run_id, "--file", str(cluster), prefix=no_processes)
    assert done.returncode == 4, done.stdout + done.stderr
    assert UNKNOWN in done.stdout and "no process is left" not in done.stdout
    assert len(living()) == 1

    shutil.rmtree(run)
    shutil.copytree(kept, run)
    done = command.run("kill", run_id)
    assert done.returncode == 0 and "no process is left, 1 host confirmed" in done.stdout, done
    assert not living()
