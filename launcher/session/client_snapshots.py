"""Snapshots that a client makes where no launcher process says how the run stands."""

from __future__ import annotations

import time
from dataclasses import replace

from ..run.snapshot import HostReceipt, Receipt, Snapshot
from ..run.states import Outcome, RunPhase
from ..store.runs import RunFolder


def resumed(snapshot: Snapshot) -> Snapshot:
    """A stored run that a launcher takes up, although its record may say that it has ended."""
    goes_on = replace(snapshot, state=RunPhase.CONNECTING, kill_asked=False, ended=None)
    return replace(goes_on, outcome=None, exit_code=None, receipt=None, launcher_error="")


def failed(snapshot: Snapshot, reason: str) -> Snapshot:
    """A run whose launcher process could not begin, or whose client cannot go on: of hosts that
    may hold something of it nobody knows what became of that."""
    contacted = [host.name for host in snapshot.hosts if host.contacted]
    begun = any(task.attempt for task in snapshot.tasks)
    unknown = tuple(HostReceipt(host, doubt=reason) for host in contacted)
    return replace(
        snapshot,
        state=RunPhase.ENDED,
        outcome=Outcome.FAILED,
        exit_code=4,
        ended=time.time(),
        launcher_error=reason,
        receipt=snapshot.receipt or Receipt(unknown, begun=begun),
    )


def unknown(folder: RunFolder) -> Snapshot:
    """A run of which nothing is known yet."""
    return Snapshot(folder.run_id, folder.run_id, RunPhase.CONNECTING, time.time())
