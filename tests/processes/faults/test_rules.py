"""Restarts, hangs and first failures on this machine, with real processes; needs no root."""

from __future__ import annotations

import os
from pathlib import Path

from launcher.agent.processes import TAG
from launcher.store.runs import RunFolder
from tests.support import fault_tasks as tasks
from tests.support.patience import wait_until
from tests.support.scenario import FaultScenario, confirmed, gone, last_states, launch, notes, ready
from tests.support.streams import records


def test_a_failing_task_is_restarted_until_its_attempts_are_used_up(tmp_path: Path) -> None:
    """Given a worker that always fails and two restarts, when the third attempt fails, then so does
    the run; each attempt has its number, its part of the log, and nothing of the one before."""
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
    """Given two workers that each fail once and may be restarted, when their second attempts end
    well, then the run is a success with a clean receipt."""
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


HANGS = """
import os, socket, sys, time
server = socket.create_server(("", int(sys.argv[1])))
task = os.environ["TFMUX_TASK"].split("/")[1]
print("step 1", flush=True)
time.sleep(0.5 if task == "worker:1" else 1000)
"""


def test_a_program_that_hangs_at_its_end_is_named_and_ended(tmp_path: Path) -> None:
    """Given a chief that says nothing more once the other worker has ended well, when
    `finish_timeout` is over, then the chief is ended and has failed, for that reason."""
    with launch(
        tmp_path,
        {"ps": 1, "worker": 2},
        run="finish_timeout = 2\ngrace = 1",
        words=["{python}", "-c", HANGS.replace("{", "{{").replace("}", "}}"), "{port}"],
    ) as up:
        assert up.wait() == 1, up.transcript()
        assert last_states(up)["worker:0"] == "failed" and last_states(up)["worker:1"] == "exited"
        assert "worker:0 on localhost: hangs at its end: no output for" in up.said
        assert confirmed(up) and gone(up.run_id)


def test_a_ps_that_dies_stops_the_run_and_is_the_headline(tmp_path: Path) -> None:
    """Given a ps and two workers, when the ps fails, then the run is stopped, the ps is its first
    failure, and the workers count as stopped."""
    with launch(
        tmp_path,
        {"ps": 1, "worker": 2},
        run='on_failure = "keep"\ngrace = 1',
        modes={"ps": "fails"},
        env={"FIRST": "ps:0", "FIRST_SECONDS": "fail"},
    ) as up:
        ready(up, "ps:0", "worker:0", "worker:1")
        tasks.tell(tmp_path / "ledger", up.run_id, "fail")
        assert up.wait() == 1, up.transcript()
        assert "first failure: ps:0 on localhost: exit 7" in up.said
        assert last_states(up) == {"ps:0": "failed", "worker:0": "stopped", "worker:1": "stopped"}
        assert confirmed(up) and gone(up.run_id)


def test_success_all_waits_for_every_worker(tmp_path: Path) -> None:
    """Given two workers of which all must succeed, when the chief exits, then the other one goes on
    until it exits by itself, and only then the run ends."""
    with launch(
        tmp_path,
        {"ps": 1, "worker": 2},
        run='success = "all"\ngrace = 1',
        env={"SECONDS": "end", "FIRST": "worker:0", "FIRST_SECONDS": "0.5"},
        modes={"worker": ""},
    ) as up:
        up.state("worker:0", "exited")
        ready(up, "worker:1")
        tasks.tell(tmp_path / "ledger", up.run_id, "end")
        assert up.wait() == 0, up.transcript()
        assert last_states(up)["worker:1"] == "exited", up.transcript()


def test_a_task_of_a_like_name_is_not_restarted(tmp_path: Path) -> None:
    """Given eleven workers that are restarted on a failure, when worker:1 is killed, then it alone
    has a second attempt, and not worker:10: tags end in a semicolon and are matched whole."""
    with launch(
        tmp_path,
        {"worker": 11},
        run='on_failure = "restart"\ngrace = 1\n[start.ready]\nworker = "started"',
        words=["sh", "-c", "sleep 1000"],
        env={"MODES": ""},
    ) as up:
        wait_until(
            lambda: len([e for e in up.of("task") if e["state"] == "ready"]) == 11, "eleven workers"
        )
        victims = [
            p
            for p in FaultScenario.here(up.run_id)
            if p.environ.get(TAG.decode()[:-1]) == f"{up.run_id}/worker:1/1;"
        ]
        os.kill(victims[0].pid, 9)
        up.wait_for(
            lambda e: e["event"] == "task" and e["task"] == "worker:1" and e["attempt"] == 2,
            "the restart",
        )
        up.press_ctrl_c()
        assert up.wait() == 130, up.transcript()
        attempts = {e["task"]: e["attempt"] for e in up.of("task")}
        assert attempts.pop("worker:1") == 2
        assert set(attempts.values()) == {1} and len(attempts) == 10
        assert not any("worker:10" in note for note in notes(up))
        assert confirmed(up) and gone(up.run_id)
