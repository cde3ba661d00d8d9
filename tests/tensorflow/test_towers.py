"""Training on several devices of one machine, from TFRecord files that `convert` made."""

from __future__ import annotations

import pathlib
import re
import signal

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.support.budgets import soak
from tests.support.lazily import checkpoint, convolution, model, parameters, tf
from tests.support.trainer_tasks import ACCURACY, Tasks


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
    for devices in (1, 2):
        logdir = tmp_path / str(devices)
        runs.append(
            tasks.run(
                "towers",
                f"--model={network.name}",
                f"--devices={devices}",
                f"--batch={60 // devices}",
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
