"""Agent: tasks that wait at their gate until they are released."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from launcher.agent import wire
from tests.support.agent_client import Client, state_folder
from tests.support.ports import free_ports
from tests.testbed import proc

WAITS = """
import os
print("imports", flush=True)
if not os.read(0, 1):
    raise SystemExit("lost")
print("begins", flush=True)
"""
LISTENS = """
import socket, sys
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("listens", flush=True)
import time; time.sleep(600)
"""


@pytest.fixture
def client() -> Iterator[Client]:
    """A launcher's channel to the agent of a run of its own."""
    with Client() as channel:
        channel.hello()
        yield channel
        channel.kill()
        channel.leave()


def release(client: Client, task: str, attempt: int = 1) -> None:
    client.send(wire.RELEASE, {"task": task, "attempt": attempt})


def test_a_gated_task_begins_when_it_is_released(client: Client) -> None:
    """Only this attempt of this task; a second release changes nothing."""
    started = client.python("worker:0", WAITS, gated=True)
    assert started["pid"] and started["gated"]
    client.follow("worker:0")
    client.log_until(b"imports")
    release(client, "worker:1")
    release(client, "worker:0", 2)
    client.ask(wire.STATS, {})  # it has read both
    assert (process := proc.read(started["pid"])) is not None and process.alive
    release(client, "worker:0")
    release(client, "worker:0")
    ended = client.get(wire.EXITED, task="worker:0")
    assert ended["status"] == 0 and not ended["gated"]
    assert client.log_until(b"begins\n") == b"imports\nbegins\n"


def test_a_release_may_come_before_the_process(client: Client) -> None:
    """Start and release in one piece: the task begins."""
    for number in range(10):
        task = f"worker:{number}"
        argv = ["sh", "-c", "read line"]  # fails at the end of its input
        body = {"task": task, "attempt": 1, "argv": argv, "env": {}, "cwd": "/"}
        body |= {"log_limit": 1 << 20, "port": None, "pty": False, "gated": True}
        frames = wire.encode(wire.START, body)
        client.write(frames + wire.encode(wire.RELEASE, {"task": task, "attempt": 1}))
    for number in range(10):
        assert client.get(wire.EXITED, task=f"worker:{number}")["status"] == 0


def test_a_start_without_a_gate_releases_the_same_attempt(client: Client) -> None:
    """The start is asked for again after a cut, and its stage has come."""
    waits = client.python("worker:0", WAITS, gated=True)
    again = client.python("worker:0", WAITS)
    assert again["pid"] == waits["pid"]
    assert client.get(wire.EXITED, task="worker:0")["status"] == 0


def test_a_port_at_the_gate_is_no_readiness(client: Client) -> None:
    """A module that listens when it is imported is heard of when its stage has come."""
    port, other = free_ports(2)
    client.python("ps:0", LISTENS, str(port), port=port, gated=True)
    client.follow("ps:0")
    client.log_until(b"listens")
    client.python("ps:1", LISTENS, str(other), port=other)
    client.get(wire.LISTENING, task="ps:1")  # by a look that would have found the other one, too
    assert not any(frame.type == wire.LISTENING for frame in client.frames)
    release(client, "ps:0")
    assert client.get(wire.LISTENING, task="ps:0")["listening"]


def test_a_kill_at_the_gate_leaves_nothing(client: Client) -> None:
    """With its grace, as any task; what the task has not begun it does not begin."""
    pid = client.python("worker:0", WAITS, gated=True)["pid"]
    client.follow("worker:0")
    client.log_until(b"imports")
    receipt = client.kill(["worker:0"], grace=60.0)
    assert receipt["signalled"] == 1 and not receipt["survivors"]
    assert client.get(wire.EXITED, task="worker:0")["signal"] == "TERM"
    assert proc.read(pid) is None
    assert b"begins" not in client.logs[0]


def test_the_death_of_the_agent_ends_a_task_at_its_gate() -> None:
    """The end of its input is no release."""
    with Client() as client:
        client.hello()
        pid = client.python("worker:0", WAITS, gated=True)["pid"]
        client.follow("worker:0")
        client.log_until(b"imports")
        process = proc.read(pid)
        assert process is not None
        os.kill(process.ppid, signal.SIGKILL)
        assert proc.wait_gone(process)
        log = state_folder(client.run_id) / "logs" / "worker-0.log"
        assert b"begins" not in log.read_bytes()


def test_another_launcher_learns_who_waits() -> None:
    """The welcome says it; the release of the second one counts."""
    with Client() as client:
        client.hello()
        client.python("worker:0", WAITS, gated=True)
        client.python("worker:1", WAITS, gated=True)
        release(client, "worker:0")
        client.get(wire.EXITED, task="worker:0")
    with Client(client.run_id) as again:
        tasks = {facts["task"]: facts["gated"] for facts in again.hello()["tasks"]}
        assert tasks == {"worker:0": False, "worker:1": True}
        release(again, "worker:1")
        assert again.get(wire.EXITED, task="worker:1")["status"] == 0
        again.kill()
        again.leave()


def test_a_terminal_has_no_gate() -> None:
    """Such a request costs the channel, as every wrong one."""
    body = {"task": "worker:0", "attempt": 1, "argv": ["cat"], "env": {}, "cwd": "/"}
    with Client() as client:
        client.hello()
        client.send(wire.START, {**body, "log_limit": 1, "port": None, "pty": True, "gated": True})
        assert any("a terminal has no gate" in f.body.decode() for f in client.everything())
