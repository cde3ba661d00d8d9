"""Other rules for an agent that holds tasks: another lease, which it confirms."""

from __future__ import annotations

from typing import Any

import pytest

from launcher.agent import wire
from tests.support.agent_client import Client
from tests.support.patience import wait_until
from tests.testbed import proc

LIVES = ["sleep", "4010"]
RULES: dict[str, Any] = {"lease": 600.0, "grace": 0.2, "on_disconnect": "stop"}


def begun(client: Client) -> int:
    """The process of a task that would go on for long."""
    client.hello()
    return int(client.start("w:0", LIVES)["pid"])


def question(ident: int, **rules: Any) -> bytes:
    """The frame that asks for other rules."""
    return wire.encode(wire.RULES, {"id": ident, "rules": {**RULES, **rules}})


def lives(pid: int) -> bool:
    """The process is there, and no zombie."""
    found = proc.read(pid)
    return found is not None and found.alive


def test_another_lease_is_confirmed_held_and_taken_back() -> None:
    """Given two agents with a long lease, of which one is asked for a short one, and one for that
    and the long one again, when both have lost their launchers, the latter first, then it still
    holds its task when the other has ended its own."""
    with Client(**RULES) as back, Client(**RULES) as short:
        kept, ended = begun(back), begun(short)
        back.write(question(1, lease=1.0) + question(2))
        assert back.get(wire.REPLY, id=1)["rules"] == {**RULES, "lease": 1.0}
        assert back.get(wire.REPLY, id=2)["rules"] == RULES
        back.close()
        short.write(question(1, lease=1.0))
        assert short.get(wire.REPLY, id=1)["rules"]["lease"] == 1.0
        short.close()
        wait_until(lambda: not lives(ended), "the short lease has ended")
        assert lives(kept)
        with Client(back.run_id, **RULES) as again:
            again.hello()
            again.kill()
            again.leave()


@pytest.mark.parametrize(
    "rules",
    [
        {"lease": -1.0},
        {"lease": 0},
        {"lease": 1e300},
        {"lease": float("nan")},
        {"lease": "long"},
        {"lease": None},
        {"grace": -1.0},
        {"grace": float("inf")},
    ],
    ids=str,
)
def test_rules_that_are_none_change_nothing(rules: dict[str, Any]) -> None:
    """The channel is closed, and the agent acts by the rules that it had."""
    with Client(**RULES) as client:
        pid = begun(client)
        client.write(question(1, on_disconnect="keep") + question(2, **rules))
        assert client.get(wire.REPLY, id=1)["rules"]["on_disconnect"] == "keep"
        assert client.get(wire.ERROR)["text"].split(": ")[1] == "RULES"
        with Client(client.run_id, **RULES) as again:
            again.hello()
            assert lives(pid)
            again.kill()
            again.leave()
