"""Watch of this machine's disk: says so when it takes nothing, and the run goes on without it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from ..run import events as ev
from ..store.run_writer import RunWriter
from .outputs import Outputs

_PACE = 0.25
_SAY_AGAIN_SECONDS = 30.0


@dataclass
class DiskWatch:
    """Knows whether logs and records are being stored."""

    outputs: Outputs
    writer: RunWriter
    feed: Callable[[ev.Event], None]
    _said: float | None = None
    _said_unrecorded: bool = False
    _said_omitted: str = ""

    @property
    def stalled(self) -> bool:
        """Our disk is full, or does not answer."""
        return self.outputs.monitor.stalled or bool(self.writer.trouble)

    async def watch(self) -> None:
        """Notes disks that do not answer; never ends by itself."""
        while True:
            await asyncio.sleep(_PACE)
            if self.outputs.monitor.stalled:
                self.complain("the disk does not answer")
                await self.outputs.report_exits()
            trouble = self.writer.trouble
            if trouble and not self._said_unrecorded:
                text = f"events are not stored for now: {trouble}"
                self.feed(ev.NoteAdded(time.time(), text))
            self._said_unrecorded = bool(trouble)
            if self._said_omitted != (omitted := self.writer.omitted):
                self._said_omitted = omitted
                self.feed(ev.NoteAdded(time.time(), omitted))

    def complain(self, reason: str) -> None:
        """Says that logs are not stored, but not all the time."""
        now = time.monotonic()
        if self._said is None or now - self._said > _SAY_AGAIN_SECONDS:
            self._said = now
            self.feed(ev.NoteAdded(time.time(), f"log not stored here for now: {reason}"))
