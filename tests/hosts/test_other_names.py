"""Addresses of hosts that are named by an alias of `ssh_config`, in a file and in `tfmux run`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from launcher.store.runs import RunFolder
from tests.support import command
from tests.support.command import Up, write
from tests.testbed.namespaces import Testbed

FILE = """
name = "named"
{hosts}
[jobs.worker]
tasks = ["tf1:auto", "tf2:auto"]
command = ["sh", "-c", "echo at $MASTER_ADDR, {{address.worker.1}}"]
[run]
framework = "torch"
workdir = ""
"""
ALIASES = '[hosts.tf1]\nssh = "tf1"\n[hosts.tf2]\nssh = "tf2"\n'


@pytest.fixture
def bed(testbed: Testbed, tfmux_home: Path) -> Testbed:
    testbed.give_access(tfmux_home)
    return testbed


def plan(file: Path) -> tuple[list[str], str, str]:
    """The addresses of a plan's tasks, what it prints as text, and what it says beside it."""
    answer = command.run("plan", str(file), "--json")
    assert answer.returncode == 0, answer.stderr
    text = command.run("plan", str(file))
    places = [each["address"].rpartition(":")[0] for each in json.loads(answer.stdout)["tasks"]]
    return places, text.stdout, text.stderr


def test_a_file_and_run_give_the_same_addresses(bed: Testbed, tmp_path: Path) -> None:
    """Given aliases with a `HostName`, when they are in a file or in `tfmux run -H`, then tasks get
    the `HostName`; the stored file has the aliases; `plan` and `check` say the same."""
    first, second = bed["tf1"].address, bed["tf2"].address
    file = write(tmp_path, FILE.format(hosts=ALIASES))
    with Up("up", str(file), "--json") as up:
        assert up.wait() == 0, up.transcript()
        assert up.log("worker:0", f"at {first}, {second}")
        stored = RunFolder.find(up.run_id).cluster_file.read_text()
    assert 'ssh = "tf1"' in stored and first not in stored
    listed = ["-H", "tf1,tf2", "--framework", "torch", "--json", "--workdir", ""]
    with Up("run", *listed, "--", "sh", "-c", "echo at $MASTER_ADDR, {address.worker.1}") as up:
        assert up.wait() == 0, up.transcript()
        assert up.log("worker:0", f"at {first}, {second}")
    places, printed, _ = plan(file)
    assert places == [first, second]
    assert f"tf1 is {first} to the other hosts (HostName in ssh_config)" in printed
    report = json.loads(command.run("check", str(file), "--json").stdout)
    assert {pair["address"].rpartition(":")[0] for pair in report["reach"]} == {
        first,
        second,
    }


@pytest.mark.prove
def test_hosts_of_a_list_are_named_so_too(bed: Testbed, tmp_path: Path) -> None:
    """Given a list of aliases for `--hosts-from`, when a file is launched on them, then its tasks
    get the `HostName`."""
    text = FILE.format(hosts="").replace("tf1:", "node0:").replace("tf2:", "node1:")
    file = write(tmp_path, text)
    (tmp_path / "list").write_text("tf1\ntf2\n")
    words = ["--hosts-from", "hostfile", "--hostfile", str(tmp_path / "list"), "--json"]
    with Up("up", str(file), *words) as up:
        assert up.wait() == 0, up.transcript()
        assert up.log("worker:0", f"at {bed['tf1'].address}, {bed['tf2'].address}")


@pytest.mark.prove
def test_an_address_of_the_file_stays(bed: Testbed, tmp_path: Path) -> None:
    """Given a host with an `address`, when the plan is made, then that is its address."""
    hosts = ALIASES.replace('ssh = "tf1"', 'ssh = "tf1"\naddress = "train-1"')
    places, printed, _ = plan(write(tmp_path, FILE.format(hosts=hosts)))
    assert places == ["train-1", bed["tf2"].address] and "tf1 is" not in printed


@pytest.mark.prove
@pytest.mark.parametrize(
    "config",
    [
        "Host tf1\n  HostName 127.0.0.1\n  Port 2201\n",
        "Host tf1\n  HostName gpu.example\n  Port 2201\nHost tf3\n  HostName gpu.example\n",
        "Host tf1\n  HostName fe80::1%%eth0\n",
    ],
    ids=["tunnel", "forwarded-ports", "link-local"],
)
def test_a_name_for_this_machine_alone(bed: Testbed, tmp_path: Path, config: str) -> None:
    """Given a `HostName` by which only this machine comes to the host, when the plan is made, then
    the alias stays its address, and stderr says so."""
    own = Path(os.environ["HOME"]) / ".ssh" / "config"
    own.write_text(config + own.read_text())
    hosts = ALIASES + '[hosts.tf3]\nssh = "tf3"\n'
    text = FILE.format(hosts=hosts).replace('"tf2:auto"', '"tf2:auto", "tf3:auto"')
    places, _, said = plan(write(tmp_path, text))
    assert places[:2] == ["tf1", bed["tf2"].address]
    assert "tf1 is" in said and "set address in [hosts.tf1]" in said
