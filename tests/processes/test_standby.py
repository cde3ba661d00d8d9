"""The launcher process that waits beside a screen, is told, or is told by halves."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from launcher.client import standby
from launcher.client.launcher_process import LauncherProcess
from launcher.client.run_client import RunClient
from launcher.client.standby import Standby
from launcher.cluster.read import load
from launcher.ids import new_run_id
from launcher.paths import runs_home
from launcher.store.runs import RunFolder
from tests.support import command
from tests.support.budgets import variants
from tests.support.cluster_texts import cluster_text
from tests.support.command import write
from tests.support.patience import PATIENCE, wait_until
from tests.support.streams import records
from tests.support.terminal import Terminal
from tests.testbed import guard
from tests.testbed.proc import Process

SAYS = "umask; pwd -P; echo said $SAID; exec sleep 1000"
TEXT = cluster_text(
    {"worker": 1},
    "waits",
    command=["sh", "-c", SAYS],
    workdir="",
    grace=1,
    start={"ready": {"worker": "started"}},
)
MOMENTS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8)
"""Seconds behind the key that launches: the folder is made, the order sent, hosts connected to,
tasks started."""


@pytest.fixture
def ready() -> Iterator[Standby]:
    """What has a launcher process wait; closed in the end."""
    made = Standby()
    yield made
    made.close()


def launchers() -> list[Process]:
    """The launcher processes of this session."""
    return [each for each in guard.programs_here() if "launcher.process.entry" in each.argv]


def waiting() -> Process:
    """The only launcher process, which may only just come."""
    wait_until(lambda: len(launchers()) == 1, "one launcher process waits")
    (only,) = launchers()
    return only


def launched(ready: Standby, text: str = TEXT) -> RunClient:
    """A run that is launched as a screen does."""
    file = runs_home().parent / "file.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return RunClient.launch(load(file), text, process=ready.take())


def end(client: RunClient) -> None:
    """Ends a run."""
    client.kill_all()
    assert client.wait(PATIENCE)
    client.close()
    assert client.snapshot().clean and client.lost_launchers == 0


# --- on a screen ------------------------------------------------------------------------------


def test_the_key_tells_the_process_that_waits(
    terminal: Callable[[int, int], Terminal], tmp_path: Path
) -> None:
    """Given a cluster on the screen, when a person launches it, then the launcher process is the
    one that has waited, with the umask, the directory and the environment of the screen; none is
    left beside the run, and another waits when the cluster is shown again."""
    file = write(tmp_path, TEXT)
    window = terminal(160, 45)
    words = f"umask 027; cd {tmp_path}; SAID=so exec {sys.executable} -m tui.main {file}"
    window.start(["sh", "-c", words])
    window.wait_for("hosts × jobs")
    before = waiting()
    window.keys("l")
    window.wait_for("said so", "0027")
    (run,) = RunFolder.all()
    wait_until(lambda: run.launcher_pid() == before.pid, "the launcher has its lock")
    assert [each.pid for each in launchers()] == [before.pid]
    assert os.readlink(f"/proc/{before.pid}/cwd") == str(tmp_path)
    window.keys("F9")
    window.wait_for("Esc back   l launch again")
    window.keys("Escape")
    window.wait_until(lambda screen: "Esc back   l launch again" not in screen, "the logs")
    window.keys("Escape")
    window.wait_for("hosts × jobs")
    wait_until(
        lambda: [each for each in launchers() if each.pid != before.pid], "another one waits"
    )
    window.close()
    wait_until(lambda: not guard.programs_here(), "nothing is left")


@variants("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP], test=1)
def test_the_process_ends_with_its_screen(
    terminal: Callable[[int, int], Terminal], tmp_path: Path, number: signal.Signals
) -> None:
    """Given a screen with a launcher process that waits, when the screen is killed, then the
    process has gone, and there is no run."""
    window = terminal(160, 45)
    window.run(str(write(tmp_path, TEXT)))
    waiting()
    (screen,) = guard.screens_here()
    os.kill(screen.pid, number)
    wait_until(lambda: not guard.programs_here(), "both are gone")
    assert RunFolder.all() == []


@pytest.mark.prove
def test_a_process_that_imports_ends_with_its_screen(
    terminal: Callable[[int, int], Terminal], tmp_path: Path
) -> None:
    """Given a launcher process that has only just been started, when its screen is killed, then
    the process has gone."""
    window = terminal(160, 45)
    window.run(str(write(tmp_path, TEXT)))
    pid = waiting().pid
    (screen,) = guard.screens_here()
    os.kill(pid, signal.SIGSTOP)
    os.kill(screen.pid, signal.SIGKILL)
    os.kill(pid, signal.SIGCONT)
    wait_until(lambda: not guard.programs_here(), "both are gone")


@variants("seconds", MOMENTS, test=1)
def test_a_screen_that_is_killed_while_it_launches_leaves_nothing(
    terminal: Callable[[int, int], Terminal], tmp_path: Path, seconds: float
) -> None:
    """Given the key that launches has been pressed, when the screen is killed so many seconds
    later, then the run has never begun or has been ended with a receipt, by one launcher process,
    and no process is left."""
    window = terminal(160, 45)
    window.run(str(write(tmp_path, TEXT)))
    window.wait_for("hosts × jobs")
    waiting()
    (screen,) = guard.screens_here()
    window.keys("l")
    time.sleep(seconds)  # the moment, not a wait
    os.kill(screen.pid, signal.SIGKILL)
    wait_until(lambda: not guard.all_here(), "nothing is left")
    for run in RunFolder.all():
        assert run.launcher_pid() is None
        said = records(run) if run.events.exists() else []
        assert [r["clean"] for r in said if r["event"] == "receipt"] == [True] * bool(said)
        log = run.path / "launcher.log"
        assert not log.exists() or "Traceback" not in log.read_text()
    assert "no active runs" in command.run("ps").stderr


@pytest.mark.prove
def test_two_screens_have_a_process_each(
    terminal: Callable[[int, int], Terminal], tmp_path: Path
) -> None:
    """Given two screens with the same cluster, when both launch it, then two runs have a launcher
    process each: that which waited beside the screen."""
    file = write(tmp_path, TEXT)
    windows = [terminal(160, 45) for _ in range(2)]
    for window in windows:
        window.run(str(file))
        window.wait_for("hosts × jobs")
    wait_until(lambda: len(launchers()) == 2, "a process for each")
    before = {each.pid for each in launchers()}
    for window in windows:
        window.keys("l")
    for window in windows:
        window.wait_for("waits  running")
    wait_until(
        lambda: {run.launcher_pid() for run in RunFolder.all()} == before, "the same processes"
    )
    for window in windows:
        window.keys("F9")
        window.wait_for("no process is left")


# --- while it waits ---------------------------------------------------------------------------


def test_a_process_that_dies_while_it_waits_is_replaced(
    ready: Standby, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given the launcher process that waits is killed, when the screen still shows its cluster,
    then another waits, and takes the run."""
    monkeypatch.setattr(standby, "_AGAIN_SECONDS", 0.0)
    ready.prepare(ssh=False)
    dead = waiting().pid
    os.kill(dead, signal.SIGKILL)

    def replaced() -> bool:
        ready.prepare(ssh=False)  # as a screen does every two seconds
        return [each.pid for each in launchers()] not in ([], [dead])

    wait_until(replaced, "another one waits")
    pid = waiting().pid
    client = launched(ready)
    wait_until(client.folder.launcher_pid, "the launcher has its lock")
    assert client.folder.launcher_pid() == pid
    end(client)


