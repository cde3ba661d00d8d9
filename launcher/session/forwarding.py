"""Forwarded ports: ports of this machine's loopback that lead to tasks."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from ..errors import HostError
from ..hosts.link import Link
from ..ids import TaskId
from ..plan.plan import TaskPlan
from ..run import events as ev
from ..run.snapshot import TaskView


class Forwarding:
    """Opens ports and knows their addresses."""

    def __init__(
        self,
        links: Mapping[str, Link],
        feed: Callable[[ev.Event], None],
        changed: Callable[[], None],
    ) -> None:
        self._links = links
        self._feed = feed
        self._changed = changed
        self._ports: dict[TaskId, int] = {}

    async def open(self, task: TaskPlan) -> None:
        """Forwards a task's port, as before where it was forwarded already."""
        if task.port is None:
            return
        wanted = self._ports.get(task.id, 0)
        try:
            port = await self._links[task.host].forward(task.port, wanted)
        except (HostError, OSError) as error:
            self._feed(ev.NoteAdded(time.time(), f"{task.id} is not forwarded: {error}"))
            return
        if port != wanted:
            self._ports[task.id] = port
            self._feed(ev.NoteAdded(time.time(), f"{task.id} is at http://127.0.0.1:{port}/"))
        self._changed()

    def added_to(self, view: TaskView) -> TaskView:
        """The task with its address on this machine."""
        port = self._ports.get(view.id)
        return replace(view, url=f"http://127.0.0.1:{port}/") if port and view.state.live else view
