"""A run without a screen: how often the logs of many tasks are looked through."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

from launcher.store.stream import PublicEvent
from tests.support.patience import PATIENCE
from tui import headless


class Output:
    """Counts the events that it gets and the looks at all logs."""

    def __init__(self) -> None:
        self.events = self.looks = 0

    def logs(self, *, last: bool = False) -> bool:
        self.looks += 1
        return False

    def record(self, record: PublicEvent) -> None:
        self.events += 1


async def test_logs_are_not_looked_through_for_each_event() -> None:
    """The start of thousands of tasks brings tens of thousands of events at once."""
    quiet = asyncio.Event()

    async def events() -> AsyncIterator[PublicEvent]:
        for _ in range(1000):
            yield {"time": 1.0, "event": "run", "run": "r", "state": "starting"}
        await quiet.wait()

    run: Any = SimpleNamespace(
        events=events, snapshot=lambda: SimpleNamespace(receipt=None, ended=None)
    )
    counting = Output()
    out: Any = counting
    printing = asyncio.create_task(headless._print(run, out))
    async with asyncio.timeout(PATIENCE):
        while counting.events < 1000:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        assert counting.looks < 100
        while counting.looks < 5:  # noqa: ASYNC110
            await asyncio.sleep(0.001)  # and they are when no event comes
        quiet.set()
        await printing
