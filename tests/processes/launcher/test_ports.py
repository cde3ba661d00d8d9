"""Ports for `auto`: free, and each for one task only."""

from __future__ import annotations

import errno
import json
import os
import socket
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from launcher.agent import ports, wire
from launcher.hosts.frames import GpusAnswer, GpusQuestion, Ports, PortsAnswer
from launcher.run import events as ev
from launcher.session import preparation as module
from launcher.session.gpu_watch import GpuWatch
from tests.support.agent_client import Client
from tests.support.cluster_texts import cluster_text
from tests.support.command import Up, python_task, write
from tests.support.fake_core import FakeCore, fake_hosts
from tests.support.patience import wait_until
from tests.support.ports import free_ports
from tests.testbed.inprocess import SshServer

CLUSTER = cluster_text(
    {"worker": "far far"}, "ports", {"far": {"ssh": "10.0.0.1", "gpus": 0}}, workdir=""
)


class Here:
    """The link to a host that is this machine."""

    connected = True
    sessions = 1

    async def ask(self, question: Ports | GpusQuestion) -> PortsAnswer | GpusAnswer:
        """Answers as an agent does."""
        if isinstance(question, GpusQuestion):
            return GpusAnswer()
        said = ports.look(question.check, question.candidates)
        return PortsAnswer.read(json.dumps(said).encode())


async def checked(monkeypatch: pytest.MonkeyPatch, candidates: list[int]) -> ev.Event:
    """What a launch says of its hosts when there are just these ports to pick from."""
    monkeypatch.setattr(module, "shuffled_ports", lambda: candidates)
    welcome: Any = SimpleNamespace(home="/root", stage="/stage", environ={})
    link: Any = Here()
    core, hosts = FakeCore(CLUSTER, Path("/"), {"far": link}), fake_hosts()
    hosts.welcomes["far"] = welcome
    gpus = GpuWatch(core, lambda sample: None)
    await module.LaunchPreparation(core, hosts, gpus, None).check(ports=True)
    return core.fed[-1]


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
async def test_a_port_in_use_is_not_picked(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    """Whatever address somebody listens on, its task gets the next port that is free."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    few = free_ports(3)
    with socket.create_server((address, few[0]), family=family):
        said = await checked(monkeypatch, few)
    assert isinstance(said, ev.HostsChecked)
    assert list(said.facts["far"].ports.values()) == [few[2], few[1]]


async def test_where_no_port_is_left_the_host_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason names it."""
    few = free_ports(2)
    with socket.create_server(("127.0.0.1", few[1])):
        said = await checked(monkeypatch, few)
    assert isinstance(said, ev.HostRefused) and said.reason == "no free port on this host"


def test_two_host_names_of_one_machine(ssh_server: SshServer, tmp_path: Path) -> None:
    """Every `auto` of a cluster whose two hosts are one machine is a port of its own, and each
    task can listen on its."""
    listener = (
        "import os, socket, sys, time\n"
        "s = socket.create_server(('127.0.0.1', int(sys.argv[1])), reuse_port=False)\n"
        "while not os.path.exists(sys.argv[2]): time.sleep(0.02)"
    )
    hosts = ssh_server.host_toml("one", sys.executable) + ssh_server.host_toml(
        "two", sys.executable
    )
    tasks = json.dumps(["one:auto", "two:auto"] * 4)
    text = f"""
name = "ports"
{hosts}
[jobs.worker]
tasks = {tasks}
[run]
command = {json.dumps([*python_task(listener), "{port}", str(tmp_path / "end")])}
workdir = ""
success = "all"
"""
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        for number in range(8):
            up.state(f"worker:{number}", "ready")
        (tmp_path / "end").touch()
        assert up.wait() == 0, up.transcript()
    ready = {e["task"]: e["address"] for e in up.of("task") if e["state"] == "ready"}
    assert len(ready) == len({address.rpartition(":")[2] for address in ready.values()}) == 8


def test_gpus_of_a_host_reach_its_tasks(ssh_server: SshServer, tmp_path: Path) -> None:
    """With gpus = 2 two workers see one GPU each, the ps none, and a job that asks for both
    gets both; a value of the file's own stands."""
    show = "import os; print('GPUS', os.environ['CUDA_VISIBLE_DEVICES'])"
    host = ssh_server.host_toml("far", sys.executable).replace(
        "[hosts.far]", "[hosts.far]\ngpus = 2"
    )
    text = cluster_text(
        {
            "ps": "far",
            "worker": "far far",
            "own": {"tasks": "far", "in_cluster": False, "env": {"CUDA_VISIBLE_DEVICES": "7"}},
        },
        "gpus",
        host,
        command=python_task(show),
        workdir="",
        success="all",
        start={
            "order": [["own", "ps"], ["worker"]],
            "ready": {"own": {"log": "GPUS"}, "ps": {"log": "GPUS"}, "worker": "started"},
        },
    )
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        up.wait()
    seen = {e["task"]: e["text"] for e in up.of("log") if e["text"].startswith("GPUS")}
    assert seen["ps:0"] == "GPUS -1"
    assert {seen["worker:0"], seen["worker:1"]} == {"GPUS 0", "GPUS 1"}
    assert seen["own:0"] == "GPUS 7"


INTERPRETER = """#!{python} -IS
import os, sys
real = os.listdir
def listdir(path="."):
    if path == "/proc/{pid}/fd":
        with open({fifo!r}) as held:
            held.read()
    return real(path)
os.listdir = listdir
exec(sys.argv[-1])
"""
"""Does not come back from a look at the descriptors of one process until somebody closes a pipe."""


def test_who_holds_a_port_is_looked_for_beside_beats_and_kills(tmp_path: Path) -> None:
    """The descriptors of all processes are looked through, and one may have a million: meanwhile
    beats and questions are answered, and a kill ends the start."""
    fifo, python = tmp_path / "held", tmp_path / "python"
    os.mkfifo(fifo)
    python.write_text(INTERPRETER.format(python=sys.executable, pid=os.getpid(), fifo=str(fifo)))
    python.chmod(0o755)
    found: list[int] = []

    def looked_for() -> bool:
        try:
            found.append(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
        except OSError as error:
            assert error.errno == errno.ENXIO  # nobody reads it yet
        return bool(found)

    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        Client(python=str(python)) as client,
    ):
        client.hello()
        port = server.getsockname()[1]
        client.send(wire.START, client.start_body("w:0", ["sleep", "1000"], port=port))
        wait_until(looked_for, "somebody looks for who holds the port")
        client.send(wire.BEAT)
        client.get(wire.PONG)
        assert client.ask(wire.STATS, {})["tasks"] == {}
        receipt = client.kill()
        assert receipt["confirmed"] and receipt["signalled"] == 0
        assert "being ended" in client.get(wire.STARTED, task="w:0")["error"]
        os.close(found[0])
        client.leave()
