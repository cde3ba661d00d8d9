"""macOS as the machine that launches: no `/proc`, and nothing that only Linux has.

A stand-in: this kernel is Linux (`testbed/macos/sitecustomize.py` says what is taken away).
"""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from launcher.cluster.draft import parse
from launcher.cluster.problems import NO_LOCAL_TASKS
from launcher.errors import TfmuxError
from launcher.process import control_socket
from tests.support.command import Up, run, write
from tests.support.paths import REPOSITORY
from tests.support.patience import PATIENCE
from tests.testbed.inprocess import SshServer
from tests.testbed.serving import serving
from tui import demos

pytestmark = pytest.mark.prove


MACOS = REPOSITORY / "tests" / "testbed" / "macos"
MODULES = """
import importlib, pkgutil, sys, launcher, tui
assert sys.platform == "darwin"
for package in (launcher, tui):
    for each in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(each.name)
        print(each.name)
"""
LOCAL = """
name = "local"
[jobs.worker]
tasks = ["localhost:auto"]
[run]
command = ["true"]
"""
WAITING = """
name = "remote"
{host}
[jobs.worker]
tasks = ["far:auto", "far:auto"]
[run]
workdir = ""
success = "all"
command = ["sh", "-c", "echo {{job}} {{index}} says hello; {then}"]
[start.ready]
worker = "started"
[hooks]
on_end = ["sh", "-c", "cat > '{hooked}'"]
"""


