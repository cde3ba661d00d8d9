"""Hosts that lie: a host is believed about its own tasks and about nothing else.

Each lie is told over a real link to a real engine. It must cost the liar its link, with a reason
that names host and rule, and nobody else anything.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.agent_client import family
from tests.support.cluster_texts import cluster_text
from tests.support.command import Up, python_task, write
from tests.support.paths import REPOSITORY
from tests.support.patience import wait_until
from tests.testbed.inprocess import SshServer

PROXY = """#!{python}
import os, subprocess, sys, threading
sys.path.insert(0, {repository!r})
from launcher.agent import wire
from launcher.hosts.frames import Gone
child = subprocess.Popen([{python!r}, *sys.argv[1:]], stdin=-1, stdout=-1, bufsize=0)
def forward():
    while data := os.read(0, 65536):
        child.stdin.write(data)
    child.stdin.close()
threading.Thread(target=forward, daemon=True).start()
for _ in range(2):  # the magic number and the marker
    os.write(1, child.stdout.readline())
for _ in range(256):  # the values of a byte
    os.write(1, child.stdout.read(1))
decoder = wire.Decoder()
while data := os.read(child.stdout.fileno(), 65536):
    try:
        frames = list(decoder.feed(data))
    except wire.WireError:  # a short program's, for files: that is honest
        while data:
            os.write(1, data)
            data = os.read(child.stdout.fileno(), 65536)
        break
    for frame in frames:
        os.write(1, wire.encode_raw(frame.type, frame.body))
        if frame.type == wire.STARTED:
            for task in ("worker:0", "worker:1"):
                end = {{**frame.json(), "task": task, "ended": True, "status": 0, "size": 0}}
                os.write(1, wire.encode(wire.EXITED, end))
"""


def test_a_lying_agent_over_ssh_makes_no_success(ssh_server: SshServer, tmp_path: Path) -> None:
    """Given a run on two hosts over SSH, when one's agent says that the other's task has succeeded,
    then the liar is lost, and a kill exits with 4: the other host alone has confirmed."""
    proxy = tmp_path / "python"
    proxy.write_text(PROXY.format(python=sys.executable, repository=str(REPOSITORY)))
    proxy.chmod(0o755)
    hosts = ssh_server.host_toml("honest", sys.executable) + ssh_server.host_toml(
        "liar", str(proxy)
    )
    text = cluster_text(
        {"worker": "honest liar"},
        "lies",
        hosts,
        command=python_task("import time; time.sleep(600)"),
        workdir="",
        grace=0.5,
        lease=10,
        start={"ready": {"worker": "started"}},
    )
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        lost = up.wait_for(
            lambda e: e["event"] == "host" and e["host"] == "liar" and e["state"] == "lost", "lost"
        )
        assert "liar broke the protocol: EXITED for worker:0, which is not" in lost["reason"]
        run_id = up.run_id
        up.press_ctrl_c()
        up.wait_for(lambda e: e.get("state") == "killing", "killing")
        up.press_ctrl_c_again()
        assert up.wait() == 4, up.transcript()
        (receipt,) = up.of("receipt")
        confirmed = {host["host"]: host["confirmed"] for host in receipt["hosts"]}
        assert confirmed == {"honest": True, "liar": False}
        assert not [e for e in up.of("task") if e["task"] == "worker:0" and e["state"] == "exited"]
    wait_until(lambda: not family(run_id), "the liar's task has ended by its lease")
