"""Figures of hosts and tasks that change all the time, written into the run's views: progress of
files, statistics of hosts, forwarded ports."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from ..errors import AgentError, HostError
from ..files.staging import Progress
from ..hosts.frames import Stats
from ..hosts.link import Link
from ..ids import TaskId
from ..plan.plan import TaskPlan
from ..quantities import size
from ..run import events as ev
from ..run.views import Views

STATS_SECONDS = 5.0
_ANSWER_SECONDS = 1.0
"""Longest wait for the answers that are shown together."""


@dataclass
class Transfers:
    """Says how far each host's files and results are; `changed` is called when one gets on."""

    views: Views
    changed: Callable[[], None]

    def staged(self, host: str, progress: Progress) -> None:
        """So many bytes and files, of so many that it lacks, have gone to a host."""
        self.views.update_host(
            host,
            staged_bytes=progress.bytes,
            staged_total=progress.total_bytes,
            staged_files=progress.files,
            staged_total_files=progress.total_files,
        )
        self.changed()

    def collected(self, host: str, done: int, total: int) -> None:
        """So many bytes of a host's results, of so many, have come back."""
        self.views.update_host(host, collected_bytes=done, collected_total=total)
        self.changed()

    def describe(self, host: str) -> str:
        """The host's name, with how much of its files is there."""
        view = self.views.hosts[host]
        if not view.staged_total:
            return host
        part = 100 * view.staged_bytes // view.staged_total
        return f"{host} ({part} % of {size(view.staged_total)})"


@dataclass
class HostStats:
    """Asks all connected hosts at once for their figures."""

    views: Views
    links: Mapping[str, Link]
    changed: Callable[[], None]
    _heard_at: dict[str, float] = field(default_factory=dict)
    """When each host was heard last, by the clock of its link."""

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
                stats = await self.links[host].ask(Stats())
                tasks = self.views.tasks
                live = {task for task in stats.tasks if task in tasks and tasks[task].state.live}
                self.views.update_host(
                    host,
                    cpu=stats.cpu,
                    memory_used=stats.memory_used,
                    memory_total=stats.memory_total,
                    gpus=stats.gpus,
                    usage={task: stats.tasks[task] for task in live},
                )

    def note_heard(self) -> None:
        """Says when each host was heard last, in whole seconds, as people are shown it: one that
        is silent has not changed, and one that says much changes once a second."""
        for host, link in self.links.items():
            if link.last_heard and self._heard_at.get(host) != link.last_heard:
                self._heard_at[host] = link.last_heard
                when = time.time() - (time.monotonic() - link.last_heard)
                self.views.update_host(host, last_heard=float(int(when)))


@dataclass
class Forwarding:
    """Opens ports of this machine's loopback that lead to tasks, and says their addresses."""

    views: Views
    links: Mapping[str, Link]
    feed: Callable[[ev.Event], None]
    changed: Callable[[], None]
    _ports: dict[TaskId, int] = field(default_factory=dict)

    async def open(self, task: TaskPlan) -> None:
        """Forwards a task's port, as before where it was forwarded already."""
        if task.port is None:
            return
        wanted = self._ports.get(task.id, 0)
        try:
            port = await self.links[task.host].forward(task.port, wanted)
        except (HostError, OSError) as error:
            self.feed(ev.NoteAdded(time.time(), f"{task.id} is not forwarded: {error}"))
            return
        self.views.update_task(task.id, url=f"http://127.0.0.1:{port}/")
        if port != wanted:
            self._ports[task.id] = port
            self.feed(ev.NoteAdded(time.time(), f"{task.id} is at http://127.0.0.1:{port}/"))
        self.changed()
