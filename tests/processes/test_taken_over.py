"""Runs that a launcher elsewhere takes over, for a kill or to supervise them: what the command that
launched them says, its exit code, its hooks, and whoever else follows it here."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from launcher import Outcome, Run
from launcher.agent import wire
from tests.support import command
from tests.support.agent_client import Client, hello
from tests.support.cluster_texts import cluster_text
from tests.support.command import Up, write
from tests.support.patience import PATIENCE
from tests.testbed import guard

BY = "elsewhere:7"
TOLD = "import os, sys; open(os.environ['TFMUX_EVENT'], 'w').write(sys.stdin.read())"
HOOKS = {f"on_{name}": [sys.executable, "-c", TOLD] for name in ("success", "failure", "end")}
CLUSTER = cluster_text(
    {"worker": 1},
    "taken",
    command=["sh", "-c", "while echo tick; do sleep 0.1; done"],
    workdir="",
    grace=1,
    on_disconnect="keep",
    start={"ready": {"worker": "started"}},
    hooks=HOOKS,
)


def taker(run_id: str, **said: Any) -> Client:
    """A launcher elsewhere that the agent has admitted as the run's."""
    client = Client(run_id, host="localhost", local=True, on_disconnect="keep", grace=1.0)
    client.hello(launcher=BY, **said)
    return client


def end(client: Client) -> None:
    """The run's end, by whoever has it."""
    assert client.kill()["confirmed"]
    client.leave()


def hooks_of(folder: Path) -> dict[str, Any]:
    """What each hook that has run was told."""
    names = [name.removeprefix("on_") for name in HOOKS]
    return {n: json.loads((folder / n).read_text()) for n in names if (folder / n).exists()}


@pytest.mark.parametrize(
    ("said", "outcome", "code"),
    [
        ({"purpose": "attach"}, "taken-over", 5),
        ({"purpose": "kill"}, "killed", 130),
        ({}, "taken-over", 4),
    ],
    ids=["attach", "kill", "unsaid"],
)
async def test_everybody_who_follows_it_here_says_the_same(
    tmp_path: Path, said: dict[str, str], outcome: str, code: int
) -> None:
    """`up`, `attach`, the Python interface and the hooks: the outcome is no
    success, names who has the run and what for, and says nothing of the host, where the task
    lives all the while."""
    with Up("up", str(write(tmp_path, CLUSTER)), "--json") as up:
        up.state("worker:0", "ready")
        with Up("attach", up.run_id, "--json") as attached:
            attached.log("worker:0", "tick")
            async with asyncio.timeout(PATIENCE), Run.attach(up.run_id) as run:
                with taker(up.run_id, **said) as client:
                    ended = await run.wait()
                    codes = await asyncio.to_thread(lambda: (up.wait(), attached.wait()))
                    assert guard.first_pids().keys() == {"worker:0"}, "it was ended"
                    end(client)
    purpose = said.get("purpose", "")
    assert codes == (code, code), up.transcript() + attached.said
    assert (ended.outcome, ended.exit_code) == (Outcome(outcome), code)
    assert (ended.taken_by, ended.taken_for) == (BY, purpose)
    last = up.of("run")[-1]
    told = (last["outcome"], last["exit_code"], last["taken_by"], last.get("taken_for", ""))
    assert told == (outcome, code, BY, purpose)
    hooks = hooks_of(tmp_path)
    assert set(hooks) == ({"end", "failure"} if code == 4 else {"end"})
    assert (hooks["end"]["outcome"], hooks["end"]["exit_code"]) == (outcome, code)
    for text in (up.said, attached.said):
        assert f"another launcher ({BY}) has taken" in text
        assert "no process is left" not in text and "continues" not in text
    assert not any(receipt["clean"] for receipt in up.of("receipt") if "clean" in receipt)


def test_a_taker_that_dies_at_once_leaves_what_it_has_said(tmp_path: Path) -> None:
    """The taker was admitted, and died before it could order the kill: the command still says what
    was intended, and not that anything is dead. The run is listed, and a kill from here ends it."""
    with Up("up", str(write(tmp_path, CLUSTER)), "--json") as up:
        up.state("worker:0", "ready")
        taker(up.run_id, purpose="kill").close()
        assert up.wait() == 130, up.transcript()
        assert guard.first_pids().keys() == {"worker:0"}
        assert "no process is left" not in up.said
        killed = command.run("kill", up.run_id)
        assert killed.returncode == 0 and "no process is left" in killed.stdout, killed
    assert not guard.first_pids()


def test_two_takers_in_sequence(tmp_path: Path) -> None:
    """Who supervises the run now is replaced by one that ends it: each that is replaced hears of
    the one that has taken its own place, also when it comes back."""
    with Up("up", str(write(tmp_path, CLUSTER)), "--json") as up:
        up.state("worker:0", "ready")
        with taker(up.run_id, purpose="attach") as first:
            assert up.wait() == 5, up.transcript()
            with taker(up.run_id, purpose="kill") as second:
                told = first.get(wire.GONE)
                assert (told["by"], told["purpose"]) == (BY, "kill")
                with Client(up.run_id, host="localhost", local=True) as late:
                    late.token = first.token
                    late.send(wire.HELLO, hello(late.token, purpose="attach"))
                    assert late.get(wire.GONE)["purpose"] == "kill"
                end(second)
