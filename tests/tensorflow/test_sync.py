"""Synchronous training with real processes."""

from __future__ import annotations

import json
import pathlib
import re
import signal

import numpy as np
import pytest

from tests.support.lazily import inputs, model, tf
from tests.support.trainer_tasks import ACCURATE, STARTED, STEPS, Cluster, Task, Tasks
from trainer import data

DONE = re.compile(r"^Done: (?P<local>\d+) training steps \((?P<step>\d+) global", re.MULTILINE)


def local_steps(task: Task) -> int:
    match = DONE.search(task.text)
    assert match, task.text
    return int(match["local"])


def test_replaying_the_aggregated_batches_gives_the_same_weights(
    tasks: Tasks, tmp_path: pathlib.Path
) -> None:
    """One process that averages the gradients of the logged batches gets the same weights.

    The weights stand on two ps. All workers end by themselves, and the global step is the mean of
    their local steps.
    """
    logdir, log = tmp_path / "logdir", tmp_path / "batches"
    flags = ("--steps=20", "--batch=32", "--seed=5", f"--log-batches={log}", f"--logdir={logdir}")
    cluster = Cluster(tasks, "sync", *flags, ps=2, worker=2)
    for index in range(2):
        cluster.start("ps", index)
    workers = [cluster.start("worker", index) for index in range(2)]
    assert [worker.wait() for worker in workers] == [0, 0]
    mean = sum(map(local_steps, workers)) / 2
    assert 20 <= mean <= 21

    dataset = data.load(None)
    sources = [iter(inputs.pipeline(dataset, 32, 5 + worker)) for worker in range(2)]
    batches = [[next(source) for _ in range(30)] for source in sources]
    schedule = model.Schedule(0.2, 0.99, len(dataset.train) / 64)
    weights = [tf.Variable(value) for value in model.MLP.initial(5)]
    records = [json.loads(line) for line in log.read_text().splitlines()]
    assert [record["step"] for record in records] == list(range(1, 21))
    for record in records:
        gradients = []
        for worker, number in record["batches"]:
            with tf.GradientTape() as tape:
                images, labels = batches[worker][number]
                loss = model.MLP.loss(weights, images, labels, 0.0001)
            gradients.append(tape.gradient(loss, weights))
        assert len(gradients) == 2
        rate = schedule(record["step"] - 1)
        for weight, first, second in zip(weights, *gradients, strict=True):
            weight.assign_sub(rate * (first + second) / 2)
    reader = tf.train.load_checkpoint(str(logdir / "model.ckpt-20"))
    for name, weight in zip(model.MLP.names, weights, strict=True):
        np.testing.assert_allclose(reader.get_tensor(name), weight.numpy(), atol=1e-4)


@pytest.mark.soak
def test_backup_workers(tasks: Tasks, tmp_path: pathlib.Path) -> None:
    """With fewer gradients a step than workers, a worker that stands still holds up nobody.

    Its gradients are stale when it goes on; they are dropped, and it ends with the others.
    """
    log = tmp_path / "batches"
    cluster = Cluster(
        tasks,
        "sync",
        "--steps=1500",
        "--replicas-to-aggregate=1",
        "--log-every=10",
        f"--log-batches={log}",
        ps=1,
        worker=2,
    )
    cluster.start("ps")
    chief, slow = cluster.start("worker", 0), cluster.start("worker", 1)
    slow.says("After 10 training")
    slow.signal(signal.SIGSTOP)
    stopped_at = chief.steps[-1] if chief.steps else 0
    chief.until(lambda _: chief.steps and chief.steps[-1] >= min(stopped_at + 500, 1400))
    slow.signal(signal.SIGCONT)
    assert (chief.wait(), slow.wait()) == (0, 0)
    records = [json.loads(line) for line in log.read_text().splitlines()]
    assert all(len(record["batches"]) in (1, 2) for record in records) and len(records) == 1500
    assert local_steps(slow) < 1500 and "gradients dropped" in slow.text


