"""Metrics from log lines: the known forms, a form of one's own, cut lines, rates, thinning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from launcher.ids import TaskId
from launcher.run.snapshot import Metric
from launcher.store import metrics
from launcher.store.metrics import MAX_POINTS, MOST_POINTS, MetricsFile, latest_metrics
from launcher.store.stream import encode, parse


def test_points_of_many_tasks_are_bounded_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few tasks keep long curves; when many have metrics, all curves get shorter."""
    most = MOST_POINTS // 16
    monkeypatch.setattr("launcher.store.metrics.MOST_POINTS", most)
    metrics = MetricsFile(tmp_path / "metrics.jsonl")
    tasks = [TaskId("worker", number) for number in range(125)]
    for task in tasks:
        metrics.series(task)  # a screen asks for those that have none, too
    for number in range(MAX_POINTS):
        metrics.add(float(number), tasks[0], {"loss": 1.0}, None)
    assert len(metrics.series(tasks[0])) == MAX_POINTS
    for task in tasks:
        for number in range(600):
            metrics.add(float(number), task, {"loss": 1.0}, None)
    lengths = [len(metrics.series(task)) for task in tasks]
    assert sum(lengths) <= most and min(lengths) >= most // len(tasks) // 4


def test_what_tasks_named_last_is_read_from_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A day's metrics take minutes to read, for which no kill waits."""
    monkeypatch.setattr(metrics, "_END_BYTES", 1000)
    path = tmp_path / "metrics.jsonl"
    row = encode(Metric(TaskId("worker", 0), "h", {"step": 0.0}, time=1.0))
    rows = [row.replace(b'"step": 0.0', b'"step": %d.0' % n) for n in range(50_000)]
    rows.append(encode(Metric(TaskId("ps", 0), "h", {"a": 1.0}, time=7.0)))
    path.write_bytes(b"".join(rows))
    read: list[bytes] = []

    def parsed(line: bytes) -> Any:
        read.append(line)
        return parse(line)

    monkeypatch.setattr("launcher.store.stream.parse", parsed)
    latest = latest_metrics(path)
    assert latest[TaskId("worker", 0)].values == {"step": 49_999.0}
    assert latest[TaskId("ps", 0)].time == 7
    assert 5 < len(read) < 30 and all(line.startswith(b"{") for line in read)
    assert latest_metrics(tmp_path / "none") == {}
