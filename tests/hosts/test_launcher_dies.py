"""The launcher is SIGKILLed: no host keeps anything alive beyond lease and grace."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.support import command
from tests.support.command import Up
from tests.support.patience import wait_until
from tests.support.scenario import FaultScenario, confirmed, last_states, ready

LEASE, GRACE = 8.0, 1.0
RULES = f"lease = {LEASE}\ngrace = {GRACE}"
PLACES = {"ps": ["tf1"], "worker": ["tf3", "here"]}


def strike(up: Up) -> str:
    """SIGKILL; returns the run's id."""
    run_id = up.run_id
    up.kill_launcher()
    return run_id


def test_in_every_phase_all_are_dead_by_lease_and_grace(scenario: FaultScenario) -> None:
    """Given three runs on the same hosts, when their launchers are killed while staging, starting
    and killing (`test_contract` has one of a running one), then all hosts end their tasks by
    themselves, and nobody else's processes."""
    big = scenario.folder / "big"
    big.mkdir()
    (big / "blob").write_bytes(os.urandom(20 << 20))
    never = '[start.ready]\nps = { log = "never" }'
    files = {
        "staging": scenario.file(PLACES, run=f'{RULES}\nworkdir = "big"', extra=never),
        "starting": scenario.file(PLACES, run=RULES, extra=never),
        "killing": scenario.file(
            PLACES,
            run=f"lease = {LEASE}\ngrace = 4",
            modes={"ps": "stubborn daemon", "worker": "orphan"},
        ),
    }
    ups = {phase: scenario.up(file) for phase, file in files.items()}
    struck = {}
    try:
        ups["staging"].state("ps:0", "staging")
        struck["staging"] = strike(ups["staging"])
        ups["starting"].log("ps:0", "here is")
        struck["starting"] = strike(ups["starting"])
        ready(ups["killing"], "ps:0", "worker:0", "worker:1")
        ups["killing"].press_ctrl_c()
        ups["killing"].wait_for(lambda e: e.get("state") == "killing", "killing")
        struck["killing"] = strike(ups["killing"])
        assert scenario.left(), "something was there to be ended"
        for run_id in struck.values():
            wait_until(lambda run=run_id: not scenario.here(run), "here all are dead")  # type: ignore[misc]
        scenario.wait_dead()
    finally:
        for up in ups.values():
            up.__exit__(None, None, None)
    assert "ready" not in last_states(ups["staging"]).values()
    listed = command.run("ps", "--json")
    assert listed.returncode == 0 and listed.stdout.strip() == "[]", listed


def test_under_keep_a_run_without_launcher_lives_and_is_taken_up(
    scenario: FaultScenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given `keep` and a launcher that is killed, when lease and grace are over, then the tasks
    live and `tfmux ps` calls them unsupervised; and who has nothing but the file and the run's name
    takes them over with whole logs, and ends them."""
    places = {"ps": ["tf1"], "worker": ["tf3"]}
    file = scenario.file(places, run=f'{RULES}\non_disconnect = "keep"', env={"PACE": "0.02"})
    with scenario.up(file) as up:
        ready(up, "ps:0", "worker:0")
        run_id = strike(up)
    end = time.monotonic() + LEASE + 2 * GRACE
    wait_until(lambda: time.monotonic() > end, "lease and grace are over")
    assert scenario.of("tf1", "ps:0") and scenario.of("tf3", "worker:0")
    listed = command.run("ps")
    row = next(line for line in listed.stdout.splitlines() if line.startswith(run_id))
    assert row.split()[2:5] == ["unsupervised", "2/2", "2/2"], listed
    assert f"tfmux: {run_id}: no launcher supervises it; tfmux attach resumes it" in listed.stderr
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setenv("XDG_DATA_HOME", str(elsewhere))
    prefix = command.other_machine(elsewhere)
    with Up("attach", run_id, "--file", str(file), "--json", prefix=prefix) as again:
        again.wait_for(lambda e: e.get("state") == "running" and e["event"] == "run", "running")
        ready(again, "ps:0", "worker:0")
        attempts = {e["task"]: e["attempt"] for e in again.of("task")}
        assert set(attempts.values()) == {1}
        again.press_ctrl_c()
        assert again.wait() == 130, again.transcript()
        assert confirmed(again)
    assert scenario.check_logs(run_id) > 10_000
    scenario.wait_dead(run_id)
    assert command.run("ps", "--json").stdout.strip() == "[]"


@pytest.mark.prove
def test_tasks_on_other_hosts_outlive_a_launcher_that_is_followed(scenario: FaultScenario) -> None:
    """Given a run that `tfmux up` follows, when its launcher is killed, then the follower starts
    another one within the lease, and the tasks are the same processes and ready again."""
    file = scenario.file({"ps": ["tf1"], "worker": ["tf3"]}, run="grace = 1")
    with scenario.up(file) as up:
        ready(up, "ps:0", "worker:0")
        run_id = up.run_id

        def pids() -> list[list[int]]:
            places = [("tf1", "ps:0"), ("tf3", "worker:0")]
            return [[p.pid for p in scenario.of(host, task)] for host, task in places]

        before = pids()
        up.signal_launcher(signal.SIGKILL)
        up.wait_for(lambda e: "starting another" in str(e.get("note")), "another launcher")
        up.wait_for(lambda e: "previous launcher process" in str(e.get("note")), "its word")
        wait_until(lambda: set(last_states(up).values()) == {"ready"}, "all are ready again")
        assert pids() == before and all(before)
        up.press_ctrl_c()
        assert up.wait() == 130, up.transcript()
    assert scenario.check_logs(run_id) > 0
    scenario.wait_dead(run_id)
