"""Restarts on this machine, with real processes; needs no root."""

from __future__ import annotations

from pathlib import Path

from launcher.store.runs import RunFolder
from tests.support import fault_tasks as tasks
from tests.support.scenario import FaultScenario, confirmed, gone, launch
from tests.support.streams import records


def test_a_failing_task_is_restarted_until_its_attempts_are_used_up(tmp_path: Path) -> None:
    """Attempts follow each other in one log, each with its number in events and tag and what
    the earlier one left behind gone; after the last one the run fails with its status."""
    with launch(
        tmp_path,
        {"ps": 1, "worker": 2},
        run='on_failure = "restart"\nmax_restarts = 2\ngrace = 1',
        modes={"worker": "fails orphan"},
        env={"FIRST": "worker:1", "FIRST_SECONDS": "fail ATTEMPT"},
    ) as up:
        for attempt in (1, 2, 3):
            up.wait_for(
                lambda e, n=attempt: (
                    e["event"] == "task"  # type: ignore[misc]
                    and (e["task"], e["attempt"], e["state"]) == ("worker:1", n, "ready")
                ),
                f"attempt {attempt}",
            )
            tags = [p.tag for p in FaultScenario.here(up.run_id) if "/worker:1/" in (p.tag or "")]
            assert set(tags) == {f"{up.run_id}/worker:1/{attempt};"}, tags
            tasks.tell(tmp_path / "ledger", up.run_id, f"fail {attempt}")
        assert up.wait() == 1, up.transcript()
        assert "worker:1 on localhost: exit 7" in up.said
        states = [(e["state"], e["attempt"]) for e in up.of("task") if e["task"] == "worker:1"]
        assert ("backoff", 1) in states and ("backoff", 2) in states
        assert ("backoff", 3) not in states and states[-1] == ("failed", 3)
        starts = [
            r["attempts"][-1]["log_start"]
            for r in records(RunFolder.find(up.run_id))
            if r["event"] == "task" and r["task"] == "worker:1" and "attempts" in r
        ]
        log = (RunFolder.find(up.run_id).path / "worker-1.log").read_bytes()
        assert len(set(starts)) == 3 and starts == sorted(starts)
        for number, start in enumerate(sorted(set(starts)), 1):
            assert log[start:].startswith(f"here is {up.run_id}.worker-1.{number}\n".encode())
        assert confirmed(up) and gone(up.run_id)


def test_a_restarted_task_that_recovers_ends_in_success(tmp_path: Path) -> None:
    with launch(
        tmp_path,
        {"ps": 1, "worker": 2},
        run='on_failure = "restart"\ngrace = 1',
        modes={"worker": "fails"},
        env={"SECONDS": "1", "FAILURES": "1"},
    ) as up:
        assert up.wait() == 0, up.transcript()
        ended = {e["task"]: e["attempt"] for e in up.of("task") if e["state"] == "exited"}
        assert (ended["worker:0"], ended["worker:1"]) == (2, 2)
        assert confirmed(up) and gone(up.run_id)