@pytest.mark.soak
def test_a_slow_worker_is_left_behind(tasks: Tasks) -> None:
    """The demo's flags: updates take the first two of three; the slow one's gradients drop.

    It sleeps longer than the others need for a step on a busy machine.
    """
    slow = ("--slow-worker=2", "--slow-secs=0.5")
    flags = ("--steps=300", "--replicas-to-aggregate=2", *slow, "--log-every=10")
    cluster = Cluster(tasks, "sync", *flags, ps=1, worker=3)
    cluster.start("ps")
    workers = [cluster.start("worker", index) for index in range(3)]
    workers[2].says("starts at global step")
    assert [worker.wait() for worker in workers] == [0, 0, 0]
    assert local_steps(workers[2]) < min(map(local_steps, workers[:2]))
    assert workers[0].accuracy > 0.9


@pytest.mark.prove
def test_real_digits(tasks: Tasks, digits: list[str]) -> None:
    """Synchronous training learns real digits, each worker on two logical devices."""
    flags = (f"--steps={STEPS}", "--devices=2", "--batch=25", *digits)
    cluster = Cluster(tasks, "sync", *flags, ps=1, worker=2)
    cluster.start("ps")
    workers = [cluster.start("worker", index) for index in range(2)]
    assert [worker.wait() for worker in workers] == [0, 0]
    assert workers[0].accuracy >= ACCURATE


@pytest.mark.soak
def test_term_saves_and_a_restart_goes_on(tasks: Tasks, tmp_path: pathlib.Path) -> None:
    """TERM to the chief saves although it waits for a gradient; restarted, all go on."""
    logdir = f"--logdir={tmp_path / 'logdir'}"
    flags = ("--steps=100000", "--log-every=10", "--grace=600", logdir)
    cluster = Cluster(tasks, "sync", *flags, ps=1, worker=2)
    cluster.start("ps")
    chief, second = cluster.start("worker", 0), cluster.start("worker", 1)
    chief.says("After 20 training")
    second.signal(signal.SIGKILL)
    second.wait()
    chief.signal(signal.SIGTERM)
    assert chief.wait() == 143
    saved = max(int(path.stem.rpartition("-")[2]) for path in tmp_path.glob("logdir/*.index"))
    assert saved >= chief.steps[-1]
    chief, second = cluster.start("worker", 0), cluster.start("worker", 1)
    for task in (chief, second):
        started = STARTED.search(task.says("After 20 training"))
        assert started and int(started[1]) >= saved


@pytest.mark.prove
def test_a_worker_that_comes_as_the_training_ends_ends_too(
    tasks: Tasks, tmp_path: pathlib.Path
) -> None:
    """The worker has seen a step before the last one, and the chief ends before it begins."""
    flags = ("--steps=5", "--replicas-to-aggregate=1")
    cluster = Cluster(tasks, "sync", *flags, ps=1, worker=2)
    cluster.start("ps")
    gates = [tmp_path / "chief", tmp_path / "late"]
    chief, late = (
        cluster.start("worker", n, env={"GATE": str(gate)}, module="tests.support.gated_start")
        for n, gate in enumerate(gates)
    )
    late.says("waits for its gate")
    gates[0].touch()
    assert chief.wait() == 0
    gates[1].touch()
    assert late.wait(60) == 0


def test_too_many_replicas_to_aggregate(tasks: Tasks) -> None:
    """More gradients a step than workers would wait for ever: a usage error."""
    cluster = Cluster(tasks, "sync", "--replicas-to-aggregate=3", ps=1, worker=2)
    worker = cluster.start("worker")
    assert worker.wait() == 2
    assert worker.text == "trainer: --replicas-to-aggregate=3, but the cluster has 2 workers\n"


def test_batches_that_cannot_be_logged(tasks: Tasks, tmp_path: pathlib.Path) -> None:
    """The chief says so before anything starts."""
    log = tmp_path / "absent" / "batches"
    cluster = Cluster(tasks, "sync", f"--log-batches={log}", ps=1, worker=1)
    chief = cluster.start("worker")
    assert chief.wait() == 2
    assert chief.text == f"trainer: --log-batches={log}: No such file or directory\n"
