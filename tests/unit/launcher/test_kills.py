"""Pace of a kill's looks at the process table, without processes."""

from __future__ import annotations

import json
import os
import time
from typing import Any

import pytest

from launcher.agent import kills
from launcher.agent.folders import Word
from launcher.agent.kills import TaskKill
from launcher.agent.processes import Process, read_process
from launcher.hosts.frames import KillReceipt


class Nothing:
    """The attempts and the tracker of a run of which something is left."""

    unread: tuple[int, ...] = ()
    below: tuple[int, ...] = ()

    def cancel_starts(self, tasks: Any) -> None:
        return

    def kill(self, tasks: Any) -> None:
        return

    def gone(self, tasks: Any) -> bool:
        return False

    def stops(self) -> dict[str, Any]:
        return {}

    def scan(self, processes: Any) -> dict[int, Any]:
        return {}


@pytest.mark.parametrize("grace", [0.0, 60.0])
def test_a_slow_look_is_followed_by_a_pause(monkeypatch: pytest.MonkeyPatch, grace: float) -> None:
    """On a busy machine a look takes longer than the pause between two; without one as long as
    itself the loop would look without end and reap nothing."""

    def look() -> dict[int, Process]:
        until = time.monotonic() + 0.1
        while time.monotonic() < until:
            read_process(os.getpid())
        return {}

    monkeypatch.setattr(kills, "table", look)
    nothing: Any = Nothing()
    kill = TaskKill([1], None, grace, nothing, nothing)
    began = time.monotonic()
    assert kill.step(Word.PROVEN) is None
    assert kill.next_look >= began + 0.2
    assert not kill.is_due(began + 0.2)


def test_a_receipt_lists_a_hundred_survivors_and_counts_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Thousands of processes that wait in the kernel fit into one frame."""
    monkeypatch.setattr(kills, "KILL_PATIENCE", 0.0)
    monkeypatch.setattr(kills, "send", lambda *_: True)
    monkeypatch.setattr(kills, "table", dict)
    me = read_process(os.getpid())
    assert me is not None
    stuck: Any = Nothing()
    stuck.scan = lambda _: dict.fromkeys(range(3000), (me, "worker:0"))
    receipt = TaskKill([1], None, 0.0, stuck, stuck).step(Word.PROVEN)
    assert receipt is not None
    read = KillReceipt.read(json.dumps(receipt).encode())
    assert (len(read.survivors), read.unlisted) == (100, 2900)
