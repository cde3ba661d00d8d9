"""Another launcher takes a run over: whoever loses it tells the truth, with the right code."""

from __future__ import annotations

import signal
import subprocess
import sys

from launcher.store.runs import RunFolder
from tests.support import command
from tests.support.command import Up
from tests.support.paths import REPOSITORY
from tests.support.patience import PATIENCE, wait_until
from tests.support.scenario import FaultScenario, confirmed, last_states, notes, ready, receipt
from tests.testbed import proc

PLACES = {"ps": ["tf1"], "worker": ["tf3"]}
RULES = "lease = 600\ngrace = 1"


def test_a_kill_ends_a_launcher_that_stands_still_and_then_the_run(
    scenario: FaultScenario,
) -> None:
    """Given a launcher that stands still, with tasks on hosts and on this machine, when `tfmux
    kill` is called, then it kills that launcher and ends the run, whose command is exit 130; tasks
    here that end with the launcher count as signalled."""
    places = {"ps": ["tf1"], "worker": ["tf3", "here", "here"]}
    with scenario.up(scenario.file(places, run=RULES, modes={"worker": "stubborn"})) as up:
        ready(up, "ps:0", "worker:0", "worker:1", "worker:2")
        pid = RunFolder.find(up.run_id).launcher_pid()
        assert pid
        up.signal_launcher(signal.SIGSTOP)
        code, said = scenario.kill(up.run_id)
        assert code == 0 and "no process is left" in said, said
        scenario.wait_dead(up.run_id)
        wait_until(lambda: proc.read(pid) is None, "the first launcher has gone")
        assert up.wait() == 130, up.transcript()
        assert set(last_states(up).values()) == {"killed"} and confirmed(up)
        assert receipt(up)["localhost"]["signalled"] >= 2, receipt(up)
        assert "the run goes on" not in up.said


def test_an_attach_names_a_launcher_that_stands_still_and_leaves_it_alone(
    scenario: FaultScenario,
) -> None:
    """Given a stopped launcher, with which tasks of this machine would die, when `tfmux attach` is
    called, then it exits with 2 and says how to resume that launcher, which has lost nothing."""
    with scenario.up(scenario.file({"ps": ["tf1"], "worker": ["tf3", "here"]}, run=RULES)) as up:
        ready(up, "ps:0", "worker:0", "worker:1")
        pid = RunFolder.find(up.run_id).launcher_pid()
        up.signal_launcher(signal.SIGSTOP)
        try:
            done = command.run("attach", up.run_id, "--json")
        finally:
            up.signal_launcher(signal.SIGCONT)
        assert done.returncode == 2 and f"kill -CONT {pid}" in done.stderr, done.stderr
        with Up("attach", up.run_id, "--json") as other:
            other.wait_for(lambda e: e["event"] == "log", "it follows the run")
            other.press_ctrl_c()
            assert other.wait() == 130, other.transcript()
        assert up.wait() == 130, up.transcript()
        assert set(last_states(up).values()) == {"killed"} and confirmed(up)
        assert not any("lost" in note for note in notes(up))
    scenario.wait_dead()


TAKER = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from launcher.cluster.read import load
from launcher.hosts.bootstrap import LinkSettings
from launcher.hosts.ways import transport_factory
from launcher.hosts.link import Link, LogSink
from launcher.hosts.ssh import SshConnector
from launcher.plan.planner import make_plan
from launcher.store.runs import RunFolder

class NoLogs(LogSink):
    pass

class Ears:
    def __getattr__(self, name):
        def hear(*words):
            if name == "link_up":
                print("taken", flush=True)
        return hear

async def main():
    folder = RunFolder.find(sys.argv[2])
    plan = make_plan(load(folder.cluster_file, base=folder.origin), folder.run_id)
    host = plan.host(sys.argv[3])
    logins = SshConnector(None)
    settings = LinkSettings.of(plan, host, folder.path, persistent=True)
    link = Link(settings, transport_factory(host, logins), NoLogs(), Ears())
    running = asyncio.create_task(link.run())
    await asyncio.to_thread(sys.stdin.readline)
    await link.aclose()
    await logins.aclose()

asyncio.run(main())
"""


def test_a_host_that_another_machine_takes_ends_this_launcher(scenario: FaultScenario) -> None:
    """Given a run on two hosts, when a launcher elsewhere takes one of them over, then this one
    says so and exits with 5, all tasks live on, and `tfmux kill` ends them."""
    with scenario.up(scenario.file(PLACES, run=RULES)) as up:
        ready(up, "ps:0", "worker:0")
        argv = [sys.executable, "-c", TAKER, str(REPOSITORY), up.run_id, "tf1"]
        taker = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            assert taker.stdout is not None and taker.stdout.readline() == "taken\n"
            assert up.wait() == 5, up.transcript()
            assert any("has taken tf1 over" in note for note in notes(up))
            assert "has taken the run over to supervise it; how it ends is known there" in up.said
            assert scenario.of("tf3", "worker:0") and scenario.of("tf1", "ps:0")
        finally:
            taker.communicate("\n", timeout=PATIENCE)
        done = command.run("kill", up.run_id)
        assert done.returncode == 0, done.stdout + done.stderr
    scenario.wait_dead()
