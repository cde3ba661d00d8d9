"""Statistics of hosts, asked every few seconds: CPU, memory, GPUs, and each task's share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace

from ..agent.answers import StatsAnswer
from ..agent.requests import Stats
from ..errors import AgentError
from ..hosts.link import Link
from ..ids import TaskId
from ..run.snapshot import HostView

STATS_SECONDS = 5.0


class HostStats:
    """Asks every connected host in turn, and knows the latest answers."""

    def __init__(self, links: Mapping[str, Link], changed: Callable[[], None]) -> None:
        self._links = links
        self._changed = changed
        self._latest: dict[str, StatsAnswer] = {}

    async def poll(self) -> None:
        """Never ends by itself."""
        while True:
            await asyncio.gather(*(self._ask(host) for host in list(self._links)))
            self._changed()
            await asyncio.sleep(STATS_SECONDS)

    async def _ask(self, host: str) -> None:
        with suppress(AgentError):  # a host that does not answer shows as lost anyway
            if self._links[host].connected:
                self._latest[host] = await self._links[host].ask(Stats())

    def added_to(self, view: HostView, live: Collection[TaskId]) -> HostView:
        """The host with its latest statistics; of tasks only those that live."""
        link = self._links.get(view.name)
        heard = time.time() - (time.monotonic() - link.last_heard) if link else None
        stats = self._latest.get(view.name)
        if stats is None:
            return replace(view, last_heard=heard)
        return replace(
            view,
            last_heard=heard,
            cpu=stats.cpu,
            memory_used=stats.memory_used,
            memory_total=stats.memory_total,
            gpus=stats.gpus,
            usage={task: share for task, share in stats.tasks.items() if task in live},
        )
