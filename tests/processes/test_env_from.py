"""Variables that `env_from` hands on: one that is not set here is said, and never lost silently."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from launcher.paths import runs_home
from launcher.store.launcher_socket import connect
from tests.support.cluster_texts import cluster_text
from tests.support.command import Up, python_task, run, write
from tests.testbed.inprocess import SshServer

SCRIPT = """
import os, time
print("token", os.environ.get("TOKEN_OF_MINE", "none"), os.getpid(), flush=True)
time.sleep(1000)
"""


def cluster(host: str = "", place: str = "localhost:auto") -> str:
    """Two workers that say what they were given."""
    return cluster_text(
        {"worker": {"tasks": [place, place], "env_from": ["TOKEN_OF_MINE"]}},
        "secrets",
        host,
        command=python_task(SCRIPT),
        workdir="",
        on_disconnect="keep",
        grace=1,
        start={"ready": {"worker": "started"}},
    )


def notes(up: Up) -> list[str]:
    """What was said once, so far."""
    return [event["note"] for event in up.of("note")]


def test_check_warns_of_a_variable_that_is_not_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The warning names variable, tasks and remedy, and stops nothing; with the variable set there
    is none."""
    file = str(write(tmp_path, cluster()))
    done = run("check", file)
    assert done.returncode == 0, done.stderr
    assert "[env-unset]" in done.stdout
    said = "TOKEN_OF_MINE (env_from) is not set in the launcher's environment: worker:0, worker:1"
    assert said in " ".join(done.stdout.split())
    monkeypatch.setenv("TOKEN_OF_MINE", "x")
    assert "env-unset" not in run("check", file).stdout


def test_up_notes_a_variable_that_is_not_set(tmp_path: Path) -> None:
    """The tasks start without it, and the run says which."""
    with Up("up", str(write(tmp_path, cluster())), "--json") as up:
        assert up.log("worker:0", "token")["text"].startswith("token none ")
        up.wait_for(lambda e: "TOKEN_OF_MINE" in e.get("note", ""), "the note")
        (note,) = notes(up)
        assert note == (
            "TOKEN_OF_MINE (env_from) is not set in the launcher's environment: "
            "worker:0, worker:1 start without it"
        )
        up.press_ctrl_c()
        assert up.wait() == 130, up.transcript()


def test_a_restart_from_another_shell_does_not_lose_a_secret_silently(
    ssh_server: SshServer, tmp_path: Path
) -> None:
    """The launcher that had the variable is dead; the one that attaches lacks it: it says so at
    once and at the restart. No value is stored."""
    file = write(tmp_path, cluster(ssh_server.host_toml("far", sys.executable), "far:auto"))
    with Up("up", str(file), "--json", env={"TOKEN_OF_MINE": "swordfish"}) as up:
        for task in ("worker:0", "worker:1"):
            assert up.log(task, "token")["text"].startswith("token swordfish ")
        assert notes(up) == []
        up.kill_launcher()
    with Up("attach", up.run_id, "--json") as attached:
        attached.wait_for(
            lambda e: "worker:1 would be restarted without it" in e.get("note", ""), "the note"
        )
        attached.wait_for(
            lambda e: (e["event"], e.get("state")) == ("run", "running"), "that it is taken up"
        )
        with connect(up.run_id) as link:
            link.sendall(b'{"command": "restart", "task": "worker:0", "hard": true}\n')
            link.shutdown(socket.SHUT_WR)
            assert link.recv(1) == b"", "the launcher has heard it"
        attached.wait_for(
            lambda e: e.get("note", "").endswith("worker:0 restarts without it"), "the note"
        )
        attached.log("worker:0", "token none")
        attached.press_ctrl_c()
        assert attached.wait() == 130, attached.transcript()
    stored = [path for path in runs_home().rglob("*") if path.is_file()]
    holding = [path.name for path in stored if b"swordfish" in path.read_bytes()]
    assert set(holding) <= {"worker-0.log", "worker-1.log"}, "only what the tasks printed"
