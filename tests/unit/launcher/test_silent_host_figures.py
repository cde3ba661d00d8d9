"""Figures of hosts: what is shown of those that are silent, and of those that do not answer."""

from __future__ import annotations

import asyncio
import time
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from launcher.errors import AgentError
from launcher.hosts.frames import StatsAnswer
from launcher.run.snapshot import HostView, RunView
from launcher.run.states import HostState, RunPhase
from launcher.run.views import Views
from launcher.session import host_links
from launcher.session.host_links import HostStats
from tests.support.patience import PATIENCE


def a_link(last_heard: float, answer: Any) -> Any:
    """A connected link whose agent answers all questions alike."""
    return SimpleNamespace(connected=True, last_heard=last_heard, ask=answer)


def views_of(*hosts: str) -> Views:
    """Hosts that are up, and of which nothing is new."""
    views = Views(RunView("r", "r", RunPhase.RUNNING, 0.0))
    for host in hosts:
        views.take(HostView(host, host, HostState.UP))
    return views


def stats_of(views: Views, links: dict[str, Any]) -> HostStats:
    """The figures of hosts that are reached over these links."""
    bulkhead = SimpleNamespace(around=nullcontext)
    shell: Any = SimpleNamespace(data=views, links=links, publish=lambda: None, bulkhead=bulkhead)
    return HostStats(shell)


async def never(question: object) -> object:
    """No answer in the time for which a link waits."""
    await asyncio.sleep(PATIENCE)
    raise AgentError("far", "the agent did not answer")


def test_a_silent_host_has_not_changed() -> None:
    """The second of two states carries nothing of a silent host: its silence is shown in whole
    seconds."""
    links = {f"h{number}": a_link(time.monotonic() - number / 7, never) for number in range(500)}
    views = views_of(*links)
    stats = stats_of(views, links)
    stats.note_heard()
    assert len(views.pop_touched()) == 500 and not views.pop_changed(1.0)
    stats.note_heard()
    assert not views.pop_touched()
    for number, view in enumerate(views.hosts.values()):
        assert view.last_heard is not None and view.last_heard == int(view.last_heard)
        assert -0.1 < time.time() - number / 7 - view.last_heard < PATIENCE
    links["h0"].last_heard += 1.0
    stats.note_heard()
    assert views.pop_touched() == [views.hosts["h0"]]


def test_a_host_that_was_never_heard_has_no_time() -> None:
    views = views_of("h")
    stats_of(views, {"h": a_link(0.0, never)}).note_heard()
    assert views.hosts["h"].last_heard is None


async def test_a_host_that_does_not_answer_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are asked again and again meanwhile, and it is asked once."""
    monkeypatch.setattr(host_links, "STATS_SECONDS", 0.01)
    monkeypatch.setattr(host_links, "_ANSWER_SECONDS", 0.05)
    asked = {"quick": 0, "slow": 0}
    often = asyncio.Event()

    async def quick(question: object) -> object:
        asked["quick"] += 1
        if asked["quick"] == 5:
            often.set()
        return StatsAnswer(cpu=0.5, memory_total=2, memory_used=1, gpus=(), tasks={})

    async def slow(question: object) -> object:
        asked["slow"] += 1
        return await never(question)

    links = {"quick": a_link(1.0, quick), "slow": a_link(1.0, slow)}
    polling = asyncio.create_task(stats_of(views_of(*links), links).poll())
    async with asyncio.timeout(PATIENCE / 2):
        await often.wait()
    assert asked["slow"] == 1
    polling.cancel()
