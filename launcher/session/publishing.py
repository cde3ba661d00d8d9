"""Publishing of a run: that it has changed, and its public events."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..run.snapshot import HostReceipt, Receipt, Snapshot
from ..run.states import Outcome, RunPhase
from ..store.public_events import changes


class Publisher:
    """Says what is different: public events at once, that there is a new state to `publish`."""

    def __init__(
        self,
        *,
        state: Callable[[], Snapshot],
        publish: Callable[[], None],
        record: Callable[[dict[str, Any]], None],
        earlier: Snapshot | None,
    ) -> None:
        """`state` is what public events tell; `earlier` is what they have told under an earlier
        launcher."""
        self._state = state
        self.publish = publish
        self._record = record
        self.recorded = earlier
        """What the public events say."""

    def changed(self) -> None:
        """Records what is different now."""
        before, self.recorded = self.recorded, self._state()
        for record in changes(before, self.recorded, time.time()):
            self._record(record)
        self.publish()


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
