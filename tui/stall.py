"""Stalls: tasks whose next step is long overdue by their own measure."""

from __future__ import annotations

import itertools
from statistics import median

from launcher.store.metrics import Point

LATE = 10
"""Times the usual distance of two metric lines."""
AT_LEAST = 10.0
"""Seconds: a line a second is no reason for alarm when one takes ten."""
_LOOK = 50


def stalled_for(points: list[Point], now: float) -> float | None:
    """Seconds since the last metric line, when that is ten times as long as usual."""
    recent = points[-_LOOK:]
    if len(recent) < 3:
        return None
    usual = median(b.time - a.time for a, b in itertools.pairwise(recent))
    silent = now - recent[-1].time
    return silent if silent > max(AT_LEAST, LATE * usual) else None
