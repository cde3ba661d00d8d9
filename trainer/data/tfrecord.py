"""Reads and writes digits as sharded TFRecord files, `train-00000-of-00004.tfrecord` and so on.

An example has the features `image_raw` (the pixels' bytes), `label` and `pixels` (their number),
which is what TensorFlow's MNIST tutorials wrote.
"""

from __future__ import annotations

import pathlib
import re
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from trainer.data import PIXELS, Records
from trainer.errors import DataError, reason

_SHARD = re.compile(r"-(?P<number>\d{5})-of-(?P<count>\d{5})\.tfrecords?")
_BATCH = 1000
_PARALLEL = 2
_SHUFFLED = 10000
_FEATURES = {
    "image_raw": tf.io.FixedLenFeature((), tf.string),
    "label": tf.io.FixedLenFeature((), tf.int64),
    "pixels": tf.io.FixedLenFeature((), tf.int64),
}


def write(
    directory: pathlib.Path,
    stem: str,
    images: NDArray[np.uint8],
    labels: NDArray[np.uint8],
    shards: int,
) -> list[pathlib.Path]:
    """Writes the examples in turn to `shards` files; returns their paths."""
    paths = [
        directory / f"{stem}-{number:05d}-of-{shards:05d}.tfrecord" for number in range(shards)
    ]
    for number, path in enumerate(paths):
        mine = zip(images[number::shards], labels[number::shards], strict=True)
        try:
            with tf.io.TFRecordWriter(str(path)) as writer:
                for image, label in mine:
                    writer.write(_example(image, int(label)))
        except tf.errors.OpError as error:
            raise DataError(f"{path}: cannot write: {reason(error)}") from None
    return paths


def read(directory: pathlib.Path, stem: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """All shards of `stem`: images uint8 (count, pixels) and labels uint8 (count,)."""
    shards = [_read_shard(path) for path in find(directory, stem)]
    widths = {images.shape[1] for images, _ in shards if len(images)}
    if len(widths) > 1:
        raise DataError(f"{directory}: images of {stem} have different sizes: {sorted(widths)}")
    full = [shard for shard in shards if len(shard[0])]
    if not full:
        raise DataError(f"{directory}: the {stem} shards hold no image")
    return np.concatenate([shard[0] for shard in full]), np.concatenate(
        [shard[1] for shard in full]
    )


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
        names += ["output.tfrecords"] if stem == "train" else []
        for name in names:
            if (directory / name).is_file():
                return [directory / name]
        raise DataError(f"{directory}: no {stem}-NNNNN-of-NNNNN.tfrecord and no {names[0]}")
    if len(counts) > 1:
        raise DataError(f"{directory}: {stem} shards of different sets: of {sorted(counts)}")
    missing = set(range(counts.pop())) - set(found)
    if missing:
        raise DataError(
            f"{directory}: {stem} shard {min(missing)} of {len(found) + len(missing)} is missing"
        )
    return [found[number] for number in sorted(found)]


def records(directory: pathlib.Path, stem: str) -> Records:
    """The examples of `stem` without reading them: only their number is counted, and checked."""
    paths = find(directory, stem)
    count = sum(map(_count, paths))
    if not count:
        raise DataError(f"{directory}: the {stem} shards hold no image")
    return Records(tuple(map(str, paths)), count)


def pipeline(records: Records, size: int, seed: int | None) -> Any:
    """Endless batches of images and labels, read from all shards in parallel and shuffled."""
    dataset = tf.data.Dataset.from_tensor_slices(list(records.paths))
    dataset = dataset.shuffle(len(records.paths), seed=seed).interleave(
        tf.data.TFRecordDataset, cycle_length=len(records.paths), num_parallel_calls=_PARALLEL
    )
    dataset = dataset.shuffle(min(_SHUFFLED, len(records)), seed=seed).repeat()
    dataset = dataset.batch(size, drop_remainder=True)

    def parse(serialised: Any) -> tuple[Any, Any]:
        parsed = tf.io.parse_example(serialised, _FEATURES)
        images = tf.io.decode_raw(parsed["image_raw"], tf.uint8)
        return tf.ensure_shape(images, (size, PIXELS)), tf.cast(parsed["label"], tf.uint8)

    parse = tf.autograph.experimental.do_not_convert(parse)
    return dataset.map(parse, num_parallel_calls=_PARALLEL).prefetch(4)


def _count(path: pathlib.Path) -> int:
    """How many records a file has: each is its length in 8 bytes, 4 of checksum, itself, 4 more."""
    count, at = 0, 0
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            while at < size:
                file.seek(at)
                at += 16 + int.from_bytes(file.read(8), "little")
                count += 1
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from None
    if at != size:
        raise DataError(f"{path}: truncated record at {size}")
    return count


def _example(image: NDArray[np.uint8], label: int) -> bytes:
    feature = {
        "image_raw": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image.tobytes()])),
        "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
        "pixels": tf.train.Feature(int64_list=tf.train.Int64List(value=[image.size])),
    }
    example = tf.train.Example(features=tf.train.Features(feature=feature))
    content: bytes = example.SerializeToString()
    return content


def _read_shard(path: pathlib.Path) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    images, labels = [], []
    count = 0
    try:
        for serialised in tf.data.TFRecordDataset(str(path)).batch(_BATCH):
            parsed = tf.io.parse_example(serialised, _FEATURES)
            for raw, pixels in zip(
                parsed["image_raw"].numpy(), parsed["pixels"].numpy(), strict=True
            ):
                if len(raw) != pixels:
                    raise DataError(
                        f"{path}: example {count}: {len(raw)} bytes, but pixels says {pixels}"
                    )
                images.append(np.frombuffer(raw, np.uint8))
                count += 1
            labels.append(parsed["label"].numpy())
    except tf.errors.OpError as error:
        raise DataError(f"{path}: {reason(error)}") from None
    if not images:
        return np.empty((0, 0), np.uint8), np.empty(0, np.uint8)
    all_labels = np.concatenate(labels)
    wrong = (all_labels < 0) | (all_labels > 9)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise DataError(f"{path}: label {all_labels[at]} of example {at} is not a digit")
    if len({len(image) for image in images}) > 1:
        raise DataError(f"{path}: images of different sizes")
    return np.stack(images), all_labels.astype(np.uint8)
