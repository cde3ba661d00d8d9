"""The classic program, with real processes."""

from __future__ import annotations

import signal

import pytest

from tests.trainer.tasks import Cluster, Tasks

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.parametrize("flags", [(), ("--sync",)], ids=["asynchronous", "synchronous"])
def test_classic(tasks: Tasks, digits_directory: str | None, flags: tuple[str, ...]) -> None:
    """It reaches its last step, and the chief says an accuracy; TensorFlow does the rest."""
    data = [f"--data={digits_directory}"] if digits_directory else []
    cluster = Cluster(tasks, "classic", "--steps=400", *flags, *data, ps=1, worker=2)
    ps, chief = cluster.start("ps"), cluster.start("worker", 0)
    second = cluster.start("worker", 1)
    if flags:  # TensorFlow's own synchronous workers may wait for each other at the end
        chief.until(lambda _: chief.steps and chief.steps[-1] >= 250)
        return
    assert chief.wait(200) == 0
    assert chief.accuracy > 0.9
    assert chief.steps
    assert second.wait(60) == 0
    ps.signal(signal.SIGTERM)  # `join()` never returns
    assert ps.wait(30) == -15
