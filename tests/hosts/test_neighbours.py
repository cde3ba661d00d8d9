"""Another run of the same user, of the same file, on the same hosts."""

from __future__ import annotations

import json
import re

import pytest

from tests.support import command
from tests.support.scenario import FaultScenario, confirmed, ready

PLACES = {"ps": ["tf1"], "worker": ["tf3"]}


@pytest.mark.prove
def test_a_second_run_of_the_same_file_is_refused_by_name_and_hurts_nobody(
    scenario: FaultScenario,
) -> None:
    """Given a run, when its file is launched again, then exit 3 names the run and tasks that hold
    its ports; with other ports a second run goes on beside it, and a kill ends only its own."""
    file = scenario.file(PLACES, run="lease = 600\ngrace = 1", modes={"worker": "daemon orphan"})
    beside = command.write(
        scenario.folder,
        re.sub(r"(tf\d):(\d+)", lambda at: f"{at[1]}:{int(at[2]) + 50}", file.read_text()),
        "beside.toml",
    )
    with scenario.up(file) as first:
        ready(first, "ps:0", "worker:0")
        second = command.run("up", str(file), "--json")
        assert second.returncode == 3, second
        assert f"of ps:0 of the run {first.run_id}" in second.stderr
        assert f"of worker:0 of the run {first.run_id}" in second.stderr
        with scenario.up(beside) as third:
            ready(third, "ps:0", "worker:0")
            listed = json.loads(command.run("ps", "--json").stdout)
            assert {run["run"] for run in listed} == {first.run_id, third.run_id}
            third.press_ctrl_c()
            assert third.wait() == 130 and confirmed(third)
            scenario.check_logs(third.run_id)
        assert not any(e["state"] == "failed" for e in first.of("task"))
        assert len(scenario.of("tf3", "worker:0")) >= 2
        first.press_ctrl_c()
        assert first.wait() == 130 and confirmed(first)
        scenario.check_logs(first.run_id)
    scenario.wait_dead()


def test_kill_all_runs(scenario: FaultScenario) -> None:
    """Given two runs without a launcher, when `tfmux kill --all` is called, then both are ended and
    each has its receipt."""
    ups = []
    try:
        for _ in range(2):
            ups.append(scenario.up(scenario.file(PLACES, run='lease = 8\non_disconnect = "keep"')))
        for up in ups:
            ready(up, "ps:0", "worker:0")
            up.kill_launcher()
        done = command.run("kill", "--all")
        assert done.returncode == 0, done
        assert all(up.run_id in done.stdout for up in ups)
        assert done.stdout.count("no process is left") == 2
    finally:
        for up in ups:
            up.__exit__(None, None, None)
    scenario.wait_dead()
