"""What a task's first process leaves when it ends with status 0, as the agent reports it."""

from __future__ import annotations

import shutil
import sys
import time
from itertools import count
from typing import Any

import pytest

from launcher.agent import wire
from tests.support.agent_client import Client
from tests.support.patience import PATIENCE

DAEMON = """
import os
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 3)
        os.execvp("sleep", ["sleep", "1000"])
    os._exit(0)
os.wait()
"""
POPEN = "import subprocess; subprocess.Popen(['sleep', '1000'])"
CLOSED = "</dev/null >/dev/null 2>&1"


def python(script: str) -> list[str]:
    return [sys.executable, "-c", script]


BACKGROUND = {
    "nohup": ["sh", "-c", f"nohup sleep 1000 {CLOSED} &"],
    "holds-the-output": ["sh", "-c", "sleep 1000 &"],
    "subshell": ["sh", "-c", f"(sleep 1000 {CLOSED} & ) ; :"],
    "own-session": ["setsid", "--fork", "sh", "-c", "sleep 1000; :"],
    "disowned": ["bash", "-c", f"sleep 1000 {CLOSED} & disown -a"],
    "double-fork": python(DAEMON),
    "popen": python(POPEN),
    "in-a-script": ["sh", "-c", "sh -c 'sh -c \"sleep 1000 &\" &' ; exit 0"],
}
FOREGROUND = {
    "waits": ["sh", "-c", "sleep 0.1 & sleep 0.2 & wait"],
    "daemon-that-ends": ["setsid", "--fork", "sleep", "0.3"],
    "pipe": ["sh", "-c", "sleep 0.1 | cat"],
    "closes-a-pipe": ["bash", "-c", "exec 5> >(cat >/dev/null); echo x >&5"],
}
FAILED = {
    "crashes": (["sh", "-c", "nohup cat /missing.py > /dev/null 2>&1 &"], 1),
    "fails-later": (["sh", "-c", "bash -c 'sleep 0.3; exit 4' &"], 4),
    "not-found": (["sh", "-c", "tfmux-missing --x &"], 127),
    "no-directory": (["sh", "-c", "cd /missing && exec cat train.py &"], None),
    "own-session": (["setsid", "--fork", "sh", "-c", "exit 3"], 3),
    "forks": (python("import os; os.fork() or 1/0"), 1),
    "is-killed": (["bash", "-c", "env sh -c 'kill -9 $$' & disown"], -9),
}
"""Programs that start within milliseconds on a busy machine, as an interpreter does not."""
FAILS = ["sh", "-c", "sleep 1000 & exit 3"]


def left(client: Client, task: str) -> Any:
    return client.get(wire.EXITED, task=task)["left"]


def failure(client: Client, name: str, argv: list[str]) -> Any:
    """What is reported of the process that the first one has left. One that gets no processor for
    longer than the agent waits has not failed at once, and one that fails before the first has
    ended may be that one's to wait for: then the task is begun again."""
    deadline = time.monotonic() + PATIENCE
    for number in count():
        client.start(f"{name}:{number}", argv)
        end = client.get(wire.EXITED, task=f"{name}:{number}")
        found = end["left"]
        if found is not None:
            assert found["unlisted"] == 0 and len(found["processes"]) == 1, (name, end)
            (each,) = found["processes"]
            if each.keys() & {"exit_code", "signal"}:
                return each
        assert time.monotonic() < deadline, (name, found)
    raise AssertionError


def test_every_way_into_the_background_is_seen(client: Client) -> None:
    """The end with status 0 lists the living processes of the task, whatever they did to get away;
    one that waits for its children, or whose daemon ends a moment later, has left nothing, nor is
    anything said of a failure, which speaks for itself."""
    tasks = {f"{name}:0": argv for name, argv in (BACKGROUND | FOREGROUND).items()}
    if shutil.which("tmux"):
        tasks["tmux:0"] = [
            "tmux",
            "-L",
            client.run_id,
            "-f",
            "/dev/null",
            "new",
            "-d",
            "sleep 1000",
        ]
    for task, argv in {**tasks, "fails:0": FAILS}.items():
        client.start(task, argv)
    for task in tasks:
        found, name = left(client, task), task.partition(":")[0]
        if name in FOREGROUND:
            assert found is None, (task, found)
            continue
        assert found, task
        assert any("sleep 1000" in each["command"] for each in found["processes"]), (task, found)
        assert found["unlisted"] == 0 and found["seconds"] < 60
    assert left(client, "fails:0") is None
    assert client.kill()["survivors"] == []


@pytest.mark.parametrize("name", FAILED)
def test_what_fails_in_the_background_at_once_is_seen(client: Client, name: str) -> None:
    """The status of what nobody waits for comes to the agent. Each has an agent of its own: of a
    process that lived between two looks it is known only then whose it was."""
    argv, status = FAILED[name]
    each = failure(client, name, argv)
    if status == -9:
        assert each["signal"] == "KILL" and "sh" in each["command"], each
    else:
        assert each["exit_code"] == status or status is None, each
        assert each["exit_code"] != 0
    assert each["forked"] is (name in ("not-found", "no-directory", "forks")), each
    assert client.kill()["survivors"] == []


def test_a_daemon_without_a_mark_is_its_tasks_where_no_other_can_have_started_it(
    client: Client,
) -> None:
    """An empty environment and a session of its own leave neither tag nor descent."""
    client.start("w:0", ["env", "-i", "setsid", "--fork", "sleep", "1000"])
    found = left(client, "w:0")
    assert [each["command"] for each in found["processes"]] == ["sleep 1000"]


@pytest.mark.parametrize("grace", [0.0, 5.0])
def test_what_a_kill_ends_was_not_left(client: Client, grace: float) -> None:
    """A task that catches TERM and ends with 0 while its children are still being ended."""
    script = 'trap "exit 0" TERM; (trap "" TERM; sleep 1000) & echo up; while :; do sleep 0.1; done'
    client.start("w:0", ["bash", "-c", script])
    client.follow("w:0")
    client.log_until(b"up")
    assert client.kill(["w:0"], grace=min(grace, 1.0))["survivors"] == []
    assert left(client, "w:0") is None


def test_many_left_processes_are_counted_and_a_few_are_listed(client: Client) -> None:
    """The frame stays small; those that work most come first."""
    client.start("w:0", ["sh", "-c", "for i in 1 2 3 4 5 6 7 8; do sleep 1000 & done"])
    found = left(client, "w:0")
    assert len(found["processes"]) == wire.MOST_LEFT and found["unlisted"] == 8 - wire.MOST_LEFT
