"""Tasks at their gates on hosts that are cut off, or lose their launcher."""

from __future__ import annotations

import pytest

from tests.support.fault_tasks import command
from tests.support.patience import wait_until
from tests.support.scenario import FaultScenario, confirmed, last_states, ready

PLACES = {"ps": ["tf1"], "worker": ["tf3", "tf4"]}
WARM = '[start]\nwarm = ["decimal"]\n'


def at_gate(scenario: FaultScenario, host: str, task: str) -> int:
    """The pid of a task that has imported and reads from its gate."""
    found: list[int] = []

    def waits() -> bool:
        found[:] = [p.pid for p in scenario.of(host, task) if any("warm.py" in w for w in p.argv)]
        return bool(found)

    wait_until(waits, f"{task} is started on {host}")
    return found[0]


@pytest.mark.prove
def test_a_host_that_was_cut_off_learns_of_its_stage(scenario: FaultScenario) -> None:
    """Given a warm worker whose host is cut off, when the workers' stage begins meanwhile and the
    cable is back, then the worker becomes ready in the process that has waited."""
    file = scenario.file(
        PLACES, run="lease = 600\ngrace = 1", extra=WARM, env={"SECONDS": "go on", "PACE": "0.1"}
    )
    with scenario.up(file) as up:
        up.wait_for(
            lambda e: (e.get("task"), e.get("state")) == ("worker:1", "warming") and "pid" in e,
            "worker:1 warming",
        )
        pid = at_gate(scenario, "tf4", "worker:1")
        scenario.testbed["tf4"].pull()
        ready(up, "ps:0", "worker:0")
        up.wait_for(lambda e: e["event"] == "host" and e["state"] == "lost", "tf4 lost")
        scenario.testbed["tf4"].heal()
        ready(up, "worker:1")
        assert [p.pid for p in scenario.of("tf4", "worker:1")] == [pid]
        scenario.tell(up.run_id, "go on")
        assert up.wait() == 0, up.transcript()
        assert confirmed(up)
        scenario.check_logs(up.run_id, pace=0.1)
    assert {e["attempt"] for e in up.of("task") if e["state"] == "ready"} == {1}
    scenario.wait_dead()


def test_without_a_launcher_a_gate_never_opens(scenario: FaultScenario) -> None:
    """Given warm workers that wait for a ps that never becomes ready, when the launcher is killed,
    then their hosts end them by the lease, and their program has never begun."""
    file = scenario.file(
        PLACES,
        run="lease = 8\ngrace = 1",
        extra=WARM + '[start.ready]\nps = { log = "never" }',
        words=command(),
    )
    with scenario.up(file) as up:
        for host, task in (("tf3", "worker:0"), ("tf4", "worker:1")):
            at_gate(scenario, host, task)
            up.state(task, "warming")
        up.kill_launcher()
        scenario.wait_dead()
    assert last_states(up)["worker:1"] == "warming"
    for host in ("tf3", "tf4"):
        assert not list(scenario.ledger_folder(host).glob(f"{up.run_id}.worker*"))
