"""The end of a run at one host: its logs are fetched before its folder is removed."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest

from launcher.cluster.file import loads
from launcher.ids import TaskId
from launcher.plan.plan import make_plan
from launcher.run import events as ev
from launcher.session.live_data import Transfers
from launcher.session.teardown import COLLECT_STALL, Teardown
from tests.launcher.test_launch_preparation import CLUSTER

WORKER = TaskId("worker", 0)


class LostLink:
    """A link that was connected a moment ago."""

    connected = False
    closed = False
    agent_gone = False
    left: bool | None = None

    def leave(self, *, remove: bool) -> None:
        """Notes whether the folder may go."""
        self.left = remove


@pytest.fixture
def link() -> Any:
    return LostLink()


@pytest.fixture
def whole() -> list[bool]:
    """Whether all of the log is here, as its only entry."""
    return [False]


async def release(link: Any, whole: list[bool], tmp_path: Any, **run: Any) -> list[ev.Event]:
    """Releases the host; returns what was told."""
    plan = make_plan(loads(CLUSTER, "c.toml", tmp_path), "run-1")
    view = SimpleNamespace(id=WORKER, host="far", attempts=(1,), attempt=1)
    snapshot = SimpleNamespace(tasks=[view], receipt=None)
    given: Any = SimpleNamespace(forced=False, snapshot=lambda: snapshot, **run)
    monitor = SimpleNamespace(size=lambda _: 10, stalled=False)
    outputs: Any = SimpleNamespace(is_whole=lambda _: whole[0], monitor=monitor)
    disk: Any = SimpleNamespace(stalled=False)
    told: list[ev.Event] = []
    transfers = Transfers(lambda: None)
    teardown = Teardown(given, tmp_path, {"far": link}, outputs, transfers, told.append, disk)
    gone = asyncio.create_task(asyncio.sleep(0))
    await teardown.release(plan.host("far"), gone)
    return told


async def test_a_host_that_is_lost_before_its_last_bytes_came_is_waited_for(
    link: Any, whole: list[bool], tmp_path: Any
) -> None:
    """A busy host, or a bad network: it confirmed the kill, and is back a moment later."""

    def back() -> None:
        link.connected = whole[0] = True

    asyncio.get_running_loop().call_later(0.5, back)
    assert await release(link, whole, tmp_path) == []
    assert link.left is True


@pytest.mark.parametrize("how", ["closed", "agent_gone"])
async def test_a_host_that_does_not_come_back_is_not_waited_for(
    link: Any, whole: list[bool], tmp_path: Any, how: str
) -> None:
    """What it has of the logs stays there, and that is said."""
    setattr(link, how, True)
    began = time.monotonic()
    (told,) = await release(link, whole, tmp_path)
    assert isinstance(told, ev.NoteAdded) and "the last log bytes of far did not come" in told.text
    assert link.left is False
    assert time.monotonic() - began < COLLECT_STALL
