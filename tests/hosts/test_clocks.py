"""Wall clocks that are set while a run goes on: leases, graces and patience do not follow them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.budgets import soak
from tests.support.command import Up
from tests.support.scenario import FaultScenario, confirmed, last_states, ready, receipt
from tests.testbed import faults
from tests.testbed.faults import Clock

pytestmark = pytest.mark.skipif(
    not faults.can_shift_clock(), reason="no C compiler to shift a clock with"
)

DAY = 86_400
PLACES = {"ps": ["tf1"], "worker": ["tf3", "here"]}
ALL = ("ps:0", "worker:0", "worker:1")


def launched(scenario: FaultScenario, folder: Path, file: Path) -> tuple[Up, Clock, Clock]:
    """A run all of whose programs here and on tf3 go by clocks that can be set: these two."""
    here, there = Clock.build(folder), faults.shift_clock(scenario.testbed["tf3"], 0)
    return scenario.up(file, env={"LD_PRELOAD": str(here.library)}), here, there


def lost(up: Up) -> Callable[[dict[str, Any]], bool]:
    return lambda event: event["event"] == "host" and event["state"] == "lost"


@pytest.mark.prove
def test_clocks_that_are_set_change_nothing_of_a_run(
    fresh_scenario: FaultScenario, tmp_path: Path
) -> None:
    """Given a run with a lease of twenty seconds, when the clocks of its launcher and a host are
    set forwards and backwards by a day, then no host is lost, and the run is a success."""
    file = fresh_scenario.file(
        PLACES, run="lease = 20\ngrace = 1", env={"SECONDS": "clocks are right", "PACE": "0.1"}
    )
    up, here, there = launched(fresh_scenario, tmp_path, file)
    with up:
        ready(up, *ALL)
        for mine, theirs in ((DAY, 0), (DAY, -DAY), (-DAY, DAY), (0, 0)):
            here.set(mine)
            there.set(theirs)
            time.sleep(1.5)
        fresh_scenario.tell(up.run_id, "clocks are right")
        assert up.wait() == 0, up.transcript()
        assert confirmed(up)
        assert not [event for event in up.events if lost(up)(event)]
        assert set(last_states(up).values()) <= {"exited", "stopped"}
        spread = {round(event["time"] / DAY) for event in up.events}
        assert len(spread) > 1, "the launcher's clock was set"
        fresh_scenario.check_logs(up.run_id, pace=0.1)
    fresh_scenario.wait_dead(up.run_id)


@pytest.mark.prove
@pytest.mark.parametrize("jump", [-DAY, soak(DAY)])
def test_a_lease_that_runs_goes_on_as_it_was(
    fresh_scenario: FaultScenario, tmp_path: Path, jump: int
) -> None:
    """Given a host that is cut off, when its clock is set, then it waits for its lease and no
    longer: the task lives when the cable is back in time, and ends when nobody comes back."""
    file = fresh_scenario.file({"worker": ["tf3"]}, run="lease = 40\ngrace = 1")
    up, _, there = launched(fresh_scenario, tmp_path, file)
    with up:
        ready(up, "worker:0")
        fresh_scenario.testbed["tf3"].pull()
        up.wait_for(lost(up), "lost")
        there.set(jump)
        time.sleep(2)
        assert fresh_scenario.of("tf3", "worker:0"), "its lease has not ended"
        fresh_scenario.testbed["tf3"].heal()
        up.state("worker:0", "ready", after=up.state("worker:0", "lost"))
        up.kill_launcher()
        there.set(-jump)
    fresh_scenario.wait_dead(up.run_id)


@pytest.mark.prove
@pytest.mark.parametrize("jump", [-DAY, soak(DAY)])
def test_a_kill_ends_in_its_time(fresh_scenario: FaultScenario, tmp_path: Path, jump: int) -> None:
    """Given two hosts that are cut off, when the launcher's clock is set during a kill, then the
    kill ends with the one that comes back and without the other."""
    places = {"ps": ["tf1"], "worker": ["tf3", "tf4", "here"]}
    file = fresh_scenario.file(places, run="lease = 600\ngrace = 6", modes={"worker": "stubborn"})
    up, here, _ = launched(fresh_scenario, tmp_path, file)
    with up:
        ready(up, *ALL, "worker:2")
        for name in ("tf3", "tf4"):
            fresh_scenario.testbed[name].pull()
        for task in ("worker:0", "worker:1"):
            up.state(task, "lost")
        up.press_ctrl_c()
        up.wait_for(lambda event: event.get("state") == "killing", "killing")
        here.set(jump)
        fresh_scenario.testbed["tf3"].heal()
        assert up.wait() == 4, up.transcript()
        sure = {name for name, host in receipt(up).items() if host["confirmed"]}
        assert sure == {"tf1", "tf3", "localhost"}
    here.set(0)
    fresh_scenario.testbed["tf4"].heal()
    assert fresh_scenario.kill(up.run_id)[0] == 0
    fresh_scenario.wait_dead(up.run_id)
