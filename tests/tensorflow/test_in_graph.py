"""In-graph training and the evaluator, with real processes."""

from __future__ import annotations

import pathlib
import re
import signal

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.support.lazily import checkpoint, devices, model, parameters, tf
from tests.support.trainer_tasks import ACCURATE, STEPS, Cluster, Tasks
from trainer.flags import parse


@pytest.mark.prove
def test_one_client_trains_on_all_workers(
    tasks: Tasks, tmp_path: pathlib.Path, digits: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client learns real digits; plain workers leave when it is done. On a machine with GPUs,
    it puts nothing onto GPUs of workers that have none: each computes on two logical devices.

    An evaluator beside it tests each checkpoint and, told to leave, the newest. One of another
    run refuses them by name; one started by hand takes any.
    """
    logdir = tmp_path / "logdir"
    run = {"TFMUX_RUN_ID": "test-run"}
    first, data = model.MLP.initial(1), [flag for flag in digits if "--data" in flag]
    with monkeypatch.context() as environment:
        environment.setenv(*next(iter(run.items())))
        checkpoint.Checkpoints(model.MLP, parse(["in-graph", f"--logdir={logdir}"])[1]).save(
            parameters.Values(0, first, first)
        )
    evaluator = tasks.run("evaluate", f"--logdir={logdir}", "--grace=600", *data, env=run)
    evaluator.says("at global step 0: test accuracy")

    flags = (f"--steps={STEPS}", "--devices=2", "--batch=25", f"--logdir={logdir}", *digits)
    cluster = Cluster(tasks, "in-graph", *flags, ps=1, chief=1, worker=2)
    workers = [cluster.start("worker", index) for index in range(2)]
    ps, client = cluster.start("ps"), cluster.start("chief", module="tests.support.eight_gpus")
    assert client.wait() == 0, client.text
    assert client.accuracy >= ACCURATE
    assert [worker.wait() for worker in workers] == [0, 0]
    evaluator.signal(signal.SIGTERM)
    assert evaluator.wait() == 0
    tested = re.findall(r"at global step (\d+): test accuracy (\d\.\d+)", evaluator.text)
    steps = [int(step) for step, _ in tested]
    assert len(steps) >= 2 and steps == sorted(set(steps))
    assert tested[-1] == (str(STEPS), f"{client.accuracy:.4f}")
    assert ps.wait() == 0
    events = EventAccumulator(str(logdir))
    events.Reload()
    used = {node.device for node in events.Graph().node if "/job:worker" in node.device}
    assert used == {f"/job:worker/task:{t}/device:CPU:{n}" for t in range(2) for n in range(2)}

    other = tasks.run("evaluate", f"--logdir={logdir}", env={"TFMUX_RUN_ID": "other-run"})
    by_hand = tasks.run("evaluate", f"--logdir={logdir}", f"--steps={STEPS}")
    assert other.wait() == 1
    assert re.search("trainer: .*written by run test-run", other.complaint)
    assert by_hand.wait() == 0


def test_gpus_are_used_where_a_task_has_one() -> None:
    """Each task of a graph by itself; all of them alike where any may run a call."""
    names = [
        *(
            f"/job:worker/replica:0/task:0/device:{kind}:{n}"
            for kind in ("CPU", "GPU")
            for n in "01"
        ),
        *(f"/job:worker/replica:0/task:1/device:{kind}:0" for kind in ("CPU", "GPU")),
        "/job:worker/replica:0/task:10/device:CPU:0",
    ]
    first, second, third = (f"/job:worker/task:{index}" for index in (0, 1, 10))
    assert devices.devices_of(first, 2, names) == [f"{first}/device:GPU:{n}" for n in range(2)]
    assert devices.devices_of(second, 1, names) == [f"{second}/device:GPU:0"]
    assert devices.devices_of(second, 2, names) == [f"{second}/device:GPU:0"] * 2
    assert devices.devices_of(third, 2, names) == [f"{third}/device:CPU:{n}" for n in range(2)]
    assert devices.devices_of(third, 1, names) == [f"{third}/device:CPU:0"]
    assert devices.common_devices([first, second], 1, names) == ["/device:GPU:0"]
    assert devices.common_devices([first, second], 2, names) == ["/device:GPU:0"] * 2
    assert devices.common_devices([first, third], 2, names) == ["/device:CPU:0", "/device:CPU:1"]
    assert devices.common_devices([first, third], 1, names) == ["/device:CPU:0"]


@pytest.mark.parametrize(
    ("count", "gpus", "text"),
    [
        (1, 1, "GPU:0"),
        (2, 2, "GPU:0 and GPU:1"),
        (3, 3, "GPU:0, GPU:1 and GPU:2"),
        (1, 4, "GPU:0 of 4 GPUs: --devices=4 takes all"),
        (2, 1, "GPU:0 for 2 devices: it has no more"),
        (5, 2, "GPU:0 and GPU:1 in turn for 5 devices: it has no more"),
        (1, 0, "CPU:0: it has no GPU"),
        (2, 0, "CPU:0 and CPU:1: it has no GPU"),
    ],
)
def test_a_line_says_which_devices_compute(count: int, gpus: int, text: str) -> None:
    """And why not others."""
    names = [f"/job:worker/task:0/device:{kind}:{n}" for n in range(gpus) for kind in ("GPU",)]
    chosen = devices.devices_of("/job:worker/task:0", count, names)
    assert len(chosen) == count and devices.described(chosen, gpus) == text


@pytest.mark.parametrize("hidden", ["", "-1"])
def test_hidden_gpus_are_told_as_hidden(monkeypatch: pytest.MonkeyPatch, hidden: str) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    monkeypatch.setattr(tf.test, "is_built_with_gpu_support", lambda: True)
    assert devices.why_no_gpu() == f"CUDA_VISIBLE_DEVICES={hidden} hides its GPUs"
