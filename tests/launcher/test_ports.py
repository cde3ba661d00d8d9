"""Ports for `auto`: free, and handed out once, whoever asks."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from launcher.agent import ports
from launcher.agent.ports import Picker
from tests.command import Up, python_task, write
from tests.testbed.inprocess import SshServer


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> range:
    """Ten ports are all there are, and none of them is in use."""
    for low in range(20_000, 30_000, 10):
        if all(ports._free(port) for port in range(low, low + 10)):
            monkeypatch.setattr(ports, "_LOW", low)
            monkeypatch.setattr(ports, "_HIGH", low + 10)
            return range(low, low + 10)
    raise AssertionError("no ten free ports in a row")


def test_agents_of_one_machine_share_what_they_picked(few: range, tmp_path: Path) -> None:
    """Two pickers get all ten ports between them, each once; then there is none left."""
    claims = str(tmp_path / "ports")
    one, other = Picker(claims), Picker(claims)
    picked = [*one.pick(3, []), *other.pick(4, []), *one.pick(3, [])]
    assert sorted(picked) == list(few)
    with pytest.raises(OSError, match="no free port"):
        other.pick(1, [])
    assert other.pick(0, []) == []


def test_what_a_dead_agent_picked_is_free_again(few: range, tmp_path: Path) -> None:
    """The claims of a process that has ended do not count."""
    claims = str(tmp_path / "ports")
    script = (
        "import sys; from launcher.agent import ports; "
        "ports._LOW, ports._HIGH = int(sys.argv[2]), int(sys.argv[3]); "
        "print(len(ports.Picker(sys.argv[1]).pick(10, [])))"
    )
    argv = [sys.executable, "-c", script, claims, str(few.start), str(few.stop)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "10"
    assert len(json.loads(Path(claims).read_text())) == 10
    assert len(Picker(claims).pick(10, [])) == 10


def test_a_port_in_use_or_to_be_avoided_is_not_picked(few: range, tmp_path: Path) -> None:
    """Neither one that somebody listens on, on whatever address, nor one of the file."""
    with socket.create_server(("127.0.0.1", few.start)):
        picked = Picker(str(tmp_path / "ports")).pick(8, [few.start + 1])
    assert sorted(picked) == list(few)[2:]


def test_two_host_names_of_one_machine(ssh_server: SshServer, tmp_path: Path) -> None:
    """Every `auto` of a cluster whose two hosts are one machine is a port of its own, and each
    task can listen on its."""
    listener = (
        "import socket, sys, time\n"
        "s = socket.create_server(('127.0.0.1', int(sys.argv[1])), reuse_port=False)\n"
        "time.sleep(float(sys.argv[2]))"
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
command = {json.dumps([*python_task(listener), "{port}", "3"])}
workdir = ""
success = "all"
"""
    with Up("up", str(write(tmp_path, text)), "--json") as up:
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
    text = f"""
name = "gpus"
{host}
[jobs.ps]
tasks = ["far:auto"]
[jobs.worker]
tasks = ["far:auto", "far:auto"]
[jobs.own]
tasks = ["far:auto"]
in_cluster = false
env = {{ CUDA_VISIBLE_DEVICES = "7" }}
[run]
command = {json.dumps(list(python_task(show)))}
workdir = ""
success = "all"
[start]
order = [["own", "ps"], ["worker"]]
[start.ready]
own = {{ log = "GPUS" }}
ps = {{ log = "GPUS" }}
worker = "started"
"""
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        up.wait()
    seen = {e["task"]: e["text"] for e in up.of("log") if e["text"].startswith("GPUS")}
    assert seen["ps:0"] == "GPUS -1"
    assert {seen["worker:0"], seen["worker:1"]} == {"GPUS 0", "GPUS 1"}
    assert seen["own:0"] == "GPUS 7"
