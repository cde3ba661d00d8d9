"""Data sets, the network, checkpoints and the evaluator."""

from __future__ import annotations

import gzip
import pathlib
import re
import subprocess
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.support.digits import example_directory
from tests.support.lazily import checkpoint, convolution, evaluate, model, parameters, tf
from tests.support.trainer_tasks import OWN_DISKS, Cluster, Tasks
from trainer import data
from trainer.data import digits, idx
from trainer.exceptions import CheckpointError, DataError
from trainer.flags import parse


def test_embedded_digits_are_whole() -> None:
    """All 1,797 digits, scaled to 28×28 bytes, split without overlap."""
    dataset = data.load(None)
    assert len(dataset.train) + len(dataset.test) == 1797
    assert dataset.train.images.shape == (len(dataset.train), 784)
    assert dataset.train.images.dtype == np.uint8
    assert set(np.unique(dataset.test.labels)) == set(range(10))
    assert dataset.train.images.max() == 255 and dataset.train.images.min() == 0


def test_enlarging_keeps_the_picture() -> None:
    """A flat image stays flat, and a gradient runs from end to end without a jump."""
    assert (digits.enlarge(np.full((1, 8, 8), 16, np.uint8), 28) == 255).all()
    ramp = np.tile(np.arange(8, dtype=np.uint8) * 2, (1, 8, 1))
    row = digits.enlarge(ramp, 28)[0, 14].astype(int)
    assert row[0] == 0 and row[-1] == round(14 * 255 / 16)
    assert (np.diff(row) >= 0).all() and np.diff(row).max() <= 10


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_idx_directory_plain_and_gzipped(tmp_path: pathlib.Path, suffix: str) -> None:
    """What was written as IDX is read back, byte for byte."""
    dataset = data.load(str(example_directory(tmp_path / "data", suffix)))
    images, labels = digits.load()
    np.testing.assert_array_equal(dataset.train.images, images[:50])
    np.testing.assert_array_equal(dataset.test.labels, labels[50:70])