@pytest.fixture
def macos(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all programs that the test starts find themselves on macOS."""
    monkeypatch.setenv("PYTHONPATH", str(MACOS))


def remote(folder: Path, server: SshServer, then: str = "exit 0") -> Path:
    """A cluster of two tasks on a host, which is Linux."""
    host = server.host_toml("far", sys.executable)
    return write(folder, WAITING.format(host=host, then=then, hooked=folder / "hooked"))


def test_every_module_can_be_imported(macos: None) -> None:
    """Modules of the agent are included: the launcher reads its frames."""
    argv = [sys.executable, "-c", MODULES]
    done = subprocess.run(argv, cwd=REPOSITORY, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    names = done.stdout.split()
    assert {"launcher.process.entry", "tui.app", "tui.web.page_server"} <= set(names)


def test_the_stand_in_has_no_proc(macos: None) -> None:
    """What the other tests stand on."""
    script = """
import os, pathlib, sys
for look in (open, os.listdir, os.scandir, os.stat, lambda p: os.open(p, os.O_RDONLY)):
    try:
        look("/proc/self" if look in (os.listdir, os.scandir) else "/proc/self/stat")
    except FileNotFoundError:
        continue
    raise SystemExit(f"{look} sees /proc")
print(sys.platform, hasattr(os, "memfd_create"), pathlib.Path("/proc").exists())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "darwin False False\n", done.stderr


def test_a_run_on_hosts(macos: None, ssh_server: SshServer, tmp_path: Path) -> None:
    """Checked, launched over SSH with the user's configuration, watched, and ended by itself."""
    (Path.home() / ".ssh").mkdir(mode=0o700)
    (Path.home() / ".ssh" / "config").write_text("Match final\n  ServerAliveInterval 7\n")
    file = remote(tmp_path, ssh_server)
    checked = run("check", str(file), "--json")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    done = run("up", str(file), "--headless")
    assert done.returncode == 0, done.stderr
    for index in (0, 1):
        assert f"worker:{index} | worker {index} says hello" in done.stdout
    assert "no process is left" in done.stderr
    assert json.loads((tmp_path / "hooked").read_text())


def test_coming_back_to_a_run_and_killing_it(
    macos: None, ssh_server: SshServer, tmp_path: Path
) -> None:
    """Another process finds it, reads its logs, follows it and ends it, over the control socket."""
    then = "while sleep 0.2; do echo tick; done"
    with Up("up", str(remote(tmp_path, ssh_server, then)), "--json") as up:
        for index in (0, 1):
            up.log(f"worker:{index}", "says hello")
        (listed,) = json.loads(run("ps", "--json").stdout)
        assert (listed["run"], listed["hosts"][0]["tasks"]) == (up.run_id, ["worker:0", "worker:1"])
        with Up("attach", up.run_id, "--json") as attached:
            attached.log("worker:0", "tick")
            logs = run("logs", up.run_id, "worker:0")
            assert logs.stdout.startswith("worker 0 says hello\ntick\n"), logs.stderr
            killed = run("kill", up.run_id)
            assert killed.returncode == 0 and "confirmed" in killed.stdout, killed.stderr
            assert attached.wait() == 130
        assert up.wait() == 130


def test_a_host_that_a_command_reaches(macos: None, tmp_path: Path) -> None:
    """`via`: the command is ended with its process group, since there is no process table. The
    command is a clean environment, where Python is on Linux again."""
    via = ["env", "-u", "PYTHONPATH"]
    host = f'[hosts.far]\nvia = {json.dumps(via)}\naddress = "127.0.0.1"\n'
    host += f'python = "{sys.executable}"\n'
    text = WAITING.format(host=host, then="exit 0", hooked=tmp_path / "hooked")
    done = run("up", str(write(tmp_path, text)), "--headless")
    assert done.returncode == 0, done.stderr
    assert "worker:1 | worker 1 says hello" in done.stdout


def test_tasks_of_this_machine_are_refused_in_one_sentence(macos: None, tmp_path: Path) -> None:
    """By every command that would launch or show them, and of a demo without the file's lines."""
    file = str(write(tmp_path, LOCAL))
    for words in (("check", file), ("plan", file), ("up", file, "--headless")):
        done = run(*words)
        assert done.returncode == 2 and NO_LOCAL_TASKS in done.stderr, done.stderr
        assert "jobs.worker.tasks" in done.stderr and not done.stdout
    done = run("demo", "--headless")
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr
    assert "demos run their tasks on this machine" in done.stderr


def test_the_browser_page_is_kept_by_its_token_alone(macos: None) -> None:
    """No kernel table tells whose a connection is: said when it starts. Token, cookie and origin
    are looked at as ever."""
    with serving() as server:
        assert server.request("/").status == 403
        assert server.request("/?token=wrong").status == 403
        cookie = {"Cookie": server.log_in()}
        assert server.request("/", headers=cookie).status == 200
        foreign = {**cookie, "Origin": "http://elsewhere.example"}
        assert server.request("/", headers=foreign).status == 403
        server.process.terminate()
        said = server.process.communicate(timeout=PATIENCE)[1]
    assert "only the token keeps others out" in said


@pytest.fixture
def darwin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Say in this process that it is not Linux."""
    monkeypatch.setattr(sys, "platform", "darwin")


def test_the_editor_refuses_tasks_of_this_machine(darwin: None, tmp_path: Path) -> None:
    """At the task, with the sentence of the command line; hosts elsewhere are fine."""
    (problem,) = parse(LOCAL, tmp_path / "a.toml").problems
    assert NO_LOCAL_TASKS in str(problem) and problem.line == 4
    elsewhere = LOCAL.replace("localhost", "tf1") + '[hosts.tf1]\nssh = "tf1"\n'
    assert not parse(elsewhere, tmp_path / "a.toml").problems


def test_a_demo_is_refused(darwin: None) -> None:
    """Also on the home screen, which asks the same."""
    with pytest.raises(TfmuxError, match="Linux"):
        demos.check_machine()


class Peer:
    """A Unix socket of macOS, whose other end is a process of some user."""

    def __init__(self, uid: int) -> None:
        self._answer = struct.pack("=IIhxx16I", 0, uid, 1, *[20] * 16)

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        """Answer as `LOCAL_PEERCRED` does."""
        assert (level, option, size) == (0, 1, len(self._answer))
        return self._answer


def test_the_user_of_a_client_is_read_as_macos_tells_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """`struct xucred`; where there is neither of the two options, the folder's mode must do."""
    peer: Any = Peer(501)
    monkeypatch.delattr(socket, "SO_PEERCRED")
    assert control_socket.peer_uid(peer) == os.getuid()
    monkeypatch.setattr(socket, "LOCAL_PEERCRED", 1, raising=False)
    assert control_socket.peer_uid(peer) == 501
