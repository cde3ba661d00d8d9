"""Tear down a host: fetch remaining logs and results, then delete the run's folder there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from ..files.collecting import Results
from ..hosts.link import Link
from ..plan.model import HostPlan
from ..run import events as ev
from ..run.run import Run
from ..run.snapshot import TaskView
from .disk_watch import DiskWatch
from .live_data import Transfers
from .outputs import Outputs

COLLECT_STALL = 10.0
STALLED_SECONDS = 2.0
"""Longest wait for a disk that takes nothing."""
LEAVE_SECONDS = 5.0
_SHORT_LEAVE_SECONDS = 1.0
_PACE = 0.02


class Teardown:
    """Releases hosts, each when what it holds of the run is here."""

    def __init__(
        self,
        run: Run,
        folder: Path,
        links: Mapping[str, Link],
        outputs: Outputs,
        transfers: Transfers,
        feed: Callable[[ev.Event], None],
        disk: DiskWatch,
    ) -> None:
        """`folder` is the run's on this machine."""
        self._run = run
        self._links = links
        self._outputs = outputs
        self._feed = feed
        self._disk = disk
        self._results = Results(folder, feed, transfers.collected)

    def force(self) -> None:
        """Gives the results up: a person does not wait for them."""
        self._results.stop()

    async def release(self, host: HostPlan, gone: asyncio.Task[None]) -> None:
        """Fetches what is left and tells the agent to go; `gone` ends with its link."""
        link = self._links[host.name]
        watch = asyncio.create_task(self._watch_results())
        try:
            whole = await self._logs_are_here(host.name)
            whole = await self._bring_results(host) and whole
        finally:
            watch.cancel()
        receipt = self._run.snapshot().receipt
        survived = {one.host for one in receipt.hosts if one.survivors} if receipt else set()
        # What knows the survivors stays there, for the next `tfmux kill`.
        link.leave(remove=whole and host.name not in survived)
        with suppress(TimeoutError):
            # An agent that has bytes for us which we do not take waits for us in vain.
            async with asyncio.timeout(LEAVE_SECONDS if whole else _SHORT_LEAVE_SECONDS):
                await asyncio.wait([gone])

    def _views(self, host: str) -> list[TaskView]:
        return [view for view in self._run.snapshot().tasks if view.host == host]

    async def _bring_results(self, host: HostPlan) -> bool:
        """False when results stay on the host, and its folder with them."""
        begun = any(view.attempt for view in self._views(host.name))
        if not host.collect or not begun or self._run.forced:
            return True
        return await self._results.bring(host, self._links[host.name])

    async def _watch_results(self) -> None:
        """Gives the results up when there is nowhere to put them."""
        stalled = 0.0
        while True:
            await asyncio.sleep(_PACE)
            stalled = stalled + _PACE if self._disk.stalled else 0.0
            if stalled > STALLED_SECONDS:
                self._results.stop()

    def _is_out_of_reach(self, link: Link) -> bool:
        """The host is not connected, and nobody waits until it is: its agent has just answered."""
        lost = link.closed or link.agent_gone or self._run.forced
        return lost and not link.connected

    async def _logs_are_here(self, host: str) -> bool:
        """Waits until all logs of a host are here; False when nothing came for ten seconds."""
        views = [view for view in self._views(host) if view.attempts]
        last, since = -1, time.monotonic()
        stalled = 0.0
        while not all(self._outputs.is_whole(view) for view in views):
            size = sum(self._outputs.monitor.size(view.id) for view in views)
            if size != last:
                last, since = size, time.monotonic()
            stalled = stalled + _PACE if self._disk.stalled else 0.0
            given_up = time.monotonic() - since > COLLECT_STALL or stalled > STALLED_SECONDS
            if given_up or self._is_out_of_reach(self._links[host]):
                text = f"the last log bytes of {host} did not come; they stay there"
                self._feed(ev.NoteAdded(time.time(), text))
                return False
            await asyncio.sleep(_PACE)
        return True
