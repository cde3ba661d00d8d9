"""Digits to train and test on: 28×28 grey images as bytes, and their labels."""

import dataclasses
import pathlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainer.data import digits, idx
from trainer.exceptions import DataError

SIDE = digits.SIDE
PIXELS = SIDE * SIDE


@dataclasses.dataclass(frozen=True)
class Split:
    """Examples in memory: `images` uint8 (count, 784) of 0–255, `labels` uint8 (count,)."""

    images: NDArray[np.uint8]
    labels: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.labels)


@dataclasses.dataclass(frozen=True)
class Records:
    """Examples in TFRecord files that are read while they are needed."""

    paths: tuple[str, ...]
    count: int

    def __len__(self) -> int:
        return self.count


@dataclasses.dataclass(frozen=True)
class Dataset:
    """Examples that a run trains on and is tested on. `name` is for people."""

    name: str
    train: Any  # Split or Records
    test: Split


def load(path: str | None, in_memory: bool = False) -> Dataset:
    """The data set in directory `path`, or the embedded digits when it is None.

    A directory holds MNIST's four IDX files, or TFRecord files whose names begin with `train` and
    `test`; the training examples in these are read while they are needed, unless `in_memory`.

    Raises:
        DataError: Missing, broken, or images and labels that do not belong together.
    """
    if path is None:
        images, labels = digits.load()
        test = np.arange(len(labels)) % digits.TEST_EVERY == 0
        splits = [Split(images[chosen], labels[chosen]) for chosen in (~test, test)]
        return Dataset("embedded digits", *splits)
    directory = pathlib.Path(path).expanduser()
    if not directory.is_dir():
        reason = "not a directory" if directory.exists() else "no such directory"
        raise DataError(f"{directory}: {reason}")
    if not any(directory.glob("*.tfrecord*")):
        return Dataset(str(directory), *(_idx_split(directory, stem) for stem in ("train", "t10k")))
    from trainer.data import tfrecord  # needs TensorFlow, as reading IDX does not

    train = (tfrecord.read if in_memory else tfrecord.records)(directory, "train")
    return Dataset(str(directory), train, tfrecord.read(directory, "test"))


def _idx_split(directory: pathlib.Path, stem: str) -> Split:
    images_path = idx.find(directory, f"{stem}-images-idx3-ubyte")
    labels_path = idx.find(directory, f"{stem}-labels-idx1-ubyte")
    split = Split(idx.read_images(images_path), idx.read_labels(labels_path))
    if (count := len(split.images)) != len(split):
        raise DataError(
            f"{labels_path}: {len(split)} labels for the {count} images of {images_path}"
        )
    return _checked(split, str(images_path))


def _checked(split: Split, where: str) -> Split:
    """The examples, when there are some and their images are as large as they must be."""
    if not len(split):
        raise DataError(f"{where}: contains no images")
    if split.images.shape[1] != PIXELS:
        raise DataError(f"{where}: {split.images.shape[1]} pixels an image, expected {PIXELS}")
    return split
