"""Synchronous, in-graph and towers' training with real processes."""

from __future__ import annotations

import json
import pathlib
import re
import signal

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.support.budgets import soak
from tests.support.lazily import checkpoint, convolution, devices, inputs, model, parameters, tf
from tests.support.trainer_tasks import ACCURACY, ACCURATE, STARTED, STEPS, Cluster, Task, Tasks
from trainer import data
from trainer.flags import parse

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


def test_mean_of_gradients() -> None:
    """The mean of the towers' gradients is that of NumPy, entry by entry."""
    values = np.random.default_rng(0).standard_normal((3, 4, 5)).astype(np.float32)
    mean = parameters.mean([tf.constant(value) for value in values])
    np.testing.assert_allclose(mean.numpy(), values.mean(axis=0), rtol=1e-6)


@pytest.mark.parametrize("name", ["mlp", soak("cnn")])
def test_two_devices_are_one_device_with_twice_the_batch(
    tasks: Tasks, tmp_path: pathlib.Path, name: str
) -> None:
    """Two towers of 30 give the same weights as one of 60.

    After few steps for the CNN: a rounding that turns the choice of one maximum sets it on another
    path, which for some seeds happens within 20 steps.
    """
    network, steps = (model.MLP, 20) if name == "mlp" else (convolution.CNN, 3)
    runs = []
    for count in (1, 2):
        logdir = tmp_path / str(count)
        runs.append(
            tasks.run(
                "towers",
                f"--model={network.name}",
                f"--devices={count}",
                f"--batch={60 // count}",
                f"--steps={steps}",
                f"--logdir={logdir}",
            )
        )
    assert [run.wait() for run in runs] == [0, 0]
    readers = [tf.train.load_checkpoint(str(tmp_path / f"{n}/model.ckpt-{steps}")) for n in (1, 2)]
    for name in network.names:
        one, two = (reader.get_tensor(name) for reader in readers)
        np.testing.assert_allclose(one, two, atol=1e-5)
    lines = re.findall(r"^After \d+ .*examples/sec; epoch \d", runs[0].text, re.M)
    assert len(lines) == steps // 10


@pytest.mark.soak
def test_tfrecords_made_by_convert(
    tasks: Tasks, tmp_path: pathlib.Path, digits_directory: str | None
) -> None:
    """Real digits converted to TFRecord train to 0.95; TensorBoard reads what was summarised."""
    source = [f"--data={digits_directory}"] if digits_directory else []
    records, logdir = tmp_path / "records", tmp_path / "logdir"
    convert = tasks.run("convert", *source, f"--to={records}", "--shards=2")
    assert convert.wait() == 0
    assert len(list(records.glob("*-of-00002.tfrecord"))) == 4
    where = (f"--logdir={logdir}", f"--data={records}")
    flags = ["--devices=2", "--steps=700", "--learning-rate=0.5", *where]
    training = tasks.run("towers", *flags)
    assert training.wait() == 0
    assert training.accuracy >= 0.95
    events = EventAccumulator(str(logdir), size_guidance={"scalars": 0, "histograms": 0})
    events.Reload()
    assert {"loss", "learning rate", "steps per second", "test accuracy"} <= set(
        events.Tags()["scalars"]
    )
    assert {"hidden/weights", "hidden/weights/gradient"} <= set(events.Tags()["histograms"])
    last = events.Scalars("test accuracy")[-1]
    assert last.step == 700 and last.value == pytest.approx(training.accuracy, abs=1e-4)
    weights = tf.train.load_checkpoint(str(logdir / "model.ckpt-700")).get_tensor("hidden/weights")
    histogram = events.Histograms("hidden/weights")[-1]
    assert histogram.step == 700
    assert histogram.histogram_value.sum == pytest.approx(float(weights.sum()), rel=1e-3)


@pytest.mark.prove
def test_updates_one_by_one_and_term(tasks: Tasks, tmp_path: pathlib.Path) -> None:
    """`--update=async` learns too; TERM saves, and the same run goes on from there."""
    flags = ("--devices=2", "--update=async", "--grace=600", f"--logdir={tmp_path / 'l'}")
    training = tasks.run("towers", *flags, "--steps=100000", env={"TFMUX_RUN_ID": "a"})
    training.says(r"\([2-9]\d\d global steps\)")
    training.signal(signal.SIGTERM)
    assert training.wait() == 143
    newest = tf.train.latest_checkpoint(str(tmp_path / "l"))
    _, saved = checkpoint.read(newest)
    assert saved >= 200
    again = tasks.run("towers", *flags, f"--steps={saved + 20}", env={"TFMUX_RUN_ID": "a"})
    assert again.wait() == 0
    assert f"restored step {saved} from {newest}" in again.text
    assert ACCURACY.search(again.text) and again.accuracy > 0.7


@pytest.mark.soak
def test_stale_gradients_overshoot(tasks: Tasks) -> None:
    """At a rate at which one device, and two in step, learn, two devices one by one do not."""
    ways = ("--devices=1", "--devices=2 --update=sync", "--devices=2 --update=async")
    flags = ("--learning-rate=0.5", "--steps=1500", "--log-every=500")
    runs = [tasks.run("towers", *way.split(), *flags) for way in ways]
    assert [run.wait() for run in runs] == [0, 0, 0]
    one, in_step, one_by_one = (run.accuracy for run in runs)
    assert one > 0.9 and in_step > 0.9
    stale = [float(number) for number in re.findall(r"stale ([\d.]+)", runs[2].text)]
    assert len(stale) == 3 and (min(stale) < 0.4 or one_by_one < 0.8)


@pytest.mark.soak
def test_the_tutorials_network(tasks: Tasks) -> None:
    """32 and 64 maps, 1024 hidden units: it trains for epochs, and says examples/sec."""
    flags = ("--model=cnn-tutorial", "--epochs=1", "--batch=64", "--log-every=5")
    training = tasks.run("towers", *flags)
    assert training.wait() == 0
    assert re.search(r"sec/batch\)  \d+ examples/sec; epoch 0\.\d", training.text)
    assert training.accuracy > 0.5


def test_less_than_a_step(tasks: Tasks) -> None:
    """A part of an epoch that is smaller than a batch is one step."""
    training = tasks.run("towers", "--epochs=0.01")
    assert training.wait() == 0
    assert "Done: 1 training steps" in training.text


def test_broken_records_are_named(tasks: Tasks, tmp_path: pathlib.Path) -> None:
    """A wrong checksum, a missing shard, two sets of shards: one line with the path."""
    records = tmp_path / "records"
    assert tasks.run("convert", f"--to={records}").wait() == 0
    shards = sorted(records.glob("train-*"))
    content = bytearray(shards[1].read_bytes())
    content[5000] ^= 1
    shards[1].write_bytes(content)
    runs = [tasks.run("towers", f"--data={records}")]
    assert runs[0].wait() == 1
    assert re.fullmatch(
        rf"trainer: {shards[1]}: corrupted record at \d+", runs[0].text.splitlines()[-1]
    )
    shards[1].unlink()
    missing = tasks.run("towers", f"--data={records}")
    assert missing.wait() == 1
    assert missing.text.splitlines()[-1] == f"trainer: {records}: train shard 1 of 4 is missing"
    again = tasks.run("convert", f"--to={records}")
    assert again.wait() == 1
    assert "already exists" in again.text.splitlines()[-1]


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
