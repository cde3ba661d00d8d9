"""Agents of a run that ends: no start behind a final kill, and nobody is left alone."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from launcher.agent import wire
from tests.support.agent_client import Client, family, state_folder
from tests.support.patience import wait_until
from tests.testbed import proc

DEAF = ["sh", "-c", "trap '' TERM; echo up; while :; do sleep 1; done"]


def refused(client: Client, task: str, attempt: int = 1) -> dict[str, object]:
    """A start of a deaf task, and what the agent answers."""
    said = client.start(task, DEAF, attempt=attempt)
    assert said["refused"] and said["pid"] == 0 and "has been ended" in said["error"]
    return said


def tasks_of(run_id: str) -> list[str]:
    return [p.tag or "" for p in family(run_id) if "TFMUX_TASK" in p.environ]


def test_no_start_behind_a_final_kill(tmp_path: Path) -> None:
    """A kill that ends the run has a receipt that stays true: whoever asks, on which channel ever,
    starts nothing behind it, and is told so. The next kill finds nothing."""
    with Client() as client:
        client.hello()
        client.start("w:0", DEAF)
        ended = client.kill(final=True)
        assert ended["confirmed"] and ended["signalled"]
        refused(client, "w:1")
        refused(client, "w:0", attempt=2)
        again = client.start("w:0", DEAF)  # what had its process is told as it was
        assert again["pid"] and not again["refused"]
        with Client(client.run_id) as other:
            held = other.hello()["tasks"]
            assert [one["refused"] for one in held if one["task"] == "w:1"] == [True]
            refused(other, "w:2")
            receipt = other.kill()
            assert receipt["confirmed"] and receipt["signalled"] == ended["signalled"]
            assert tasks_of(client.run_id) == []
            other.leave()
    wait_until(lambda: family(client.run_id) == [], "nobody is left")


def test_starts_in_one_write_with_a_final_kill() -> None:
    """Starts before it, behind it, and beside a kill that was under way without being final: each
    has an answer, and nothing lives when the receipt is there."""
    with Client() as client:
        client.hello()
        client.start("w:0", DEAF)
        kill = {"id": 7, "tasks": None, "grace": 0.3}
        bodies = {task: client.start_body(task, DEAF) for task in ("w:1", "w:2", "w:3")}
        client.write(
            wire.encode(wire.START, bodies["w:1"])
            + wire.encode(wire.KILL, kill)
            + wire.encode(wire.START, bodies["w:2"])
            + wire.encode(wire.KILL, {**kill, "id": 8, "final": True})
            + wire.encode(wire.START, bodies["w:3"])
        )
        said = {task: client.get(wire.STARTED, task=task) for task in bodies}
        assert [said[task]["refused"] for task in bodies] == [False, False, True]
        assert all(one["error"] for one in said.values())
        assert client.get(wire.RECEIPT)["confirmed"]
        assert tasks_of(client.run_id) == []
        client.leave()


def test_a_kill_that_is_not_final_is_followed_by_the_next_attempt() -> None:
    """The restart of all tasks ends everything, and goes on."""
    with Client() as client:
        client.hello()
        client.start("w:0", DEAF)
        assert client.kill()["confirmed"]
        assert client.start("w:0", DEAF, attempt=2)["pid"]
        assert client.kill(final=True)["confirmed"]
        client.leave()


def test_a_gate_does_not_open_behind_a_final_kill() -> None:
    """A task that waits at its gate is killed there; its program never begins."""
    with Client() as client:
        client.hello()
        client.start("w:0", ["sh", "-c", "read line; echo began; sleep 100"], gated=True)
        client.follow("w:0")
        release = wire.encode(wire.RELEASE, {"task": "w:0", "attempt": 1})
        kill = {"id": 3, "tasks": None, "grace": 0.2, "final": True}
        client.write(wire.encode(wire.KILL, kill) + release)
        assert client.get(wire.RECEIPT)["confirmed"]
        assert b"began" not in client.logs[0]
        client.leave()


@pytest.mark.parametrize("killed_before", [False, True])
def test_an_agent_that_is_told_to_leave_leaves_nobody_alone(killed_before: bool) -> None:
    """Given a task that nobody has killed, or that was started behind the receipt of a kill which
    was not final, when the launcher leaves, then the agent ends it before it goes."""
    with Client() as client:
        client.hello()
        if killed_before:
            assert client.kill()["confirmed"]
        pid = client.start("w:0", DEAF)["pid"]
        client.leave()
    wait_until(lambda: family(client.run_id) == [], "nobody is left")
    left = proc.read(pid)
    assert left is None or not left.alive
    assert not state_folder(client.run_id).exists(), "its end is proven"


def test_an_agent_that_leaves_in_a_kill_keeps_its_grace() -> None:
    """Leaving shortens no grace of a kill that is under way."""
    script = "trap 'sleep 0.3; echo saved >{0}; exit 0' TERM; echo up; while :; do sleep 0.05; done"
    with Client() as client:
        home = client.hello()["home"]
        file = Path(home, f"saved-{client.run_id}")
        client.start("w:0", ["sh", "-c", script.format(file)])
        client.follow("w:0")
        client.log_until(b"up")
        kill = {"id": 3, "tasks": None, "grace": 60.0, "final": True}
        client.write(wire.encode(wire.KILL, kill) + wire.encode(wire.LEAVE, {"remove": True}))
        client.everything()
    wait_until(lambda: family(client.run_id) == [], "nobody is left")
    assert file.read_text() == "saved\n"
    file.unlink()


def test_a_stopped_agent_reads_a_final_kill_behind_starts() -> None:
    """Given an agent that was stopped, with starts and then a final kill in its input, when it goes
    on, then nothing of them lives behind its receipt."""
    with Client() as client:
        agent = client.hello()["pid"]
        process = proc.read(agent)
        assert process is not None
        proc.signal_process(process, signal.SIGSTOP)
        starts = [wire.encode(wire.START, client.start_body(f"w:{n}", DEAF)) for n in range(20)]
        kill = {"id": 3, "tasks": None, "grace": 0.1, "final": True}
        client.write(b"".join(starts) + wire.encode(wire.KILL, kill) + starts[0])
        proc.signal_process(process, signal.SIGCONT)
        assert client.get(wire.RECEIPT)["confirmed"]
        assert tasks_of(client.run_id) == []
        client.leave()


def test_an_agent_that_is_told_to_stop_says_so_of_what_it_does_not_start() -> None:
    """A start that comes while it ends everything is answered: by whom, and why."""
    with Client() as client:
        agent = proc.read(client.hello()["pid"])
        assert agent is not None
        client.start("w:0", DEAF)
        proc.signal_process(agent, signal.SIGTERM)
        client.get(wire.NOTE)
        said = client.start("w:1", DEAF)
        told = said["error"], said["refused"], said["stopped_by"], said["stopped_why"]
        assert told[0] and told[1:] == (False, "agent", "the agent was told to stop")
