"""In the place of a launcher process's core, for one of its parts on a test's own loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from launcher.cluster.read import loads
from launcher.process.bulkhead import Bulkhead
from launcher.run import events as ev
from launcher.run.machine import RunStateMachine


class FakeCore:
    """A run, and what a part has told of it."""

    def __init__(
        self, text: str, folder: Path, links: Mapping[str, Any] | None = None, run_id: str = "run-1"
    ) -> None:
        """`text` is the run's cluster file."""
        self.machine = RunStateMachine(loads(text, "c.toml", folder), run_id, 1.0)
        self.data: Any = self.machine.data
        self.gauges = self.machine.gauges
        self.links: dict[str, Any] = dict(links or {})
        self.bulkhead = Bulkhead()
        self.bulkhead.close()  # no process reads what tasks and hosts say
        self.fed: list[ev.Event] = []
        self.work: list[asyncio.Task[None]] = []

    def feed(self, event: ev.Event) -> None:
        """Keeps an event."""
        self.fed.append(event)

    def note(self, text: str) -> None:
        """Keeps a note, as an event."""
        self.feed(ev.NoteAdded(time.time(), text))

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Starts work, and keeps it."""
        self.work.append(asyncio.create_task(work, name=name))
        return self.work[-1]

    def publish(self) -> None:
        """Nobody follows the run."""


def fake_hosts() -> Any:
    """Links of hosts that nobody has begun, for parts that ask them who has greeted."""
    return SimpleNamespace(welcomes={}, tasks={}, logins=None)
