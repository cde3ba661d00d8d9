"""Data of a run that change all the time, which only the launcher's shell knows and adds to
snapshots: progress of files, statistics of hosts, forwarded ports."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from ..errors import AgentError, HostError
from ..files.staging import Progress
from ..hosts.frames import Stats, StatsAnswer
from ..hosts.link import Link
from ..ids import TaskId
from ..plan.plan import TaskPlan
from ..quantities import size
from ..run import events as ev
from ..run.snapshot import HostView, TaskView

STATS_SECONDS = 5.0
_ANSWER_SECONDS = 1.0
"""Longest wait for the answers that are shown together."""


@dataclass
class Transfers:
    """Knows how far each host's files and results are; `changed` is called with the name of a
    host when it gets on."""

    changed: Callable[[str], None]
    _staged: dict[str, Progress] = field(default_factory=dict)
    _collected: dict[str, tuple[int, int]] = field(default_factory=dict)
    _shown: dict[str, tuple[HostView, HostView]] = field(default_factory=dict)
    """Views as the run has them, and the same with the progress: most events change none."""

    def staged(self, host: str, progress: Progress) -> None:
        """So many bytes and files, of so many that it lacks, have gone to a host."""
        self._staged[host] = progress
        self._shown.pop(host, None)
        self.changed(host)

    def collected(self, host: str, done: int, total: int) -> None:
        """So many bytes of a host's results, of so many, have come back."""
        self._collected[host] = (done, total)
        self._shown.pop(host, None)
        self.changed(host)

    def added_to(self, view: HostView) -> HostView:
        if view.name not in self._staged and view.name not in self._collected:
            return view
        known = self._shown.get(view.name)
        if known is None or known[0] is not view:
            known = self._shown[view.name] = (view, self._with_progress(view))
        return known[1]

    def _with_progress(self, view: HostView) -> HostView:
        staged = self._staged.get(view.name)
        if staged is not None:
            view = replace(
                view,
                staged_bytes=staged.bytes,
                staged_total=staged.total_bytes,
                staged_files=staged.files,
                staged_total_files=staged.total_files,
            )
        if view.name in self._collected:
            done, total = self._collected[view.name]
            view = replace(view, collected_bytes=done, collected_total=total)
        return view

    def describe(self, host: str) -> str:
        """The host's name, with how much of its files is there."""
        staged = self._staged.get(host)
        if staged is None or not staged.total_bytes:
            return host
        part = 100 * staged.bytes // staged.total_bytes
        return f"{host} ({part} % of {size(staged.total_bytes)})"


@dataclass
class HostStats:
    """Asks all connected hosts at once, and knows the latest answers."""

    links: Mapping[str, Link]
    changed: Callable[[], None]
    latest: dict[str, StatsAnswer] = field(default_factory=dict)
    _heard_at: dict[str, tuple[float, float]] = field(default_factory=dict)
    """When each host was heard last, by the clock of its link and since the epoch."""

    async def poll(self) -> None:
        """Asks all hosts for their figures, again and again; never ends by itself. One that does
        not answer delays no other, and is not asked again until it has."""
        asked: dict[str, asyncio.Task[None]] = {}
        while True:
            for host in self.links.keys() - asked.keys():
                asked[host] = asyncio.create_task(self._ask(host), name=f"stats of {host}")
            if asked:
                done, _ = await asyncio.wait(asked.values(), timeout=_ANSWER_SECONDS)
                for task in done:
                    task.result()
            asked = {host: task for host, task in asked.items() if not task.done()}
            self.changed()
            await asyncio.sleep(STATS_SECONDS)

    async def _ask(self, host: str) -> None:
        with suppress(AgentError):  # a host that does not answer shows as lost anyway
            if self.links[host].connected:
                self.latest[host] = await self.links[host].ask(Stats())

    def _last_heard(self, host: str) -> float | None:
        """Time at which a host was heard last, in whole seconds, as people are shown it: one that
        is silent has not changed, and one that says much changes once a second."""
        link = self.links.get(host)
        if link is None or not link.last_heard:
            return None
        known = self._heard_at.get(host)
        if known is None or known[0] != link.last_heard:
            when = time.time() - (time.monotonic() - link.last_heard)
            known = self._heard_at[host] = (link.last_heard, float(int(when)))
        return known[1]

    def added_to(self, view: HostView, live: Collection[TaskId]) -> HostView:
        heard = self._last_heard(view.name)
        stats = self.latest.get(view.name)
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


@dataclass
class Forwarding:
    """Opens ports of this machine's loopback that lead to tasks, and knows their addresses."""

    links: Mapping[str, Link]
    feed: Callable[[ev.Event], None]
    changed: Callable[[], None]
    ports: dict[TaskId, int] = field(default_factory=dict)

    async def open(self, task: TaskPlan) -> None:
        """Forwards a task's port, as before where it was forwarded already."""
        if task.port is None:
            return
        wanted = self.ports.get(task.id, 0)
        try:
            port = await self.links[task.host].forward(task.port, wanted)
        except (HostError, OSError) as error:
            self.feed(ev.NoteAdded(time.time(), f"{task.id} is not forwarded: {error}"))
            return
        if port != wanted:
            self.ports[task.id] = port
            self.feed(ev.NoteAdded(time.time(), f"{task.id} is at http://127.0.0.1:{port}/"))
        self.changed()

    def added_to(self, view: TaskView) -> TaskView:
        port = self.ports.get(view.id)
        return replace(view, url=f"http://127.0.0.1:{port}/") if port and view.state.live else view
