"""A host whose own name is a loopback address there, as Debian and Ubuntu write it, and servers
that only their own host reaches."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from launcher.cluster.read import loads
from launcher.preflight import Check, Severity
from launcher.preflight.preflight import preflight
from tests.support.command import Up, python_task, write
from tests.testbed.host import Host
from tests.testbed.namespaces import Testbed

SERVER = """
import os, socket, sys, time
names = [sys.argv[2], *os.environ.get("MORE", "").split()]
made = [socket.create_server((name, int(sys.argv[1]))) for name in names]
time.sleep(1000)
"""
CLUSTER = """
name = "names"
{hosts}
[jobs.ps]
tasks = ["tf1:2222", "tf2:2222"]
command = {server}
[jobs.worker]
tasks = ["tf3:2222"]
command = ["sleep", "0.2"]
[run]
workdir = ""
"""


def as_debian_does(host: Host, testbed: Testbed) -> None:
    others = "".join(f"{each.address} {each.name}\n" for each in testbed if each is not host)
    host.etc("hosts", f"127.0.0.1 localhost\n127.0.1.1 {host.name}\n{others}")


@pytest.fixture
def text(testbed: Testbed) -> str:
    server = [*python_task(SERVER), "{port}", "{host}"]
    return CLUSTER.format(hosts=testbed.hosts_toml(), server=json.dumps(server))


async def test_check_asks_each_host_for_its_own_name(testbed: Testbed, text: str) -> None:
    """The matrix cannot see it: each host knows the others. A host alone in its cluster may be
    called as it likes."""
    as_debian_does(testbed["tf1"], testbed)
    as_debian_does(testbed["tf4"], testbed)
    report = await preflight(loads(text, "names.toml", Path("/")))
    (finding,) = [f for f in report.findings if f.code == "address-loopback"]
    assert (finding.host, finding.check, finding.severity) == ("tf1", Check.ADDRESS, Severity.WARN)
    assert "tf1 is 127.0.1.1 on tf1 itself" in finding.sentence
    assert "/etc/hosts of tf1" in finding.todo and report.ok
    alone = text.replace(', "tf2:2222"', "").replace("tf3:2222", "tf1:2223")
    report = await preflight(loads(alone, "names.toml", Path("/")))
    assert "address-loopback" not in {f.code for f in report.findings}


@pytest.mark.prove
def test_a_ps_that_only_its_own_host_reaches_is_named(
    testbed: Testbed, tmp_path: Path, text: str
) -> None:
    """The ps is ready by the letter, and a note says what the workers would find out by timeouts; a
    ps that listens on another address as well is not named."""
    as_debian_does(testbed["tf1"], testbed)
    as_debian_does(testbed["tf2"], testbed)
    more = f'[hosts.tf2]\nenv = {{ MORE = "{testbed["tf2"].address}" }}'
    with Up("up", str(write(tmp_path, text.replace("[hosts.tf2]", more))), "--json") as up:
        assert up.wait() == 0, up.transcript()
    notes = [e["note"] for e in up.of("note") if "listens on" in e["note"]]
    said = "ps:0 on tf1 listens on 127.0.1.1 only, where no other host reaches it: "
    assert notes == [said + "correct tf1 in /etc/hosts there, or the address in its program"]
