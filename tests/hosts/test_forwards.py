"""Forwarded ports: announced only where a channel to them can be opened."""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path

import pytest

from tests.support.command import Up, python_task, run, write
from tests.support.patience import wait_until
from tests.testbed import faults
from tests.testbed.namespaces import Testbed

pytestmark = pytest.mark.prove


PAGE = """
import http.server, os, sys
http.server.HTTPServer((os.environ["ADDRESS"], int(sys.argv[1])),
                       http.server.SimpleHTTPRequestHandler).serve_forever()
"""
CLUSTER = """
name = "pages"
{hosts}
[jobs.page]
tasks = ["tf1:6006", "tf2:6006", "tf3:6006", "tf4:6006"]
in_cluster = false
forward = true
command = {command}
[run]
workdir = ""
env = {{ ADDRESS = "127.0.0.1" }}
grace = 1.0
"""


def test_no_dead_address_is_announced(testbed: Testbed, tmp_path: Path) -> None:
    """Given two SSH servers that allow no channel, and a page that is not on the loopback, then
    each gets a note with its reason instead of an address; check warns of the servers; the page
    of the fourth host answers at the address that is announced."""
    faults.forbid_channels(testbed["tf1"])
    faults.forbid_channels(testbed["tf2"], "PermitOpen 127.0.0.1:6007")
    hosts = testbed.hosts_toml().replace(
        "[hosts.tf3]", f'[hosts.tf3]\nenv = {{ ADDRESS = "{testbed["tf3"].address}" }}'
    )
    command = json.dumps([*python_task(PAGE), "{port}"])
    file = str(write(tmp_path, CLUSTER.format(hosts=hosts, command=command)))
    checked = json.loads(run("check", file, "--json").stdout)
    found = [f for f in checked["findings"] if f["code"] == "forward-refused"]
    assert [(f["host"], f["severity"]) for f in found] == [("tf1", "warn"), ("tf2", "warn")]
    assert checked["ok"]
    with Up("up", file, "--json") as up:
        for number, why in enumerate(
            (
                "the SSH server of tf1 allows no channel to its port 6006 (AllowTcpForwarding",
                "the SSH server of tf2 allows no channel to its port 6006 (AllowTcpForwarding",
                "nothing listens on 127.0.0.1:6006 of tf3",
            )
        ):
            said = f"page:{number} is not forwarded: {why}"
            up.wait_for(lambda e, said=said: said in e.get("note", ""), said)  # type: ignore[misc]
        note = up.wait_for(lambda e: "page:3 is at " in e.get("note", ""), "the address")["note"]
        url = re.findall(r"http://127\.0\.0\.1:\d+/", note)[0]
        with urllib.request.urlopen(url, timeout=60) as answer:
            assert answer.status == 200
        wait_until(lambda: any(e.get("url") for e in up.of("task")), "it is in the record")
        assert {e["task"] for e in up.of("task") if e.get("url")} == {"page:3"}
        assert len([e for e in up.of("note") if " is at http" in e["note"]]) == 1
        up.press_ctrl_c()
        assert up.wait() == 130, up.transcript()
