"""The mission's topology on four real hosts: ps on tf1, workers on tf2, tf3 and tf4."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from launcher.store.runs import RunFolder
from tests.support.cluster_texts import TRAINING
from tests.support.command import Up, python_task, write
from tests.support.patience import wait_until
from tests.support.streams import records
from tests.testbed import proc
from tests.testbed.namespaces import Testbed

TICK = 1 / os.sysconf("SC_CLK_TCK")
"""Seconds; the kernel counts a process's start in these."""

LISTENER = """
import os, socket, sys, time
time.sleep(float(os.environ["BEFORE"]))
server = socket.create_server(("0.0.0.0", int(sys.argv[1])), reuse_port=True)
print("listening", time.clock_gettime(time.CLOCK_BOOTTIME), flush=True)
time.sleep(float(os.environ["AFTER"]))
"""


def topology(
    testbed: Testbed, script: str, settings: str = "", ps: str = "", worker: str = ""
) -> str:
    """1 ps and 3 workers that run a script, each with its port as the first argument."""
    command = json.dumps([*python_task(script), "{port}"])
    return f"""
name = "four"
{testbed.hosts_toml()}
[jobs.ps]
tasks = ["tf1:2222"]
{ps}
[jobs.worker]
tasks = ["tf2:2222", "tf3:2222", "tf4:2222"]
{worker}
[run]
command = {command}
workdir = ""
{settings}
"""


def test_a_real_training_on_four_hosts(testbed: Testbed, tmp_path: Path, mnist: Path) -> None:
    """Real MNIST on four hosts that have only Python and TensorFlow: the trainer is staged, the
    chief reports its accuracy, the ps is stopped, and every host is clean afterwards."""
    file = write(tmp_path, TRAINING.format(hosts=testbed.hosts_toml()))
    with Up("up", str(file), "--json") as up:
        assert up.wait() == 0, up.transcript()
        done = up.log("worker:0", "test accuracy")
    assert float(done["text"].split("test accuracy ")[1].split()[0]) > 0.8
    states = {e["task"]: e["state"] for e in up.of("task")}
    assert states == {
        "ps:0": "stopped",
        "worker:0": "exited",
        "worker:1": "exited",
        "worker:2": "exited",
    }
    receipt = up.of("receipt")[0]
    assert receipt["clean"]
    assert {host["host"] for host in receipt["hosts"]} == {"tf1", "tf2", "tf3", "tf4"}
    for host in testbed:
        assert not host.leftovers()
    stored = RunFolder.find(up.run_id)
    kinds = {record["event"] for record in records(stored)}
    assert {"run", "host", "task", "metric", "receipt"} <= kinds
    assert b"test accuracy" in (stored.path / "worker-0.log").read_bytes()


def test_no_stage_starts_before_the_earlier_one_listens(testbed: Testbed, tmp_path: Path) -> None:
    """With a ps that takes two seconds to listen, the chief's process starts after the ps
    listened, and the other workers' after the chief did: told by /proc, not by our own log."""
    text = topology(
        testbed,
        LISTENER,
        settings='env = { BEFORE = "0.5", AFTER = "1000" }',
        ps='env = { BEFORE = "2.0" }',
    )
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        for task in ("ps:0", "worker:0", "worker:1", "worker:2"):
            up.state(task, "ready")
        began = {}
        heard = {}
        for task, host in zip(("ps:0", "worker:0", "worker:1", "worker:2"), testbed, strict=True):
            process = next(p for p in host.leftovers() if f"/{task}/" in (p.tag or ""))
            began[task] = process.started + TICK
            line = up.log(task, "listening")["text"]
            heard[task] = float(line.split()[1])
            assert any(listener.port == 2222 for listener in host.listeners())
        # The kernel tells starts in whole ticks, rounded down.
        assert began["worker:0"] > heard["ps:0"]
        assert min(began["worker:1"], began["worker:2"]) > heard["worker:0"]
        up.press_ctrl_c()
        assert up.wait() == 130, up.transcript()
    for host in testbed:
        assert not host.leftovers()


STUBBORN = """
import os, signal, socket, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen(["sleep", "1000"])
clean = dict(PATH=os.environ["PATH"])
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvpe("sleep", ["sleep", "2000"], clean)
    os._exit(0)
os.wait()
server = socket.create_server(("0.0.0.0", int(sys.argv[1])), reuse_port=True)
print("stubborn", flush=True)
time.sleep(1000)
"""


@pytest.mark.soak
def test_one_key_ends_tasks_that_ignore_term_and_hide(testbed: Testbed, tmp_path: Path) -> None:
    """Ctrl-C ends tasks that ignore TERM, have children, and a grandchild that double-forked
    into a session of its own with an emptied environment; each host's own table shows it."""
    text = topology(testbed, STUBBORN, settings="grace = 1.0")
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        for task in ("ps:0", "worker:0", "worker:1", "worker:2"):
            up.log(task, "stubborn")
        for host in testbed:
            wait_until(
                lambda host=host: ("sleep", "2000") in [p.argv for p in host.leftovers()],  # type: ignore[misc]
                f"the grandchild on {host.name}",
            )
        pressed = proc.now()
        up.press_ctrl_c()
        assert up.wait() == 130, up.transcript()
        assert proc.now() - pressed < 20
    for host in testbed:
        assert not host.leftovers()
    receipt = up.of("receipt")[0]
    assert receipt["clean"]
    assert all(host["signalled"] >= 3 for host in receipt["hosts"])


def test_a_task_that_dies_before_it_listens_is_named(testbed: Testbed, tmp_path: Path) -> None:
    """The first failure stands on stderr with its host, status and last lines; exit 1."""
    text = topology(testbed, "import sys; print('no such thing'); sys.exit(7)")
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        assert up.wait() == 1
    assert "ps:0 on tf1" in up.said
    assert "exit 7" in up.said
    assert "no such thing" in up.said
    assert not any(e["task"] != "ps:0" and e["state"] == "starting" for e in up.of("task"))
    for host in testbed:
        assert not host.leftovers()
