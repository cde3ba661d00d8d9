"""Figures that a task's metric lines have named, over time.

Who reads them from a file imports nothing that searches logs.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

MAX_POINTS = 4096
RECENT = 50
"""The last points of a task, by which its usual pace is known."""
LATE = 10
"""Times the usual distance of two metric lines."""
AT_LEAST = 10.0
"""Seconds: a line a second is no reason for alarm when one takes ten."""


@dataclass(frozen=True, slots=True)
class Point:
    """One metric line: when it came (epoch seconds), and the figures it named."""

    time: float
    values: dict[str, float]


@dataclass(frozen=True, slots=True)
class PointColumns:
    """The points of a series, a column each; NaN where a metric line named none. They may be read
    while a point is added: then the last one is in some of them only."""

    times: array[float] = field(default_factory=lambda: array("d"))
    """Epoch seconds."""
    steps: array[float] = field(default_factory=lambda: array("d"))
    losses: array[float] = field(default_factory=lambda: array("d"))

    def every_second(self) -> PointColumns:
        return PointColumns(self.times[::2], self.steps[::2], self.losses[::2])


class Series:
    """Steps and losses of one task over time, thinned out by halves when they grow too many.

    Appended to by the thread that reads the logs; `points` may be read from any (it is replaced as
    a whole when thinned).
    """

    def __init__(self) -> None:
        self.points = PointColumns()
        self._keep_every = 1
        self._seen = 0

    def __len__(self) -> int:
        return len(self.points.times)

    def add(self, point: Point, most: int = MAX_POINTS) -> None:
        """Adds a point; every second one goes when there are more than `most`."""
        self._seen += 1
        if self._seen % self._keep_every == 0:
            self.points.times.append(point.time)
            self.points.steps.append(point.values.get("step", math.nan))
            self.points.losses.append(point.values.get("loss", math.nan))
            self.thin(most)

    def thin(self, most: int) -> None:
        """Thins the points out to at most so many."""
        while len(self) > most:
            self.points = self.points.every_second()
            self._keep_every *= 2


def stalled_for(times: Sequence[float], now: float) -> float | None:
    """Seconds since the last of a task's metric lines, when that is ten times as long as usual."""
    recent = times[-RECENT:]
    if len(recent) < 3:
        return None
    pauses = sorted(later - earlier for earlier, later in pairwise(recent))
    usual = (pauses[(len(pauses) - 1) // 2] + pauses[len(pauses) // 2]) / 2
    silent = now - recent[-1]
    return silent if silent > max(AT_LEAST, LATE * usual) else None
