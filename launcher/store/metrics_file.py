"""Metrics of a run on disk (`metrics.jsonl`), read again as they grow.

One array a line: `[time, task, rate, {name: value}]`, with `rate` in global steps a second or
null. A value may be NaN.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from ..ids import TaskId
from ..printable import printable
from ..run.fields import Time
from ..run.snapshot import TaskView
from .json_lines import Damage, open_regular, read_lines
from .metrics import MAX_POINTS, Point, Series

MOST_POINTS = 1 << 20
"""Of all tasks together, 25 MB: curves of thousands of tasks have fewer points each."""
_FEWEST_POINTS = 16
_END_BYTES = 2 << 20
"""Some 30,000 lines, which take half a second to read."""
_LARGEST = 1 << 53
_Row = tuple[Time, TaskId, float | None, Annotated[dict[str, float], Field(max_length=100)]]
_ROW: TypeAdapter[_Row] = TypeAdapter(_Row)


@dataclass(frozen=True)
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
        return LatestMetrics(time, {**self.values, **values}, rate)

    def added_to(self, view: TaskView) -> TaskView:
        return replace(
            view,
            step=count_of(self.values, "step"),
            loss=self.values.get("loss"),
            rate=self.rate,
            metrics=self.values,
            last_output=max(view.last_output or 0.0, self.time),
        )


class MetricsFile:
    """Contents of a run's metrics file; `read` takes in what has been added."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self.damage = Damage()
        self._series: dict[TaskId, Series] = {}
        self._filled = 0
        """Number of series that have points."""
        self._share = MAX_POINTS
        """Points that each may have."""
        self.latest: dict[TaskId, LatestMetrics] = {}

    def series(self, task: TaskId) -> Series:
        return self._series.setdefault(task, Series())

    def skip(self, most: int) -> None:
        """Leaves out what lies before the last `most` bytes."""
        with suppress(OSError), open_regular(self._path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > most:
                file.seek(size - most)
                self._offset = size - most + len(file.readline(most))

    def read(self) -> bool:
        """Reads on to the end of the file; True when something was added."""
        before = self._offset
        try:
            with open_regular(self._path) as file:
                file.seek(self._offset)
                rest = 0
                for line in read_lines(file, self.damage):
                    if line.endswith(b"\n"):
                        self._add(line)
                    else:
                        rest = len(line)  # it is being written
                self._offset = file.tell() - rest
        except FileNotFoundError:
            return False
        except OSError as error:
            self.damage.reason = error.strerror or str(error)
        return self._offset > before

    def _add(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            time, task, rate, named = _ROW.validate_python(json.loads(line))
        except (ValueError, RecursionError):
            self.damage.records += 1
            return
        values = {printable(name, 200): value for name, value in named.items()}
        self.add(time, task, values, rate)

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


def encode_metrics(
    time: float, task: TaskId, values: Mapping[str, float], rate: float | None
) -> list[Any]:
    """A metric line as a row of the file."""
    return [time, str(task), rate, dict(values)]


def count_of(values: Mapping[str, float], name: str) -> int | None:
    """The global step, or the total of steps, among some metrics."""
    count = values.get(name, math.nan)
    return int(count) if 0 <= count <= _LARGEST else None
