"""Data sets: the embedded one, IDX directories, and what is wrong with broken ones."""

from __future__ import annotations

import gzip
import pathlib
from collections.abc import Callable

import numpy as np
import pytest

from tests.support.digits import example_directory
from trainer import data
from trainer.data import digits, idx
from trainer.exceptions import DataError


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
