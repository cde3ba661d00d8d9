"""Figures that the metric lines of tasks have named, over time, and the file of a run that has them
(`metrics.jsonl`), read again as it grows.

Nothing here searches logs: that is `metric_lines`.
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..frozen import frozen
from ..ids import TaskId
from ..run.gpus import GpuSample
from ..run.snapshot import Metric
from .stream import LineReader

MAX_POINTS = 4096


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

    def every(self, step: int) -> PointColumns:
        """Each second, third, … point."""
        return PointColumns(self.times[::step], self.steps[::step], self.losses[::step])


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
            self.points = self.points.every(2)
            self._keep_every *= 2


# --- the file of a run ----------------------------------------------------------------------------

MOST_POINTS = 1 << 20
"""Points of all tasks together, 25 MB: curves of thousands of tasks have fewer points each."""
_FEWEST_POINTS = 16
MOST_SAMPLES = 128
"""Samples of a host's GPUs that are kept: those of ten minutes."""
_END_BYTES = 4 << 20
"""Some 30,000 lines, which take a second to read: the newest ones, and half of the thinned ones."""
_LARGEST = 1 << 53


@frozen
class LatestMetrics:
    """Figures that the metric lines of a task named last."""

    time: float = 0.0
    values: Mapping[str, float] = field(default_factory=dict)
    rate: float | None = None

    def updated(
        self, time: float, values: Mapping[str, float], rate: float | None
    ) -> LatestMetrics:
        """With what one more line named."""
        rate = self.rate if rate is None else rate
        return LatestMetrics(time, with_newer(self.values, values), rate)

    def figures(self, last_output: float | None) -> dict[str, Any]:
        """Fields of the view of a task that has written something at `last_output`."""
        return {
            "step": count_of(self.values, "step"),
            "loss": self.values.get("loss"),
            "rate": self.rate,
            "metrics": self.values,
            "last_output": max(last_output or 0.0, self.time),
        }


def with_newer(before: Mapping[str, float], values: Mapping[str, float]) -> dict[str, float]:
    """Figures with those of a later line. A total belongs to the step that was named with it: a
    bar's, say, is not that of the training after it."""
    if "step" in values and "total" not in values:
        before = {name: value for name, value in before.items() if name != "total"}
    return {**before, **values}


class MetricsFile:
    """Contents of a run's metrics file; `read` takes in what has been added."""

    def __init__(self, path: Path) -> None:
        self._reader = LineReader(path)
        self.damage = self._reader.damage
        self._series: dict[TaskId, Series] = {}
        self._filled = 0
        """Number of series that have points."""
        self._share = MAX_POINTS
        """Points that each may have."""
        self.latest: dict[TaskId, LatestMetrics] = {}
        self.gpus: dict[str, deque[GpuSample]] = {}
        """The last samples of each host's GPUs, the oldest first."""

    def series(self, task: TaskId) -> Series:
        return self._series.setdefault(task, Series())

    def gpu_samples(self, host: str) -> Sequence[GpuSample]:
        """The last samples of a host's GPUs; another thread may be adding one."""
        return self.gpus[host].copy() if host in self.gpus else ()

    def skip(self, most: int) -> None:
        """Leaves out what lies before the last `most` bytes."""
        self._reader.skip(most)

    def read(self) -> bool:
        """Reads on to the end of the file; True when something was added."""
        added = False
        for record in self._reader.records():
            added = True
            if isinstance(record, Metric):
                self.add(record.time, record.id, dict(record.values), record.rate)
            elif isinstance(record, GpuSample):
                samples = self.gpus.setdefault(record.host, deque(maxlen=MOST_SAMPLES))
                samples.append(record)
        return added

    def add(self, time: float, task: TaskId, values: dict[str, float], rate: float | None) -> None:
        """Adds what a metric line named."""
        series = self.series(task)
        if not len(series):
            self._filled += 1
            share = 1 << (MOST_POINTS // self._filled).bit_length() - 1
            if self._share > max(share, _FEWEST_POINTS):
                self._share = max(share, _FEWEST_POINTS)
                for one in list(self._series.values()):
                    one.thin(self._share)
        series.add(Point(time, values), self._share)
        latest = self.latest.get(task, NO_METRICS)
        self.latest[task] = latest.updated(time, values, rate)


NO_METRICS = LatestMetrics()


def latest_metrics(path: Path) -> Mapping[TaskId, LatestMetrics]:
    """What tasks named last, by the end of the file: who lists runs or ends one has no time for a
    day's curves."""
    metrics = MetricsFile(path)
    metrics.skip(_END_BYTES)
    metrics.read()
    return metrics.latest


def count_of(values: Mapping[str, float], name: str) -> int | None:
    """The global step, or the total of steps, among some metrics."""
    count = values.get(name, math.nan)
    return int(count) if 0 <= count <= _LARGEST else None