def _cut(path: pathlib.Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def _cut_header(path: pathlib.Path) -> None:
    path.write_bytes(path.read_bytes()[:6])


def _empty(path: pathlib.Path) -> None:
    path.write_bytes(b"")


def _lengthen(path: pathlib.Path) -> None:
    path.write_bytes(path.read_bytes() + b"x")


def _magic(path: pathlib.Path) -> None:
    path.write_bytes(b"\x00\x00\x08\x04" + path.read_bytes()[4:])


def _half_gzip(path: pathlib.Path) -> None:
    path.write_bytes(gzip.compress(path.read_bytes())[:-20])


def _directory(path: pathlib.Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("stem", "harm", "message"),
    [
        ("train-images-idx3", _cut, "truncated: 39197 bytes of images, the header promises 39200"),
        ("train-images-idx3", _lengthen, "too long: 39201 bytes"),
        ("train-images-idx3", _cut_header, "truncated: 6 bytes, the header alone has 16"),
        ("train-labels-idx1", _empty, "truncated: 0 bytes, the header alone has 8"),
        ("t10k-images-idx3", _magic, "magic number 0x00000804 is not that of IDX images"),
        ("t10k-labels-idx1", _magic, "magic number 0x00000804 is not that of IDX labels"),
        ("t10k-labels-idx1", _half_gzip, "broken or truncated gzip"),
        ("t10k-labels-idx1", pathlib.Path.unlink, "no t10k-labels-idx1-ubyte and no"),
        ("t10k-labels-idx1", _directory, "no t10k-labels-idx1-ubyte and no"),
    ],
)
def test_a_broken_file_is_named(
    tmp_path: pathlib.Path, stem: str, harm: Callable[[pathlib.Path], None], message: str
) -> None:
    """A broken file is an error of one line with its path and the reason."""
    directory = example_directory(tmp_path / "data")
    harm(directory / f"{stem}-ubyte")
    with pytest.raises(DataError) as raised:
        data.load(str(directory))
    assert message in str(raised.value) and str(directory) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_labels_that_do_not_belong_to_the_images(tmp_path: pathlib.Path) -> None:
    """Another number of labels than images, a label above 9, and other image sizes are refused."""
    directory = example_directory(tmp_path / "data")
    labels = directory / "train-labels-idx1-ubyte"
    idx.write(labels, np.zeros(49, np.uint8))
    with pytest.raises(DataError, match=r"49 labels for the 50 images of .*train-images"):
        data.load(str(directory))
    idx.write(labels, np.full(50, 10, np.uint8))
    with pytest.raises(DataError, match="label 10 of example 0 is not a digit"):
        data.load(str(directory))
    example_directory(directory)
    idx.write(directory / "train-images-idx3-ubyte", np.zeros((50, 8, 8), np.uint8))
    with pytest.raises(DataError, match="64 pixels an image, expected 784"):
        data.load(str(directory))


def test_the_tutorials_single_record_files(tmp_path: pathlib.Path) -> None:
    """One `output.tfrecords` or `train.tfrecords`, without shards, is read; a missing file is told
    with the names that were looked for."""
    from trainer.data import tfrecord

    images, labels = digits.load()
    made = tfrecord.write_one(tmp_path, "train", data.Split(images[:50], labels[:50]))
    made.rename(tmp_path / "output.tfrecords")
    with pytest.raises(DataError, match=r"no test-NNNNN-of-NNNNN\.tfrecord and no test\.tfrecords"):
        data.load(str(tmp_path))
    tfrecord.write_one(tmp_path, "test", data.Split(images[50:70], labels[50:70])).rename(
        tmp_path / "test.tfrecords"
    )
    dataset = data.load(str(tmp_path))
    assert isinstance(dataset.train, data.Records) and len(dataset.train) == 50
    (tmp_path / "output.tfrecords").rename(tmp_path / "train.tfrecords")
    np.testing.assert_array_equal(
        data.load(str(tmp_path), in_memory=True).train.images, images[:50]
    )
    content = (tmp_path / "train.tfrecords").read_bytes()
    (tmp_path / "train.tfrecords").write_bytes(content[:-7])
    with pytest.raises(DataError, match=r"train\.tfrecords: truncated record"):
        data.load(str(tmp_path))


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        ("feature", "image_raw"),
        ("label 256", "label 256 is not a digit"),
        ("label -1", "label -1 is not a digit"),
        ("pixels", "64 pixels an image, expected 784"),
    ],
)
@pytest.mark.parametrize("stem", ["train", "test"])
def test_records_of_something_else_are_named(
    tmp_path: pathlib.Path, stem: str, harm: str, message: str
) -> None:
    """Other features, labels that are no digits and images of another size: one line, the path."""
    import tensorflow as tf

    from trainer.data import tfrecord

    images, labels = digits.load()
    for name in ("train", "test"):
        path = tfrecord.write_one(tmp_path, name, data.Split(images[:20], labels[:20]))
        if name != stem:
            continue
        image = images[0][:64] if harm == "pixels" else images[0]
        label = int(harm.split()[1]) if "label" in harm else 3
        example = tfrecord._example(image, label)
        if harm == "feature":
            example = example.replace(b"image_raw", b"image/raw")
        with tf.io.TFRecordWriter(str(path)) as writer:
            writer.write(example)
    with pytest.raises(DataError) as raised:
        data.load(str(tmp_path))
    assert message in str(raised.value) and f"{stem}.tfrecords" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_the_record_pipeline_reads_everything_in_every_epoch(tmp_path: pathlib.Path) -> None:
    """In another order each time, in full batches, and without the data set in memory."""
    from trainer.data import tfrecord

    images, labels = digits.load()
    tfrecord.write(tmp_path, "train", data.Split(images[:60], labels[:60]), 3)
    batches = iter(tfrecord.pipeline(tfrecord.records(tmp_path, "train"), 20, seed=1))
    epochs = []
    for _ in range(2):
        read = [next(batches) for _ in range(3)]
        epochs.append([image.tobytes() for pictures, _ in read for image in pictures.numpy()])
    assert all(sorted(epoch) == sorted(i.tobytes() for i in images[:60]) for epoch in epochs)
    assert epochs[0] != epochs[1]


def test_a_missing_directory_is_named(tmp_path: pathlib.Path) -> None:
    """A path that is not there, or is a file, is named."""
    with pytest.raises(DataError, match="absent: no such directory"):
        data.load(str(tmp_path / "absent"))
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DataError, match="file: not a directory"):
        data.load(str(tmp_path / "file"))


