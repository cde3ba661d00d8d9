"""Tear down a host: fetch remaining logs and results, then delete the run's folder there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from ..files.collecting import Results
from ..hosts.link import Link
from ..plan.plan import HostPlan
from ..run import events as ev
from ..run.run import RunStateMachine
from ..run.snapshot import TaskView
from ..run.state import named
from .disk_watch import DiskWatch
from .live_data import Transfers
from .outputs import Outputs

COLLECT_STALL = 10.0
SURVIVORS_STALL = 1.0
"""The same where processes are left that hold logs open: their end does not come."""
STALLED_SECONDS = 2.0
"""Longest wait for a disk that takes nothing."""
LEAVE_SECONDS = 5.0
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
        self,
        run: RunStateMachine,
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
        self._waits: dict[str, _Wait] = {}
        """Hosts whose last log bytes have not come."""
        self._fetching = 0
        """Hosts from which something is being fetched."""
        self._watching: asyncio.Task[None] | None = None

    def force(self) -> None:
        """Gives the results up: a person does not wait for them. They stay on their hosts."""
        self._results.stop()

    async def release(self, host: HostPlan, gone: asyncio.Task[None]) -> None:
        """Fetches what is left and tells the agent to go; `gone` ends with its link."""
        link = self._links[host.name]
        with self._watched():
            whole = await self._logs_are_here(host.name)
            whole = await self._bring_results(host) and whole
        # What knows the survivors stays there, for the next `tfmux kill`.
        link.leave(remove=whole and not self._run.survivors_on(host.name))
        with suppress(TimeoutError):
            # An agent that has bytes for us which we do not take waits for us in vain.
            async with asyncio.timeout(LEAVE_SECONDS if whole else _SHORT_LEAVE_SECONDS):
                await asyncio.wait([gone])

    def _views(self, host: str) -> list[TaskView]:
        return self._run.tasks_on(host)

    async def _bring_results(self, host: HostPlan) -> bool:
        """False when results stay on the host, and its folder with them."""
        begun = any(view.attempt for view in self._views(host.name))
        if not host.collect or not begun:
            return True
        if self._run.forced and not host.local:
            reason = "the run was killed at once"
            self._feed(ev.ResultsMissing(time.time(), host.name, reason, host.collect))
            return False
        return await self._results.bring(host, self._links[host.name])

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
                self._results.stop()
            for wait in self._waits.values():
                late = now - wait.since > wait.patience
                if stalled or late or self._is_out_of_reach(wait.link):
                    wait.give_up()

    def _is_out_of_reach(self, link: Link) -> bool:
        """The host is not connected, and nobody waits until it is: its agent has just answered."""
        lost = link.closed or link.agent_gone or self._run.forced
        return lost and not link.connected

    async def _logs_are_here(self, host: str) -> bool:
        """Waits until all logs of a host are here; False when nothing came for ten seconds, or for
        one where processes are left there."""
        views = [view for view in self._views(host) if view.attempts]
        patience = SURVIVORS_STALL if self._run.survivors_on(host) else COLLECT_STALL
        wait = self._waits[host] = _Wait(self._links[host], time.monotonic(), patience)
        self._outputs.listen(host, wait.news.set)
        last = -1
        try:
            while views := [view for view in views if not self._outputs.is_whole(view)]:
                if wait.given_up:
                    text = f"the last log bytes of {host} did not come; they stay there"
                    self._feed(ev.NoteAdded(time.time(), text))
                    return False
                size = sum(self._outputs.monitor.size(view.id) for view in views)
                if size != last:
                    last, wait.since = size, time.monotonic()
                wait.news.clear()
                await wait.news.wait()
        finally:
            self._outputs.listen(host, None)
            del self._waits[host]
        cut = [str(view.id) for view in self._views(host) if self._outputs.is_cut(view)]
        if cut:  # nothing of it stays on the host either
            text = f"the last output of {named(cut)} is lost: its log was removed or cut"
            self._feed(ev.NoteAdded(time.time(), text))
        return True
