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
    monkeypatch.setattr(kills, "KILL_SECONDS", 0.0)
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


def process(pid: int, parent: int = 1, start: int = 100) -> Process:
    return Process(pid, parent, pid, pid, "S", start, 0, 0, 1)


class Looks(Nothing):
    """A host whose processes, all of one task, are those of the look of the moment."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, handlers: set[int]) -> None:
        self.now: dict[int, Process] = {}
        self.newest = 0
        self.told: list[int] = []
        everything: Any = self
        self.kill_task = TaskKill([1], {"w:0"}, 60.0, everything, everything)
        monkeypatch.setattr(kills, "table", lambda: self.now)
        monkeypatch.setattr(kills, "moment", lambda: (100, self.newest))
        monkeypatch.setattr(kills, "outlives", lambda pid, _: pid in handlers)
        monkeypatch.setattr(kills, "pipe_readers", lambda *_: {})
        monkeypatch.setattr(kills, "took", lambda *_: False)
        monkeypatch.setattr(kills, "send", self.send)

    def send(self, one: Process, signals: Any) -> bool:
        self.told.append(one.pid)
        return True

    @property
    def below(self) -> dict[int, Process]:  # type: ignore[override]
        return self.now

    def scan(self, processes: Any) -> dict[int, Any]:
        return {pid: (one, "w:0") for pid, one in processes.items()}

    def look(self, *processes: Process, newest: int = 0) -> list[int]:
        """Looks, while `newest` is the last pid that was given; returns who was signalled."""
        self.told.clear()
        self.now = {one.pid: one for one in processes}
        self.newest = newest or max(self.now, default=0)
        assert self.kill_task.step(Word.PROVEN) is None
        return list(self.told)


def test_in_one_hundredth_of_a_second_pids_tell_who_was_born_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Given a task with a handler that forks at each moment, when it is signalled, then what it had
    forked by then gets the signal, once, and what it forks later does not."""
    looks = Looks(monkeypatch, handlers={10})
    parent = process(10)
    assert looks.look(parent, newest=20) == [10]
    before, late, next_tick = process(15, 10), process(21, 10), process(16, 10, start=101)
    assert looks.look(parent, before, late, next_tick, newest=30) == [15]
    assert looks.look(parent, before, late, next_tick, process(31, 10), process(32, 21)) == []
    assert looks.look(process(15, 1), process(21, 1), process(33, 1), process(34, 15)) == []


def test_what_is_forked_until_the_signal_comes_to_its_parent_gets_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second of two gets its signal later, and so does what it has forked in between."""
    looks = Looks(monkeypatch, handlers={10, 15})
    newest = iter([20, 22])
    monkeypatch.setattr(kills, "moment", lambda: (100, next(newest, 30)))
    assert looks.look(process(10), process(15)) == [10, 15]
    family = process(10), process(15), process(21, 10), process(22, 15), process(23, 15)
    assert looks.look(*family) == [22]


def test_nobody_is_spared_where_nobody_has_a_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a chain of forks that the signal would end, when it is killed, then each newborn one
    gets the signal until one of them is met."""
    looks = Looks(monkeypatch, handlers=set())
    assert looks.look(process(10)) == [10]
    assert looks.look(process(90, start=140)) == [90]
    assert looks.look(process(95, start=150)) == [95]
