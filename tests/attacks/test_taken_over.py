"""Another launcher takes a run over: whoever loses it tells the truth, with the right code."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests import command
from tests.command import Up
from tests.faults.scenario import FaultScenario, confirmed, notes, ready, receipt
from tests.paths import REPOSITORY
from tests.patience import wait_until

pytestmark = pytest.mark.testbed

PLACES = {"ps": ["tf1"], "worker": ["tf3"]}
RULES = "lease = 60\ngrace = 1"


def test_a_run_that_was_killed_elsewhere_meanwhile_ends_here_with_130(
    scenario: FaultScenario,
) -> None:
    """The launcher stood still; `tfmux kill` took the run over. Woken, it does not say that the
    run goes on."""
    with scenario.up(scenario.file(PLACES, run=RULES)) as up:
        ready(up, "ps:0", "worker:0")
        up.signal_launcher(signal.SIGSTOP)
        try:
            done = command.run("kill", up.run_id)
        finally:
            up.signal_launcher(signal.SIGCONT)
        assert done.returncode == 0, done.stdout + done.stderr
        assert up.wait() == 130, up.transcript()
        assert any("has ended this run: killed" in note for note in notes(up))
        assert confirmed(up)
        assert "the run goes on" not in up.said
    scenario.wait_dead()


def test_a_launcher_that_wakes_while_the_run_is_killed_waits_for_the_end(
    scenario: FaultScenario,
) -> None:
    """The other one is in the grace of its kill."""
    file = scenario.file(PLACES, run="lease = 60\ngrace = 4", modes={"worker": "stubborn"})
    with scenario.up(file) as up:
        ready(up, "ps:0", "worker:0")
        up.signal_launcher(signal.SIGSTOP)
        with Up("attach", up.run_id, "--json") as other:
            try:
                ready(other, "ps:0", "worker:0")
                other.press_ctrl_c()
                other.wait_for(lambda e: e.get("state") == "killing", "killing")
            finally:
                up.signal_launcher(signal.SIGCONT)
            assert other.wait() == 130, other.transcript()
        assert up.wait() == 130, up.transcript()
        assert confirmed(up)
    scenario.wait_dead()


TAKER = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from launcher.cluster.file import load
from launcher.hosts.handshake import link_settings
from launcher.hosts.transport_factory import transport_factory
from launcher.hosts.link import Link
from launcher.hosts.log_sink import NoLogs
from launcher.hosts.ssh import SshConnector
from launcher.plan.plan import make_plan
from launcher.store.runs import RunFolder

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
    settings = link_settings(plan, host, folder.path, persistent=True)
    link = Link(settings, transport_factory(host, logins), NoLogs(), Ears())
    running = asyncio.create_task(link.run())
    await asyncio.to_thread(sys.stdin.readline)
    await link.aclose()
    await logins.aclose()

asyncio.run(main())
"""


def test_one_host_that_another_launcher_takes_does_not_end_the_run(scenario: FaultScenario) -> None:
    """The launcher goes on with the other hosts, and ends them when it is told to. The host that
    it lost is named: nobody confirmed it here, and `tfmux kill` does it then."""
    with scenario.up(scenario.file(PLACES, run=RULES)) as up:
        ready(up, "ps:0", "worker:0")
        argv = [sys.executable, "-c", TAKER, str(REPOSITORY), up.run_id, "tf1"]
        taker = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            assert taker.stdout is not None and taker.stdout.readline() == "taken\n"
            up.wait_for(lambda e: "has taken tf1 over" in e.get("note", ""), "it is said")
            assert up.process.poll() is None
            assert scenario.of("tf3", "worker:0")
            up.press_ctrl_c()
            assert up.wait() == 4, up.transcript()
            assert not scenario.of("tf3", "worker:0") and scenario.of("tf1", "ps:0")
            found = receipt(up)
            assert found["tf3"]["confirmed"] and not found["tf1"]["confirmed"]
            assert f"tfmux kill {up.run_id}" in up.said
        finally:
            taker.communicate("\n", timeout=20)
        done = command.run("kill", up.run_id)
        assert done.returncode == 0, done.stdout + done.stderr
    wait_until(lambda: not scenario.of("tf1", "ps:0"), "the other host, too")
    scenario.wait_dead()
