"""The cluster file changes while its run goes on: the run keeps what it was launched with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from launcher.store.runs import RunFolder
from tests.support import command
from tests.support.command import Up, write
from tests.support.scenario import FaultScenario, ready

pytestmark = pytest.mark.prove


LAUNCHED = """
name = "kept"
[jobs.worker]
tasks = ["localhost:auto", "localhost:auto"]
[run]
command = ["sleep", "1000"]
grace = 1
on_disconnect = "keep"
[start.ready]
worker = "started"
"""
CHANGES = {
    "edited": LAUNCHED.replace('"localhost:auto", ', "").replace("1000", "2000"),
    "another cluster": '[jobs.other]\ntasks = ["localhost:auto"]\n[run]\ncommand = ["true"]\n',
    "broken": "= = no cluster file",
    "deleted": None,
}


def sleeping(run_id: str) -> list[int]:
    """The tasks of a run, by their pids."""
    found = FaultScenario.here(run_id)
    return sorted(p.pid for p in found if p.argv == ("sleep", "1000"))


def test_a_run_keeps_what_it_was_launched_with(tmp_path: Path) -> None:
    """Given a run whose file is edited, replaced, broken and deleted, when its launcher dies and
    another takes the run up each time, then its tasks are those that were launched; and a kill
    ends them."""
    file = write(tmp_path, LAUNCHED)
    up = Up("up", str(file), "--json")
    try:
        up.state("worker:1", "ready")
        run_id = up.run_id
        tasks = sleeping(run_id)
        assert len(tasks) == 2
        for change in CHANGES.values():
            up.kill_launcher()
            if change is None:
                file.unlink()
            else:
                file.write_text(change)
            up = Up("attach", run_id, "--json")
            up.wait_for(lambda e: e.get("state") == "running", "the run goes on")
            ready(up, "worker:0", "worker:1")
            assert {e["state"] for e in up.of("task")} == {"ready"}
            assert sleeping(run_id) == tasks
            shown = command.run("ps", "--json")
            (row,) = json.loads(shown.stdout)
            assert (row["run"], row["state"]) == (run_id, "running")
        assert RunFolder.find(run_id).cluster_file.read_text() == LAUNCHED
        done = command.run("kill", run_id)
        assert done.returncode == 0 and "no process is left" in done.stdout, done
        assert up.wait() == 130
        assert FaultScenario.here(run_id) == []
    finally:
        with up:
            pass