def test_a_process_that_dies_is_not_replaced_at_once(ready: Standby) -> None:
    """Given launcher processes that cannot live here, when one after the other dies while it waits,
    then not more than one is started in ten seconds."""
    started = set()
    began = time.monotonic()
    while time.monotonic() - began < 2.0:  # some starts long
        ready.prepare(ssh=False)
        for each in launchers():
            started.add(each.pid)
            with suppress(ProcessLookupError):  # it is still listed while it goes
                os.kill(each.pid, signal.SIGKILL)
    assert len(started) <= 1 + (time.monotonic() - began) / 10


def test_a_run_outlives_the_process_that_was_to_be_told(ready: Standby) -> None:
    """Given the launcher process that waits has just died, when a person launches, then the run
    has a new one, whether the death was noticed before the order or after it."""
    ready.prepare(ssh=False)
    dead = waiting().pid
    os.kill(dead, signal.SIGKILL)
    client = launched(ready)
    wait_until(guard.tasks_here, "its task runs")
    assert [each.pid for each in launchers()] == [client.folder.launcher_pid()] != [dead]
    client.kill_all()
    assert client.wait(PATIENCE)
    client.close()
    assert client.snapshot().clean


def test_a_process_that_waits_is_told_once(ready: Standby) -> None:
    """Given one launcher process that waits, when a person launches twice, then each run has a
    launcher process of its own."""
    ready.prepare(ssh=False)
    pid = waiting().pid
    clients = [launched(ready) for _ in range(2)]
    wait_until(lambda: all(client.folder.launcher_pid() for client in clients), "both have one")
    first, second = (client.folder.launcher_pid() for client in clients)
    assert first == pid != second
    for client in clients:
        end(client)


