"""Release of a run's hosts, each when what it holds of the run is here: last log bytes, results."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from typing import TYPE_CHECKING

from ..hosts import bootstrap
from ..hosts.link import Link
from ..run import events as ev
from ..run.state import named
from .core import Core
from .host_links import HostLinks
from .output import DiskWatch, Outputs

if TYPE_CHECKING:
    from ..files.collecting import Results

COLLECT_STALL = 10.0
"""Patience for the last log bytes of a host."""
SURVIVORS_STALL = 1.0
"""Patience for the last log bytes where survivors keep the logs open."""
STALLED_SECONDS = 2.0
"""Longest wait for a disk that takes nothing."""
LEAVE_SECONDS = 5.0
FIND_SECONDS, FIND_SECONDS_FORCED = 10.0, 1.0
"""Longest wait for what tasks have left in a workdir: the disk there may hang."""
_SHORT_LEAVE_SECONDS = 1.0
_PACE = 0.1


@dataclass(eq=False)
class _Wait:
    """Wait for the last log bytes of a host."""

    link: Link
    since: float
    """When it began, or the last bytes came."""
    patience: float
    """Seconds without another byte until the wait is given up."""
    news: asyncio.Event = field(default_factory=asyncio.Event)
    """There is more, or it has been given up."""
    given_up: bool = False

    def give_up(self) -> None:
        self.given_up = True
        self.news.set()


class Teardown:
    """Releases hosts, each when what it holds of the run is here."""

    def __init__(
        self, core: Core, hosts: HostLinks, outputs: Outputs, disk: DiskWatch, folder: Path
    ) -> None:
        self._core, self._data, self._links = core, core.data, core.links
        self._hosts, self._outputs, self._disk = hosts, outputs, disk
        self._results = self._results_of(folder)
        self._waits: dict[str, _Wait] = {}
        """Hosts whose last log bytes have not come."""
        self._fetching = 0
        """Hosts from which something is being fetched."""
        self._watching: asyncio.Task[None] | None = None

    def force(self) -> None:
        """Gives the results up: a person does not wait for them. They stay on their hosts."""
        if self._results is not None:
            self._results.stop()

    def _results_of(self, folder: Path) -> Results | None:
        """What brings results, and says which stay; None where there can be none."""
        data = self._data
        if data.allocation is None and all(h.local and not h.collect for h in data.plan.hosts):
            return None
        # Before the run begins, as in `preparation`: by its end, days later, an upgrade may have
        # replaced the files that this reads.
        from ..files.collecting import Results

        for magic in (MAGIC_NUMBER, b""):
            with suppress(OSError):  # a host that needs it says so
                bootstrap.program_payload({}, magic)
        return Results(folder, self._core.feed, self._note_progress)

    def _note_progress(self, host: str, done: int, total: int) -> None:
        """Notes how many bytes of a host's results, of how many, have come back."""
        self._core.gauges.brought(host, done, total)
        self._core.publish()

    async def release(self, host: str) -> None:
        """Fetches what is left and tells the agent to go, which ends its link. Beside
        survivors the agent stays: nothing else sees what they do, and when they have gone."""
        link = self._links[host]
        with self._watched():
            whole = await self._logs_are_here(host)
            brought = await self._bring_results(host)
        remove = whole and brought is not None and not self._data.survivors_on(host)
        await self._find_results(host, brought or (), moved=remove)
        if self._data.survivors_on(host):
            return
        link.leave(remove=remove, brought=brought or ())
        with suppress(TimeoutError):
            # An agent that has bytes for us which we do not take waits for us in vain.
            async with asyncio.timeout(LEAVE_SECONDS if whole else _SHORT_LEAVE_SECONDS):
                await asyncio.wait([self._hosts.tasks[host]])

    async def _bring_results(self, name: str) -> tuple[str, ...] | None:
        """The paths that are here now; None when some stay on the host, and its folder with
        them."""
        if self._results is None or not self._has_begun(name):
            return ()
        host = self._data.plan.host(name)
        if host.collect and self._data.run.forced and not host.local:
            reason = "the run was killed at once"
            self._core.feed(ev.ResultsMissing(time.time(), name, reason, host.collect))
            return None
        if host.collect and not await self._results.bring(host, self._links[name]):
            return None
        return host.collect

    async def _find_results(self, name: str, brought: Sequence[str], *, moved: bool) -> None:
        """Says what tasks have left in the workdir of a host, which is a copy."""
        if self._results is None or not self._has_begun(name):
            return
        host = self._data.plan.host(name)
        if self._data.plan.copies(host):
            seconds = FIND_SECONDS_FORCED if self._data.run.forced else FIND_SECONDS
            await self._results.find(host, self._links[name], brought, seconds, moved=moved)

    def _has_begun(self, host: str) -> bool:
        return any(view.attempt for view in self._data.on_host(host))

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Has what is fetched meanwhile given up in time: one watch for all hosts, since a thousand
        would take the loop for themselves."""
        self._fetching += 1
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            self._fetching -= 1
            if not self._fetching:
                self._watching.cancel()
                self._watching = None

    async def _watch(self) -> None:
        """Gives up what does not come, and what there is nowhere to put."""
        stalled_since: float | None = None
        while True:
            await asyncio.sleep(_PACE)
            now = time.monotonic()
            stalled_since = (stalled_since or now) if self._disk.stalled else None
            stalled = stalled_since is not None and now - stalled_since > STALLED_SECONDS
            if stalled:
                self.force()
            for wait in self._waits.values():
                late = now - wait.since > wait.patience
                if stalled or late or self._is_out_of_reach(wait.link):
                    wait.give_up()

    def _is_out_of_reach(self, link: Link) -> bool:
        """The host is not connected, and nobody waits until it is: its agent has just answered."""
        lost = link.closed or link.agent_gone or self._data.run.forced
        return lost and not link.connected

    async def _logs_are_here(self, host: str) -> bool:
        """Waits until all logs of a host are here; False when nothing came for ten seconds, or for
        one where processes are left there."""
        views = [view for view in self._data.on_host(host) if view.attempts]
        patience = SURVIVORS_STALL if self._data.survivors_on(host) else COLLECT_STALL
        wait = self._waits[host] = _Wait(self._links[host], time.monotonic(), patience)
        self._outputs.listen(host, wait.news.set)
        last = -1
        try:
            while views := [view for view in views if not self._outputs.is_whole(view)]:
                if wait.given_up:
                    text = f"the last log bytes of {host} were not received; they stay on the host"
                    self._core.note(text)
                    return False
                size = sum(self._outputs.monitor.size(view.id) for view in views)
                if size != last:
                    last, wait.since = size, time.monotonic()
                wait.news.clear()
                await wait.news.wait()
        finally:
            self._outputs.listen(host, None)
            del self._waits[host]
        cut = [str(view.id) for view in self._data.on_host(host) if self._outputs.is_cut(view)]
        if cut:  # nothing of it stays on the host either
            text = f"the last output of {named(cut)} is lost: its log was removed or cut"
            self._core.note(text)
        return True
