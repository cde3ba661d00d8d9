"""Kills: the pace of their looks at processes, and their place among starts."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from launcher.agent import kills
from launcher.agent.folders import Word
from launcher.agent.kills import TaskKill
from launcher.agent.processes import Process, read_process
from launcher.hosts.frames import Kill, KillReceipt, Release, Request, Start
from launcher.plan.run_plan import Plan
from launcher.process.executor import Executor
from launcher.run import events as ev
from launcher.run import instructions as do
from launcher.run.events import ReadyTimeout, ShutdownTimeout
from tests.support.fake_core import FakeCore
from tests.support.patience import PATIENCE

# Pace of a kill's looks at the process table, without processes.


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


# Instructions for thousands of tasks: a kill waits for no start, and the loop is not held.

HOSTS = 20


class Link:
    """A link that keeps what is sent, where it fits into a frame."""

    def __init__(self, host: str, sent: list[tuple[str, Request]]) -> None:
        self._host, self._sent = host, sent

    def send(self, request: Request) -> bool:
        request.encode()
        self._sent.append((self._host, request))
        return True


class Scene:
    """An executor of a run of two tasks on each of some hosts, and what it has sent."""

    def __init__(self, table: str = "") -> None:
        names = [f"h{number}" for number in range(HOSTS)]
        tables = "".join(f'[hosts.{name}]\nssh = "{name}"\n' for name in names)
        places = ", ".join(f'"{name}:{port}"' for name in names for port in (1, 2))
        text = f'{tables}[jobs.w]\ntasks = [{places}]\n[run]\ncommand = ["true"]\n{table}'
        self.sent: list[tuple[str, Request]] = []
        core = FakeCore(text, Path("/"), {n: Link(n, self.sent) for n in names})
        self.work, self.fed = core.work, core.fed
        self.plan: Plan = core.data.plan
        parts: Any = SimpleNamespace()
        self.executor = Executor(core, parts, asyncio.Event())

    def start_all(self) -> None:
        for task in self.plan.tasks:
            self.executor.carry_out(do.StartTask(task, 1, gated=False))

    async def begun(self) -> None:
        """The first host has been told to start its tasks."""
        async with asyncio.timeout(PATIENCE):
            while not self.sent:  # noqa: ASYNC110
                await asyncio.sleep(0)

    async def end(self) -> None:
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*self.work)

    def kinds(self, host: str) -> list[type[Request]]:
        return [type(request) for to, request in self.sent if to == host]


async def test_a_kill_of_everything_comes_before_starts_that_wait() -> None:
    """The kill is sent at once, and no host that has not been told to start a task is told
    later."""
    scene = Scene()
    scene.start_all()
    await scene.begun()
    for host in scene.plan.hosts:
        scene.executor.carry_out(do.KillHost(host.name, None, 1.0))
    sent = list(scene.sent)
    await scene.end()
    assert (
        scene.sent == sent
        and [k for _, k in sent if isinstance(k, Kill)] == [Kill(0, None, 1.0)] * HOSTS
    )
    assert scene.kinds("h0") == [Start, Start, Kill] and scene.kinds("h19") == [Kill]


async def test_a_start_that_fits_into_no_frame_is_that_tasks_error() -> None:
    """The error is known before the host is told; the run goes on, and so do the other tasks."""
    env = ", ".join(f'LONG{n} = "{chr(0xFC) * 65_000}"' for n in range(12))  # each is 6 bytes
    scene = Scene(f'[jobs.x]\ntasks = ["h0:3"]\nenv = {{ {env} }}\n')
    scene.start_all()
    await scene.end()
    (error,) = [each for each in scene.fed if isinstance(each, ev.TaskStarted)]
    assert (str(error.task), error.attempt, error.pid) == ("x:0", 1, 0)
    assert "START of 4" in error.error and "at most 4194304" in error.error
    assert scene.kinds("h0") == scene.kinds("h19") == [Start, Start]


async def test_a_kill_of_one_task_comes_behind_its_start() -> None:
    """The host is told at once what waits for it, in its order; the other hosts follow."""
    scene = Scene()
    scene.start_all()
    task = scene.plan.on_host("h19")[1]
    scene.executor.carry_out(do.ReleaseTask(task, 1))
    scene.executor.carry_out(do.KillHost("h19", (task.id,), 0.0))
    assert scene.kinds("h19") == [Start, Start, Release, Kill] and len(scene.sent) == 4
    await scene.end()
    starts = [request.task for _, request in scene.sent if isinstance(request, Start)]
    assert len(starts) == len(set(starts)) == 2 * HOSTS


async def test_the_loop_is_free_between_the_hosts() -> None:
    """What else is due has its turn while starts are sent."""
    scene = Scene()
    scene.start_all()
    turns = 0
    while not scene.work[0].done():
        turns += 1
        await asyncio.sleep(0)
    assert turns > HOSTS


async def test_a_time_limit_of_a_task_that_does_not_start_any_more_is_no_event() -> None:
    """Thousands end at the same time, and each event would be stored."""
    scene = Scene()
    ended = asyncio.Event()
    for task in scene.plan.tasks:
        scene.executor.carry_out(do.SetTimer(ReadyTimeout(task.id, 1), 0.01))
    scene.executor.carry_out(do.SetTimer(ShutdownTimeout(), 0.02))
    asyncio.get_running_loop().call_later(0.03, ended.set)
    await ended.wait()
    assert [event.timer for event in scene.fed if isinstance(event, ev.TimerFired)] == [
        ShutdownTimeout()
    ]
