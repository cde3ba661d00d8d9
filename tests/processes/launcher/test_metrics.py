"""Metrics from log lines: the known forms, a form of one's own, cut lines, rates, thinning."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from launcher.ids import TaskId
from launcher.run.snapshot import Metric, RunView
from launcher.run.states import RunPhase
from launcher.run.views import Views
from launcher.session.client import RunClient
from launcher.store.runs import RunFolder
from launcher.store.stream import encode
from tests.support.patience import PATIENCE


def test_a_client_that_shows_no_curves_keeps_no_points(tmp_path: Path) -> None:
    """Metrics are read when somebody asks for them, and then all that were written."""
    task = TaskId("worker", 0)
    rows = [Metric(task, "h", {"loss": 1.0}, time=1.0 + number) for number in range(100)]
    folder = RunFolder(tmp_path)
    folder.metrics.write_bytes(b"".join(map(encode, rows)))
    now = Views(RunView(folder.run_id, "r", RunPhase.RUNNING, 0.0))
    client = RunClient(folder, now, None)
    seen = threading.Event()
    client.subscribe(lambda _: seen.set())
    assert seen.wait(PATIENCE)  # it finds no launcher, and goes on
    assert not client._metrics.latest
    deadline = time.monotonic() + PATIENCE
    while len(client.series(TaskId("worker", 0))) < 100 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(client.series(TaskId("worker", 0))) == 100
    client.close()
    closed = RunClient(folder, now, None)
    closed.close()
    assert len(closed.series(TaskId("worker", 0))) == 100
