"""The classic program, with real processes."""

from __future__ import annotations

import pathlib
import signal

import pytest

from tests.trainer.tasks import Cluster, Tasks

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("flags", [(), ("--sync",)], ids=["asynchronous", "synchronous"])
def test_classic(
    tasks: Tasks, tmp_path: pathlib.Path, digits_directory: str | None, flags: tuple[str, ...]
) -> None:
    """It ends at its last step, and the chief says an accuracy; TensorFlow does the rest."""
    data = [f"--data={digits_directory}"] if digits_directory else []
    flags = (*flags, "--steps=400", f"--logdir={tmp_path / 'logdir'}")
    cluster = Cluster(tasks, "classic", *flags, *data, ps=1, worker=2)
    ps, chief = cluster.start("ps"), cluster.start("worker", 0)
    # A worker that finds variables without a value looks again after half a minute.
    chief.until(lambda _: (tmp_path / "logdir" / "checkpoint").exists())
    second = cluster.start("worker", 1)
    chief.says("^Done: ", 200)
    # Closing its session, the chief waits no two minutes for a queue runner that nobody serves.
    assert chief.wait(60) == 0
    assert "Traceback" not in chief.text
    assert chief.accuracy > 0.9
    assert chief.steps
    assert second.wait(60) == 0
    ps.signal(signal.SIGTERM)  # `join()` never returns
    assert ps.wait(30) == -15
