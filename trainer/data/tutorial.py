"""`tensorflow.examples.tutorials.mnist.input_data`, which TensorFlow 2 no longer has.

Images are float32 of 0–1, labels uint8 or one-hot, as its users know them. Nothing is downloaded.
"""

import pathlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainer import data
from trainer.data import idx
from trainer.exceptions import DataError

VALIDATION = 5000
MNIST = 60_000
"""Training examples of the whole set, for which programs choose the size of their validation."""


class DataSet:
    """Examples of one split; `next_batch` shuffles at every epoch."""

    def __init__(
        self, split: data.Split, one_hot: bool, dtype: Any, reshape: bool, seed: int | None
    ) -> None:
        self._random = np.random.RandomState(seed)
        as_floats = np.dtype(getattr(dtype, "as_numpy_dtype", dtype)) != np.uint8
        images: NDArray[Any] = split.images
        if as_floats:
            images = np.multiply(images, 1 / 255, dtype=np.float32)
        self._images = images if reshape else images.reshape(-1, data.SIDE, data.SIDE, 1)
        self._labels: NDArray[Any] = np.eye(idx.CLASSES)[split.labels] if one_hot else split.labels
        self._order = np.arange(len(split))
        self._at = 0
        self.epochs_completed = 0

    @property
    def images(self) -> NDArray[Any]:
        return self._images

    @property
    def labels(self) -> NDArray[Any]:
        return self._labels

    @property
    def num_examples(self) -> int:
        return len(self._labels)

    def next_batch(
        self, batch_size: int, fake_data: bool = False, shuffle: bool = True
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """The next images and labels. A batch that ends an epoch goes on with the next one's first
        examples.

        Raises:
            DataError: The split has no examples.
        """
        if not self.num_examples:
            raise DataError("input_data: next_batch of a split that has no examples")
        chosen: list[int] = []
        while len(chosen) < batch_size:
            if self._at == 0 and shuffle:
                self._random.shuffle(self._order)
            more = self._order[self._at : self._at + batch_size - len(chosen)]
            chosen += more.tolist()
            self._at += len(more)
            if self._at == self.num_examples and len(chosen) < batch_size:
                self._at = 0
                self.epochs_completed += 1
        return self._images[chosen], self._labels[chosen]


class Datasets(NamedTuple):
    """The splits that a program trains, stops and is tested on."""

    train: DataSet
    validation: DataSet
    test: DataSet


def read_data_sets(
    train_dir: str,
    fake_data: bool = False,
    one_hot: bool = False,
    dtype: Any = np.float32,
    reshape: bool = True,
    validation_size: int = VALIDATION,
    seed: int | None = None,
    source_url: str = "",
) -> Datasets:
    """Reads MNIST's four IDX files; where TensorFlow 1 would download them, the embedded digits
    take their place. Where validation would take more than half of a small training set, it gets a
    tenth.

    Raises:
        DataError: There are files, but not these four, or they are broken; or the size is wrong.
    """
    if fake_data:
        raise DataError("input_data: fake_data is not part of tf1")
    directory = pathlib.Path(train_dir)
    found = directory.is_dir() and any(directory.iterdir())
    if not found:
        print(f"tf1: no files in {train_dir}, and nothing is downloaded: the embedded digits")
    dataset = data.load(str(directory) if found else None, in_memory=True)
    train = dataset.train
    held, most = validation_size, max(MNIST, len(train))
    if not 0 <= held <= most:
        raise DataError(f"input_data: validation_size is {held}: it must be between 0 and {most}")
    if len(train) < MNIST and held > len(train) // 2:
        held = len(train) // 10
        print(f"tf1: {held} of {len(train)} training examples are for validation")
    splits = (
        data.Split(train.images[held:], train.labels[held:]),
        data.Split(train.images[:held], train.labels[:held]),
        dataset.test,
    )
    return Datasets(*(DataSet(split, one_hot, dtype, reshape, seed) for split in splits))
