"""Core of a launcher process, as its parts know it: the record of the run, the links to its hosts,
and a way to say what has happened.

Parts know each other only where `assembly.assemble` hands one to another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol

from ..hosts.link import Link
from ..run import events as ev
from ..run.gauges import Gauges
from ..run.state import RunData
from .bulkhead import Bulkhead


class Core(Protocol):
    """What every part gets. All of it belongs to the launcher's loop."""

    data: RunData
    """The record, to be read: events change it, and gauges."""
    gauges: Gauges
    links: dict[str, Link]
    """The links to hosts, by their names, once they are begun."""
    bulkhead: Bulkhead
    """Answers questions about text."""

    def feed(self, event: ev.Event) -> None:
        """Gives the run an event, and does what follows from it. One that comes meanwhile waits."""

    def note(self, text: str) -> None:
        """Tells whoever follows the run."""

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Starts work that is named, kept and reaped: its exception ends the launcher."""

    def publish(self) -> None:
        """Records what is different now, and has clients told."""