def test_to_records_and_back(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The IDX files that are made of records have the same digits; nothing is overwritten."""
    from trainer import convert, flags

    def run(source: pathlib.Path, target: str, *words: str) -> pathlib.Path:
        argv = ["convert", f"--data={source}", f"--to={tmp_path / target}", *words]
        assert convert.run(flags.parse(argv)[1]) == 0
        assert "50 training and 20 test images" in capsys.readouterr().out
        return tmp_path / target

    directory = example_directory(tmp_path / "data")
    single = run(directory, "single", "--names=tutorials")
    names = ["output.tfrecords", "test.tfrecords", "train.tfrecords"]
    assert sorted(path.name for path in single.iterdir()) == names  # the tutorials'
    assert len({(single / name).read_bytes() for name in names}) == 2
    records = run(directory, "records", "--shards=3")
    assert len(list(records.glob("train-*-of-00003.tfrecord"))) == 3
    again = run(records, "again", "--format=idx")
    made, first = (data.load(str(folder)).train for folder in (again, directory))
    pairs = (sorted(zip(map(bytes, s.images), s.labels, strict=True)) for s in (made, first))
    assert next(pairs) == next(pairs)
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte\.gz: already exists"):
        run(records, "again", "--format=idx")


def test_learning_rate_falls_once_an_epoch() -> None:
    """Start value times decay to the power of epochs, and between epochs in between."""
    schedule = model.Schedule(start=0.8, decay=0.5, epoch=100)
    assert schedule(0) == 0.8
    assert schedule(100) == pytest.approx(0.4)
    assert schedule(300) == pytest.approx(0.1)
    assert schedule(50) == pytest.approx(0.8 / 2**0.5)
    assert float(schedule(tf.constant(50.0))) == pytest.approx(schedule(50))


def test_moving_average_counts_as_tensorflow_does() -> None:
    """With an update at every step it is TensorFlow's own moving average."""
    values = np.random.default_rng(0).standard_normal(200).astype(np.float32)
    variable = tf.Variable(0.0)
    reference = tf.train.ExponentialMovingAverage(0.9)
    reference.apply([variable])  # makes the shadow, with the value 0
    shadow = 0.0
    for step, value in enumerate(values):
        variable.assign(value)
        stepwise = tf.train.ExponentialMovingAverage(0.9, num_updates=step)
        stepwise._averages = reference._averages
        stepwise.apply([variable])
        shadow += float(model.average_share(0.9, step, step - 1)) * (float(value) - shadow)
    assert shadow == pytest.approx(float(reference.average(variable)), abs=1e-5)


def test_moving_average_of_several_steps_at_once() -> None:
    """One update for ten steps is ten updates with an unchanged weight; none for no step."""
    shadow, weight = 2.0, 5.0
    for _ in range(10):
        shadow = 0.99 * shadow + 0.01 * weight
    assert 2.0 + float(model.average_share(0.99, 5000, 4990)) * 3.0 == pytest.approx(shadow)
    assert float(model.average_share(0.99, 7, 7)) == 0
    assert float(model.average_share(0.99, 0, -1)) == pytest.approx(0.9)


def test_first_weights() -> None:
    """Normal with deviation 0.1 cut at 0.2, zero biases, the same for the same seed."""
    first = model.MLP.initial(1)
    assert [value.shape for value in first] == list(model.MLP.shapes)
    assert np.abs(first[0]).max() <= 0.2
    assert first[0].std() == pytest.approx(0.088, abs=0.001)  # 0.1 cut at two deviations
    assert not first[1].any() and not first[3].any()
    np.testing.assert_array_equal(first[2], model.MLP.initial(1)[2])
    assert not np.array_equal(first[2], model.MLP.initial(2)[2])


def test_loss_and_gradients_match_numpy() -> None:
    """Loss, L2 term and gradients are those that NumPy gives for the same batch."""
    dataset = data.load(None)
    images, labels = dataset.train.images[:20], dataset.train.labels[:20]
    weights = model.MLP.initial(3)
    l2 = 0.01
    pixels = images.astype(np.float64) / 255
    hidden = np.maximum(pixels @ weights[0] + weights[1], 0)
    scores = hidden @ weights[2] + weights[3]
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    expected = -np.log(shares[rows, labels]).mean()
    expected += l2 * ((weights[0] ** 2).sum() + (weights[2] ** 2).sum()) / 2
    error = shares.copy()
    error[rows, labels] -= 1
    error /= len(labels)
    back = (error @ weights[2].T) * (hidden > 0)
    gradients = [
        pixels.T @ back + l2 * weights[0],
        back.sum(axis=0),
        hidden.T @ error + l2 * weights[2],
        error.sum(axis=0),
    ]
    tensors = [tf.constant(weight) for weight in weights]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        loss = model.MLP.loss(tensors, images, labels, l2)
    assert float(loss) == pytest.approx(expected, rel=1e-5)
    for found, wanted in zip(tape.gradient(loss, tensors), gradients, strict=True):
        np.testing.assert_allclose(found.numpy(), wanted, atol=1e-5)
    right = (scores.argmax(axis=1) == labels).mean()
    assert float(model.MLP.accuracy(tensors, images, labels)) == pytest.approx(right)


@pytest.mark.skipif(not OWN_DISKS, reason="mounts need root")
def test_checkpoints_are_on_the_chiefs_disk_alone(tasks: Tasks, tmp_path: pathlib.Path) -> None:
    """Whole checkpoints although each ps sees another, unwritable disk, as in all tests of a
    training that saves; restored from there too."""
    logdir = tmp_path / "logdir"
    for steps in (40, 80):
        flags = (f"--steps={steps}", f"--logdir={logdir}")
        cluster = Cluster(tasks, "async", *flags, ps=2, worker=1)
        for index in range(2):
            ps = cluster.start("ps", index)
            ps.says("ps:")
            mounts = pathlib.Path(f"/proc/{ps.process.pid}/mounts").read_text()
            assert f"tmpfs {logdir} tmpfs ro" in mounts
        chief = cluster.start("worker")
        assert chief.wait() == 0
        reader = tf.train.load_checkpoint(str(logdir / f"model.ckpt-{steps}"))
        assert reader.get_tensor("hidden/weights").shape == (784, 500)
        assert reader.get_tensor("hidden/biases/average").shape == (500,)
    assert f"restored step 40 from {logdir}/model.ckpt-40" in chief.text


@pytest.mark.skipif(not OWN_DISKS, reason="mounts need root")
def test_a_full_disk_is_named(tasks: Tasks, tmp_path: pathlib.Path) -> None:
    """A disk that has room for one checkpoint: the second is an error of one line.

    It names the path and the reason, and the first checkpoint is intact.
    """
    logdir = tmp_path / "logdir"
    logdir.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=5m", "tmpfs", logdir], check=True)
    try:
        flags = ("--steps=100000", "--save-secs=1", f"--logdir={logdir}")
        cluster = Cluster(tasks, "async", *flags, ps=1, worker=1)
        cluster.start("ps")
        chief = cluster.start("worker")
        assert chief.wait() == 1
        last = chief.complaint
        assert re.fullmatch(
            rf"trainer: {logdir}/model\.ckpt-\d+: cannot save: .*[Nn]o space left.*", last
        )
        newest = tf.train.latest_checkpoint(str(logdir))
        assert checkpoint.read(newest) == ("test-run", 0)
        assert tf.train.load_checkpoint(newest).get_tensor("output/weights").shape == (500, 10)
    finally:
        subprocess.run(["umount", logdir], check=True)


def checkpoints(logdir: pathlib.Path, network: model.Model) -> checkpoint.Checkpoints:
    """Checkpoints of a process that has just been started."""
    return checkpoint.Checkpoints(network, parse(["towers", f"--logdir={logdir}"])[1])


def values(step: int, network: model.Model) -> parameters.Values:
    zeros = [np.zeros(shape, np.float32) for shape in network.shapes]
    return parameters.Values(step, zeros, zeros, zeros if network.momentum else [])


def test_a_restarted_chief_removes_old_checkpoints(tmp_path: pathlib.Path) -> None:
    """The chief counts checkpoints of the process before it: the newest are kept."""
    for first in (0, 3, 6):
        again = checkpoints(tmp_path, model.MLP)
        for step in range(first, first + 3):
            again.save(values(step, model.MLP))
    kept = {int(path.stem.rpartition("-")[2]) for path in tmp_path.glob("*.index")}
    assert kept == set(range(9 - checkpoint.KEEP, 9))


@pytest.mark.parametrize("first", ["cnn", "mlp"])
def test_a_checkpoint_of_another_model(tmp_path: pathlib.Path, first: str) -> None:
    """The other model is named; some weights of both networks have the same names."""
    networks = (convolution.CNN, model.MLP)
    written, read = networks if first == "cnn" else networks[::-1]
    checkpoints(tmp_path, written).save(values(7, written))
    with pytest.raises(CheckpointError, match=rf"{tmp_path}/model.ckpt-7: .* another model: .*"):
        checkpoints(tmp_path, read).load(f"{tmp_path}/model.ckpt-7")


class Written:
    """A directory in which the newest checkpoint is named only after some looks."""

    def __init__(self, after: int) -> None:
        self.looks = -after

    def find(self) -> str | None:
        self.looks += 1
        if self.looks <= 0:
            raise CheckpointError("checkpoint: no such file; there is model.ckpt-0")
        return "model.ckpt-0"

    def load(self, path: str) -> str:
        return f"what stands in {path}"


def test_a_checkpoint_that_is_just_being_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its data comes first, the file that names it last: it is looked for once more."""
    waited: list[float] = []
    monkeypatch.setattr(time, "sleep", waited.append)
    newest: Callable[[Any], object] = evaluate._newest
    assert newest(Written(1)) == "what stands in model.ckpt-0" and len(waited) == 1
    with pytest.raises(CheckpointError, match="no such file"):
        newest(Written(2))
