"""Agents of SSH hosts that die among starts: nothing lives on any host behind a receipt."""

from __future__ import annotations

import signal
from collections.abc import Callable

from tests.support.budgets import variants
from tests.support.command import Up
from tests.support.patience import wait_until
from tests.support.scenario import FaultScenario, confirmed, lost, receipt
from tests.testbed import proc

DEAF = ["sh", "-c", "trap '' TERM; (while :; do sleep 1; done) & echo trains; wait"]
START = """
grace = 1
lease = 600
framework = "none"
[start]
order = [["a"], ["b"]]
[start.ready]
a = { after = 3.0 }
b = { log = "trains" }
"""


def stop_before_the_stage(scenario: FaultScenario, up: Up) -> None:
    up.log("a:0", "trains")
    proc.signal_process(scenario.agents("tf3")[1], signal.SIGSTOP)


def kill_in_the_stage(scenario: FaultScenario, up: Up) -> None:
    up.wait_for(lambda e: str(e.get("task", "")).startswith("b:") and "pid" in e, "a process")
    proc.signal_process(scenario.agents("tf3")[1], signal.SIGKILL)


def cut_off_and_killed(scenario: FaultScenario, up: Up) -> None:
    """The stage is ordered from a host that is cut off; when it is back, its agent has died."""
    up.log("a:0", "trains")
    host = scenario.testbed["tf3"]
    host.pull()
    lost(up, "tf3")
    proc.signal_process(scenario.agents("tf3")[1], signal.SIGKILL)
    host.heal()


def cut_off_in_the_kill(scenario: FaultScenario, up: Up) -> None:
    """A person ends the run while a host that has not answered its starts is cut off."""
    up.log("a:0", "trains")
    host = scenario.testbed["tf3"]
    host.pull()
    up.state("b:0", "starting")
    up.press_ctrl_c()
    up.wait_for(lambda e: e["event"] == "run" and e["state"] == "killing", "the kill")
    host.heal()


@variants(
    ("act", "tasks"),
    [
        (stop_before_the_stage, 4),
        (kill_in_the_stage, 40),
        (cut_off_and_killed, 4),
        (cut_off_in_the_kill, 4),
    ],
    test=2,
)
def test_nothing_lives_behind_a_receipt(
    scenario: FaultScenario, act: Callable[[FaultScenario, Up], None], tasks: int
) -> None:
    """Given starts that a host has not answered, when its agent dies, or is cut off while the run
    is ended, then no process lives there behind the receipt that confirms it."""
    places = {"a": ["tf3"], "b": ["tf3"] * tasks}
    with scenario.up(scenario.file(places, run=START, words=DEAF)) as up:
        act(scenario, up)
        up.wait()
        left = [p for p in scenario.on("tf3") if "TFMUX_TASK" in p.environ]
        for process in left:
            proc.signal_process(process, signal.SIGKILL)
        assert receipt(up).keys() == {"tf3"}
        assert not left and confirmed(up), up.transcript()
    wait_until(lambda: not scenario.on("tf3"), "nothing is left")
