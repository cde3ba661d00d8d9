"""Publishing of a run: snapshots for front ends, and its public events."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..run.snapshot import HostReceipt, Receipt, Snapshot
from ..run.states import Outcome, RunPhase
from ..store.public_events import changes

PUBLISH_SECONDS = 1 / 30


class Publisher:
    """Says what is different: public events at once, snapshots at most 30 times a second."""

    def __init__(
        self,
        *,
        state: Callable[[], Snapshot],
        snapshot: Callable[[], Snapshot],
        publish: Callable[[Snapshot], None],
        record: Callable[[dict[str, Any]], None],
        failed: Callable[[str, BaseException], None],
        earlier: Snapshot | None,
    ) -> None:
        """`state` is what public events tell, `snapshot` all that there is to see; `earlier` is
        what public events have told under an earlier launcher."""
        self._state = state
        self._snapshot = snapshot
        self._publish = publish
        self._record = record
        self._failed = failed
        self.recorded = earlier
        """What the public events say."""
        self._soon = False

    def changed(self) -> None:
        """Records what is different now, and publishes it soon."""
        before, self.recorded = self.recorded, self._state()
        for record in changes(before, self.recorded, time.time()):
            self._record(record)
        self.soon()

    def soon(self) -> None:
        """Publishes a snapshot soon."""
        if not self._soon:
            self._soon = True
            asyncio.get_running_loop().call_later(PUBLISH_SECONDS, self._now)

    def _now(self) -> None:
        self._soon = False
        try:
            self._publish(self._snapshot())
        except Exception as error:
            self._failed("snapshot", error)


def failed_snapshot(now: Snapshot, failure: str, receipts: tuple[HostReceipt, ...]) -> Snapshot:
    """The end of a run whose launcher failed: exit code 4, with the receipts that have come."""
    return replace(
        now,
        state=RunPhase.ENDED,
        outcome=now.outcome or Outcome.FAILED,
        exit_code=4,
        ended=now.ended or time.time(),
        receipt=now.receipt or Receipt(receipts),
        launcher_error=failure,
    )
