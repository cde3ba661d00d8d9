"""A run on Slurm on the screen: in the queue, with its nodes, and cancelled."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from textual.pilot import Pilot

from launcher.run.snapshot import AllocationView, Receipt
from launcher.run.states import HostState, Outcome, RunPhase
from tests.support.fakes import ScriptedRun
from tests.support.screens import screen_text, shows, until
from tui.app import TfmuxApp

PENDING = AllocationView("Slurm", "8123", "PENDING", "Resources", expected=time.time() + 43_200)
AT = time.strftime("%H:%M", time.localtime(PENDING.expected))
STATUS = f"Slurm 8123 PENDING (Resources), expected {AT}, waited 1:0"
"""For nine minutes."""


@pytest.fixture
def queued(run: ScriptedRun) -> ScriptedRun:
    """A run of four nodes that waits for them."""
    hosts = tuple(replace(host, state=HostState.CONNECTING) for host in run.snapshot().hosts)
    since = time.time() - 3611
    run.change(state=RunPhase.QUEUED, allocation=PENDING, hosts=hosts, waiting_since=since)
    return run


@asynccontextmanager
async def opened(run: ScriptedRun, size: tuple[int, int]) -> AsyncIterator[Pilot[Any]]:
    """The app on the run."""
    app = TfmuxApp(run)
    async with app.run_test(size=size, notifications=True) as pilot:
        await shows(pilot, "Slurm 8123")
        yield pilot


def text(pilot: Pilot[Any]) -> str:
    """The whole screen."""
    assert isinstance(pilot.app, TfmuxApp)
    return "\n".join(screen_text(pilot.app))


@pytest.mark.parametrize("size", [(200, 50), (80, 24)], ids=["large", "small"])
async def test_header_and_every_pane_say_how_the_request_stands(
    queued: ScriptedRun, size: tuple[int, int]
) -> None:
    """In one row of the header, and in each pane, in as many rows as it needs; a log that begins
    takes their place."""
    async with opened(queued, size) as pilot:
        assert STATUS in text(pilot).splitlines()[0]
        await until(pilot, lambda: text(pilot).count("Slurm 8123 PENDING (Resources)") == 5)
        queued.change(state=RunPhase.RUNNING, allocation=replace(PENDING, state="RUNNING"))
        queued.write("ps:0", b"ps:0 listens\n")
        await shows(pilot, "ps:0 listens")
        await until(pilot, lambda: "PENDING" not in text(pilot))


async def test_what_can_never_come_true_stays_on_the_screen(queued: ScriptedRun) -> None:
    """With what to change."""
    advice = "the partition has fewer nodes, or allows fewer: write a smaller nodes"
    reason = "PartitionNodeLimit"
    queued.change(allocation=replace(PENDING, reason=reason, advice=advice, expected=None))
    async with opened(queued, (200, 50)) as pilot:
        await until(pilot, lambda: text(pilot).count(advice) == 5)
    async with opened(queued, (80, 24)) as pilot:
        await until(pilot, lambda: text(pilot).count("the partition has fewer nodes") == 4)


async def test_the_hosts_screen_has_the_job(queued: ScriptedRun) -> None:
    """Nodes that nobody has given are not being connected to."""
    async with opened(queued, (120, 40)) as pilot:
        await pilot.press("H")
        await shows(pilot, "tf1   queued")
        assert text(pilot).count(STATUS) == 2
        assert "connecting" not in text(pilot)
        hosts = tuple(replace(host, state=HostState.UP) for host in queued.snapshot().hosts)
        running = replace(PENDING, state="RUNNING", reason="", expected=None)
        queued.change(state=RunPhase.RUNNING, allocation=running, hosts=hosts)
        await shows(pilot, "Slurm 8123 RUNNING")
        await shows(pilot, "tf1   up")


async def test_leaving_the_queue_is_asked_for_and_has_a_receipt(queued: ScriptedRun) -> None:
    """The dialog says that nothing has started, and so does the receipt."""
    async with opened(queued, (80, 24)) as pilot:
        await pilot.press("q")
        await shows(pilot, "The run is in the queue: nothing has started")
        await pilot.press("escape", "f9")
        await until(pilot, lambda: "kill_all" in queued.asked)
        releasing = replace(PENDING, releasing=True)
        queued.change(state=RunPhase.KILLING, allocation=releasing, waiting="Slurm 8123 to end")
        await shows(pilot, "cancelling Slurm 8123: nothing has started")
        said = "Slurm 8123 was cancelled in the queue: nothing had started"
        queued.change(allocation=replace(releasing, released=said))
        queued.end(Outcome.KILLED, 130, receipt=Receipt(()))
        await shows(pilot, said)
        await shows(pilot, "Esc back   l launch again")
        await pilot.press("escape")
        ended = r" ■ killed  after \d+:\d\d  nothing was started"
        await until(pilot, lambda: bool(re.search(ended, text(pilot).splitlines()[0])))
        await pilot.press("H")
        await shows(pilot, "never connected")
