"""In-graph training and the evaluator, with real processes."""

from __future__ import annotations

import pathlib
import re
import signal

import pytest

from tests.trainer.tasks import Cluster, Tasks

pytestmark = pytest.mark.slow


def test_one_client_trains_on_all_workers(
    tasks: Tasks, tmp_path: pathlib.Path, digits_directory: str | None
) -> None:
    """The client reaches 0.95 on real digits; plain workers leave when it is done.

    An evaluator beside it tests each checkpoint and, told to leave, the newest. One of another
    run refuses them by name; one started by hand takes any.
    """
    logdir = tmp_path / "logdir"
    data = [f"--data={digits_directory}"] if digits_directory else []
    flags = ("--steps=700", "--learning-rate=0.5", "--save-secs=1", f"--logdir={logdir}", *data)
    cluster = Cluster(tasks, "in-graph", *flags, ps=1, chief=1, worker=2)
    run = {"TFMUX_RUN_ID": "test-run"}
    evaluator = tasks.run("evaluate", f"--logdir={logdir}", *data, env=run)
    workers = [cluster.start("worker", index) for index in range(2)]
    client, ps = cluster.start("chief"), cluster.start("ps")
    assert client.wait() == 0
    assert client.accuracy >= 0.95
    assert [worker.wait(20) for worker in workers] == [0, 0]
    evaluator.signal(signal.SIGTERM)
    assert evaluator.wait() == 0
    tested = re.findall(r"at global step (\d+): test accuracy (\d\.\d+)", evaluator.text)
    assert len(tested) >= 3 and [int(step) for step, _ in tested] == sorted(
        {int(step) for step, _ in tested}
    )
    assert tested[-1] == ("700", f"{client.accuracy:.4f}")
    assert ps.wait(30) == 0

    other = tasks.run("evaluate", f"--logdir={logdir}", env={"TFMUX_RUN_ID": "other-run"})
    by_hand = tasks.run("evaluate", f"--logdir={logdir}", "--steps=700")
    assert other.wait() == 1
    assert re.search("trainer: .*written by run test-run", other.complaint)
    assert by_hand.wait() == 0