def change_environment(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """A variable is set."""
    monkeypatch.setenv("SAID", "changed")


def change_directory(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """The working directory is another one."""
    monkeypatch.chdir(folder)


def change_program(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """A file of the program is another one."""
    (folder / "launcher" / "errors.py").touch()


@variants("change", [change_environment, change_directory, change_program], test=1)
def test_a_process_of_other_surroundings_is_not_told(
    ready: Standby,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[pytest.MonkeyPatch, Path], None],
) -> None:
    """Given the environment, the directory or the program has changed since the launcher process
    was started, when a person launches, then the run has a new one, and the old one has gone."""
    package = Path(standby.__file__).parent.parent
    shutil.copytree(package, tmp_path / "launcher", ignore=shutil.ignore_patterns("__pycache__"))
    copied = tmp_path / "launcher" / "session" / "standby.py"
    monkeypatch.setattr(standby, "__file__", str(copied))
    ready.prepare(ssh=False)
    old = waiting()
    change(monkeypatch, tmp_path)
    client = launched(ready)
    wait_until(client.folder.launcher_pid, "the launcher has its lock")
    pid = client.folder.launcher_pid()
    assert pid != old.pid
    wait_until(lambda: [each.pid for each in launchers()] == [pid], "the old one has gone")
    end(client)


def test_one_that_logs_in_to_hosts_takes_the_place_of_one_that_does_not(ready: Standby) -> None:
    """Given a launcher process that waits for a launch here, when the cluster shown has hosts, then
    one that has imported SSH waits in its place, and stays for a cluster without hosts."""
    ready.prepare(ssh=False)
    here = waiting()
    ready.prepare(ssh=True)
    wait_until(lambda: here.pid not in [each.pid for each in launchers()], "the first has gone")
    other = waiting()
    assert other.argv[-1] == "ssh" and other.pid != here.pid
    ready.prepare(ssh=False)
    assert waiting().pid == other.pid


def test_a_process_that_waits_does_nothing() -> None:
    """Given a launcher process has made itself ready, which has not failed, when a second passes,
    then it has used no more than a hundredth of it, has no socket but its pipe, and no run has a
    folder."""
    process = LauncherProcess(ssh=True)
    pid = waiting().pid

    def looked_at() -> tuple[str, int]:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return fields[0], int(fields[11]) + int(fields[12])

    def sleeps() -> bool:
        state, before = looked_at()
        time.sleep(1.0)  # the second
        return state == "S" and (looked_at()[1] - before) / os.sysconf("SC_CLK_TCK") <= 0.01

    wait_until(sleeps, "it waits")
    links = [os.readlink(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")]
    assert len([link for link in links if link.startswith("socket:")]) <= 2  # and a fork server's
    assert RunFolder.all() == []
    assert process.errors == ""
    process.cancel()


# --- told by halves ---------------------------------------------------------------------------


@variants("part", [0, 1, 2, 20, -2, -1], test=1)
def test_half_an_order_is_none(tmp_path: Path, part: int) -> None:
    """Given so many bytes of an order have come, with the run's lock, when the front end dies, then
    the launcher process ends, the run has never begun, and its lock is free for a kill."""
    folder = RunFolder.create(new_run_id("waits"), TEXT, load(write(tmp_path, TEXT)))
    lock = folder.take_lock()
    assert lock is not None
    process = LauncherProcess()
    order = {"launch": folder.run_id, "folder": str(folder.path), "on_close": "kill"}
    line = json.dumps(order).encode() + b"\n"
    if half := line[:part]:
        socket.send_fds(process.link, [half], [lock])
    os.close(lock)
    process.link.close()
    wait_until(lambda: not process.alive, "it has ended")
    assert folder.launcher_pid() is None and not folder.events.exists()
    assert process.errors == ""
    done = command.run("kill", folder.run_id)
    assert done.returncode == 0 and "no process is left" in done.stdout + done.stderr


def test_an_order_is_heard_when_it_comes_in_pieces(tmp_path: Path) -> None:
    """Given an order that comes byte by byte, when it is whole, then its run is launched."""
    folder = RunFolder.create(new_run_id("waits"), TEXT, load(write(tmp_path, TEXT)))
    process = LauncherProcess()
    order = {"launch": folder.run_id, "folder": str(folder.path), "on_close": "kill"}
    for byte in json.dumps(order).encode() + b"\n":
        process.link.sendall(bytes([byte]))
    wait_until(guard.tasks_here, "its task runs")
    process.link.close()
    wait_until(lambda: not guard.all_here(), "it is ended with its front end")
    assert [r["clean"] for r in records(folder) if r["event"] == "receipt"] == [True]
