"""The demo with its TensorBoard, a task whose page is on a port of this machine, through SSH."""

from __future__ import annotations

import json
import re
import socket
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from launcher.cluster.read import load
from launcher.paths import runs_home
from tests.support.command import Up, python_task, write
from tests.support.paths import REPOSITORY
from tests.support.patience import PATIENCE
from tests.testbed.inprocess import SshServer
from tui import demos

pytestmark = pytest.mark.prove


PAGE = """
import http.server, sys
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"a page")
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Page).serve_forever()
"""


def page_of(up: Up, task: str) -> str:
    """The address at which a task's page is said to be."""
    what = f"address of {task}"
    note = up.wait_for(lambda e: f"{task} is at " in e.get("note", ""), what)
    found = re.search(r"http://127\.0\.0\.1:\d+/", note["note"])
    assert found
    return found[0]


def fetch(url: str) -> bytes:
    """What the page answers, asked for until it answers."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                body: bytes = answer.read()
                return body
        except OSError:
            assert time.monotonic() < deadline, f"{url} does not answer"
            time.sleep(0.1)


def scalars(url: str) -> list[Any]:
    """The points of the first scalar of the first run, waited for: TensorBoard reads the
    summaries every five seconds."""
    deadline = time.monotonic() + PATIENCE
    while True:
        tags = json.loads(fetch(f"{url}data/plugin/scalars/tags"))
        for run, found in tags.items():
            for tag in found:
                query = urllib.parse.urlencode({"run": run, "tag": tag})
                return list(json.loads(fetch(f"{url}data/plugin/scalars/scalars?{query}")))
        assert time.monotonic() < deadline, "no scalar came"
        time.sleep(0.5)


def test_the_demo_on_a_host_behind_ssh(ssh_server: SshServer, tmp_path: Path) -> None:
    """All tasks have their process at once; in those that wait for their stage, TensorFlow is
    imported before. The workers are ready one after the other, train, and log as after an ordinary
    start. A free port of this machine shows the run's own summaries, and TensorBoard itself listens
    on the host's loopback alone."""
    text = demos.find("async").read_text().replace("localhost:", "far:")
    endless = '--steps=1000000", "--log-every=5", "--slow-worker={index}'
    hosts = ssh_server.host_toml("far", sys.executable)
    text = text.replace("--steps=2000", endless).replace("[jobs.", f"{hosts}[jobs.", 1)
    text = text.replace("[run]\n", f'[run]\nlogdir = "{tmp_path}/logs"\n')
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        warming = up.wait_for(
            lambda e: (e.get("task"), e.get("state")) == ("worker:1", "warming") and "pid" in e,
            "the process of worker:1",
        )
        words = Path(f"/proc/{warming['pid']}/cmdline").read_bytes().split(b"\0")
        assert b"tensorflow" in words
        url = page_of(up, "tensorboard:0")
        times = [up.state(task, "ready")["time"] for task in ("ps:0", "worker:0", "worker:1")]
        assert times == sorted(times)
        assert up.state("worker:1", "ready")["pid"] == warming["pid"]
        points = scalars(url)
        assert points and all(len(point) == 3 for point in points)
        steps = [step for _, step, _ in points]
        assert steps == sorted(steps)
        event = up.state("tensorboard:0", "ready")
        _, _, there = event["address"].rpartition(":")
        assert there != url.split(":")[2].strip("/")
        with pytest.raises(OSError), socket.create_connection((_own_address(), int(there)), 2):
            pass
        up.press_ctrl_c()
        assert up.wait() == 130, up.transcript()
    with pytest.raises(OSError):
        urllib.request.urlopen(url, timeout=5)
    for task in ("worker-0", "worker-1"):
        log = (runs_home() / up.run_id / f"{task}.log").read_text()
        assert "starts at global step" in log
        assert "tfmux" not in log and str(REPOSITORY / "launcher") not in log


def forwarded_page(ssh_server: SshServer, folder: Path) -> Up:
    """A run of one page on a host, forwarded to this machine."""
    text = f"""
name = "page"
{ssh_server.host_toml("far", sys.executable)}
[jobs.page]
tasks = ["far:auto"]
in_cluster = false
forward = true
command = {json.dumps([*python_task(PAGE), "{port}"])}
[run]
workdir = ""
grace = 1.0
"""
    return Up("up", str(write(folder, text)), "--json")


@pytest.mark.soak
def test_a_forward_comes_back_on_the_same_port_after_a_cut(
    ssh_server: SshServer, tmp_path: Path
) -> None:
    """The connection breaks; when the host is back, the address that people have open in a
    browser works again."""
    with forwarded_page(ssh_server, tmp_path) as up:
        url = page_of(up, "page:0")
        assert fetch(url) == b"a page"
        ssh_server.drop_connections()
        up.wait_for(lambda e: "far is back" in e.get("note", ""), "the host back")
        assert fetch(url) == b"a page"
        assert len([e for e in up.of("note") if "page:0 is at" in e["note"]]) == 1
        up.press_ctrl_c()
        assert up.wait() == 130, up.transcript()


@pytest.mark.soak
def test_a_forward_whose_port_was_taken_meanwhile_gets_another_one(
    ssh_server: SshServer, tmp_path: Path
) -> None:
    """The new address is told; whoever has the old port keeps it."""
    with forwarded_page(ssh_server, tmp_path) as up:
        url = page_of(up, "page:0")
        ssh_server.login_delay = PATIENCE  # the host is not back before the port is taken
        ssh_server.drop_connections()
        with _taken(int(url.rstrip("/").rpartition(":")[2])):
            ssh_server.login_delay = 0.0
            up.wait_for(lambda e: "far is back" in e.get("note", ""), "the host back")
            note = up.wait_for(
                lambda e: "page:0 is at " in e.get("note", "") and url not in e["note"],
                "another address",
            )["note"]
            assert fetch(note.rpartition(" ")[2]) == b"a page"
        up.press_ctrl_c()
        assert up.wait() == 130, up.transcript()


def _taken(port: int) -> socket.socket:
    """A listener on a port, as soon as that is free."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return socket.create_server(("127.0.0.1", port))
        except OSError:
            assert time.monotonic() < deadline, f"port {port} is never free"
            time.sleep(0.02)


def test_the_demo_has_four_tasks_and_tensorboard_is_no_part_of_the_cluster() -> None:
    """ps, two workers, TensorBoard on the chief's host, bound to the loopback, forwarded."""
    cluster = load(demos.find("async"))
    assert [name for name, job in cluster.jobs.items() for _ in job.tasks] == [
        "ps",
        "worker",
        "worker",
        "tensorboard",
    ]
    board = cluster.jobs["tensorboard"]
    assert board.forward and not board.in_cluster
    assert "--host=127.0.0.1" in (board.command or ())
    chief = cluster.chief
    assert chief is not None
    assert board.tasks[0].host == cluster.jobs[chief.job].tasks[0].host


def _own_address() -> str:
    """An address of this machine that is not its loopback's usual one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.2"  # no network at all: another loopback address does
        address: str = probe.getsockname()[0]
        return address
