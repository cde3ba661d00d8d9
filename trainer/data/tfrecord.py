"""Reads and writes digits as sharded TFRecord files, `train-00000-of-00004.tfrecord` and so on, or
as the single files that tutorials read, `train.tfrecords` and `test.tfrecords`.

An example has the features `image_raw` (the pixels' bytes), `label` and `pixels` (their number),
which is what TensorFlow's MNIST tutorials wrote.
"""

import contextlib
import pathlib
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from trainer.data import PIXELS, Records, Split
from trainer.data.idx import CLASSES
from trainer.exceptions import DataError, reason

_SHARD = re.compile(r"-(?P<number>\d{5})-of-(?P<count>\d{5})\.tfrecords?")
OUTPUT = "output.tfrecords"
"""What some tutorials call the file to train on."""
_BATCH = 1000
_PARALLEL = 2
_SHUFFLED = 10000
_FEATURES = {
    "image_raw": tf.io.FixedLenFeature((), tf.string),
    "label": tf.io.FixedLenFeature((), tf.int64),
}


def write(directory: pathlib.Path, stem: str, split: Split, shards: int) -> None:
    """Writes the examples in turn to `shards` files."""
    for number in range(shards):
        path = directory / f"{stem}-{number:05d}-of-{shards:05d}.tfrecord"
        _write(path, split, range(number, len(split), shards))


def write_one(directory: pathlib.Path, stem: str, split: Split) -> pathlib.Path:
    """Writes the examples to the single file that tutorials read; returns its path."""
    path = directory / f"{stem}.tfrecords"
    _write(path, split, range(len(split)))
    return path


def _write(path: pathlib.Path, split: Split, places: range) -> None:
    with _naming(path), tf.io.TFRecordWriter(str(path)) as writer:
        for at in places:
            writer.write(_example(split.images[at], int(split.labels[at])))


def read(directory: pathlib.Path, stem: str) -> Split:
    """The examples of all shards of `stem`."""
    parts = [_decoded(path, batch) for path in find(directory, stem) for batch in _batches(path)]
    if not parts:
        raise DataError(f"{directory}: the {stem} shards contain no images")
    images, labels = zip(*parts, strict=True)
    return Split(np.concatenate(images), np.concatenate(labels))


def records(directory: pathlib.Path, stem: str) -> Records:
    """The examples of `stem`, which stay on disk; they are counted, their checksums verified, and
    each file's first ones decoded."""
    paths, count = find(directory, stem), 0
    for path in paths:
        for number, batch in enumerate(_batches(path)):
            if number == 0:
                _decoded(path, batch)
            count += len(batch)
    if not count:
        raise DataError(f"{directory}: the {stem} shards contain no images")
    return Records(tuple(map(str, paths)), count)


def find(directory: pathlib.Path, stem: str) -> list[pathlib.Path]:
    """The paths of all shards of `stem`, in order, or the single file that tutorials write."""
    found: dict[int, pathlib.Path] = {}
    counts = set()
    for path in sorted(directory.glob(f"{stem}-*.tfrecord*")):
        if match := _SHARD.fullmatch(path.name.removeprefix(stem)):
            found[int(match["number"])] = path
            counts.add(int(match["count"]))
    if not found:
        names = [f"{stem}.tfrecords", f"{stem}.tfrecord"]
        names += [OUTPUT] if stem == "train" else []
        for name in names:
            if (directory / name).is_file():
                return [directory / name]
        raise DataError(f"{directory}: no {stem}-NNNNN-of-NNNNN.tfrecord and no {names[0]}")
    if len(counts) > 1:
        raise DataError(f"{directory}: {stem} shards of different sets: of {sorted(counts)}")
    (count,) = counts
    if missing := set(range(count)) - set(found):
        raise DataError(f"{directory}: {stem} shard {min(missing)} of {count} is missing")
    return [found[number] for number in sorted(found)]


def pipeline(records: Records, size: int, seed: int | None) -> Any:
    """Endless batches of images and labels, read from all shards in parallel and shuffled."""
    dataset = tf.data.Dataset.from_tensor_slices(list(records.paths))
    dataset = dataset.shuffle(len(records.paths), seed=seed).interleave(
        tf.data.TFRecordDataset, cycle_length=len(records.paths), num_parallel_calls=_PARALLEL
    )
    dataset = dataset.shuffle(min(_SHUFFLED, len(records)), seed=seed).repeat()
    dataset = dataset.batch(size, drop_remainder=True)
    return dataset.map(_parse, num_parallel_calls=_PARALLEL).prefetch(4)


@tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
def _parse(serialised: Any) -> tuple[Any, Any]:
    """Images, uint8, and labels, int64, of a batch of serialised examples."""
    parsed = tf.io.parse_example(serialised, _FEATURES)
    images = tf.io.decode_raw(parsed["image_raw"], tf.uint8)
    return images, parsed["label"]


def _decoded(path: pathlib.Path, serialised: Any) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Images and labels of a batch of `path`, which are checked."""
    with _naming(path):
        images, labels = (part.numpy() for part in _parse(serialised))
    if images.shape[1] != PIXELS:
        raise DataError(f"{path}: {images.shape[1]} pixels an image, expected {PIXELS}")
    if (wrong := labels[(labels < 0) | (labels >= CLASSES)]).size:
        raise DataError(f"{path}: label {wrong[0]} is not a digit")
    return images, labels.astype(np.uint8)


def _example(image: NDArray[np.uint8], label: int) -> bytes:
    def integer(value: int) -> Any:
        return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))

    pixels = tf.train.Feature(bytes_list=tf.train.BytesList(value=[image.tobytes()]))
    feature = {"image_raw": pixels, "label": integer(label), "pixels": integer(image.size)}
    features = tf.train.Features(feature=feature)
    return bytes(tf.train.Example(features=features).SerializeToString())


def _batches(path: pathlib.Path) -> Iterator[Any]:
    """Batches of serialised `tf.train.Example`s: string tensors of shape [at most _BATCH]."""
    with _naming(path):
        yield from tf.data.TFRecordDataset(str(path)).batch(_BATCH)


@contextlib.contextmanager
def _naming(path: pathlib.Path) -> Iterator[None]:
    """Names `path` in an error of TensorFlow about it."""
    try:
        yield
    except tf.errors.OpError as error:
        raise DataError(f"{path}: {reason(error)}") from None
