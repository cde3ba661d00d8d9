"""Snapshots that tests wait for."""

from __future__ import annotations

import time
from collections.abc import Callable

from launcher.history.control import RunControl
from launcher.run.snapshot import Snapshot
from tests.support.patience import PATIENCE


def wait(control: RunControl, condition: Callable[[Snapshot], object], what: str) -> Snapshot:
    """The first snapshot for which the condition holds."""
    deadline = time.monotonic() + PATIENCE
    while not condition(snapshot := control.snapshot()):
        assert time.monotonic() < deadline, f"never {what}: {snapshot}"
        time.sleep(0.02)
    return snapshot
