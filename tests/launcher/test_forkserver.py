"""Fork server of an agent: what becomes of tasks when it is killed, stopped, or cannot be had."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from launcher.agent.forkserver import ANSWER_SECONDS
from tests.launcher.agent_client import Client, family, watchdog_and_agent
from tests.patience import PATIENCE, wait_until
from tests.testbed import proc
from tests.testbed.proc import Process

MOST_MEGABYTES = 1.5
"""Of its own for a reaper; forked by the agent itself it has 2.7 of them and more."""


@pytest.fixture
def client() -> Iterator[Client]:
    """An admitted channel to a fresh agent."""
    with Client(f"t-{os.urandom(4).hex()}") as channel:
        channel.hello()
        yield channel
        assert channel.kill()["survivors"] == []
        channel.leave()
    wait_until(lambda: family(channel.run_id) == [], "nothing is left")


def below_agent(client: Client) -> list[Process]:
    """The agent's children: the fork server, which is the first, and the reapers."""
    agent = watchdog_and_agent(client.run_id)[1]
    found = [process for process in family(client.run_id) if process.ppid == agent.pid]
    return sorted(found, key=lambda process: (process.started, process.pid))


def test_reapers_are_the_agents_children_and_share_their_memory(client: Client) -> None:
    """Each task's process is below a reaper of its own."""
    tasks = [client.start(f"w:{number}", ["sleep", "1000"])["pid"] for number in range(4)]
    _, *reapers = below_agent(client)
    assert sorted(r.pid for r in reapers) == sorted(p.ppid for p in proc.scan() if p.pid in tasks)
    for reaper in reapers:
        assert own_megabytes(reaper.pid) < MOST_MEGABYTES


def own_megabytes(pid: int) -> float:
    """Memory that only this process has."""
    with open(f"/proc/{pid}/smaps_rollup") as file:
        rows = dict(line.split(":", 1) for line in file if line.count(":") == 1)
    return int(rows["Private_Dirty"].split()[0]) / 1000


def test_a_killed_fork_server_is_replaced(client: Client) -> None:
    """The tasks that it has brought forth live on, and the next ones start."""
    first = client.start("w:0", ["sleep", "1000"])["pid"]
    os.kill(below_agent(client)[0].pid, signal.SIGKILL)
    second = client.start("w:1", ["sleep", "1000"])
    assert second["error"] == ""
    assert {first, second["pid"]} <= {process.pid for process in proc.scan() if process.alive}
    receipt = client.kill()
    assert receipt["confirmed"] and receipt["signalled"] == 2


def test_a_stopped_fork_server_is_replaced(client: Client) -> None:
    """A start that it does not answer fails, with nothing of it left behind."""
    client.start("w:0", ["sleep", "1000"])
    server = below_agent(client)[0]
    os.kill(server.pid, signal.SIGSTOP)
    failed = client.start("w:1", ["sleep", "1000"])
    assert failed["error"] == "the agent's fork server did not answer" and failed["ended"]
    wait_until(lambda: server.pid not in {p.pid for p in proc.scan() if p.alive}, "its end")
    assert client.start("w:1", ["sleep", "1000"], attempt=2)["error"] == ""
    assert ANSWER_SECONDS < PATIENCE
    receipt = client.kill()
    assert receipt["confirmed"] and receipt["signalled"] == 2


def test_an_unknown_machine_does_without() -> None:
    """The agent forks the reapers itself where it does not know the number of a system call."""
    run_id = f"t-{os.urandom(4).hex()}"
    with Client(run_id, before=("setarch", "i686")) as client:
        client.hello()
        client.python("w:0", "import os; print(os.uname().machine)")
        client.follow("w:0")
        client.log_until(b"i686")
        wait_until(lambda: below_agent(client) == [], "the reaper has ended")
        client.start("w:1", ["sleep", "1000"])
        receipt = client.kill()
        assert receipt["confirmed"] and receipt["survivors"] == []
        client.leave()
    wait_until(lambda: family(run_id) == [], "nothing is left")


REFUSED = """
import os, sys
from launcher.agent import forkserver
forkserver._CLONE = {os.uname().machine: 4095}  # no such call
server = forkserver.ForkServer(lambda agent, fds: (os.write(fds[0], b"ran"), os._exit(0)))
read, write = os.pipe()
def work():
    for _ in range(2):
        os.waitpid(server.fork((write, write, write)), 0)
server.starter.do(work).wait()
assert os.read(read, 100) == b"ranran"
"""


def test_a_kernel_that_refuses_the_call_does_without() -> None:
    """A sandbox may."""
    subprocess.run([sys.executable, "-c", REFUSED], check=True, timeout=PATIENCE)


def test_a_program_that_is_larger_than_a_socket_holds_starts(client: Client) -> None:
    """TF_CONFIG of thousands of tasks."""
    value = "x" * 100_000
    env = {f"V{number}": value for number in range(8)}
    client.python(
        "w:0", "import os; print(sum(len(os.environ[f'V{n}']) for n in range(8)))", env=env
    )
    client.follow("w:0")
    client.log_until(b"800000\n")
