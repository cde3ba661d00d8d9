"""Batches for a graph: examples in a task's memory, or a pipeline that reads TFRecord files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from trainer import data
from trainer.parameters import Setter, variable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trainer.data import Dataset


class MemoryInput:
    """Examples in the memory of the task on `device`, so that a step is fed indices, not images.

    A batch of images is 78 kB through Python and the session at every step; its indices are 400
    bytes.
    """

    def __init__(
        self, device: str, train: data.Split, size: int, seed: int, name: str = ""
    ) -> None:
        self._train = train
        self._batches = data.batches(len(train), size, seed)
        with tf.device(device):
            self._images = variable(f"local{name}/images", train.images.shape, tf.uint8)
            self._labels = variable(f"local{name}/labels", train.labels.shape, tf.uint8)
            self._indices = tf.compat.v1.placeholder(tf.int32, (None, size))
        self.feeds = [self._indices]
        self._set = Setter([self._images, self._labels])

    def load(self, session: Any) -> None:
        """Copies the examples to their task; needed once a session."""
        self._set(session, [self._train.images, self._train.labels])

    def arrays(self, count: int) -> list[NDArray[Any]]:
        """What to feed `feeds` for the next `count` batches."""
        return [np.stack([next(self._batches) for _ in range(count)])]

    def batch(self, number: int) -> tuple[Any, Any]:
        """Images and labels of the batch `number` of those that are fed."""
        with tf.device(self._images.device):
            indices = self._indices[number]
            return tf.gather(self._images, indices), tf.gather(self._labels, indices)


class RecordInput:
    """TFRecord shards as the tutorials read them: in parallel, shuffled, batched, ahead of time.

    Memory holds what is shuffled, not the data set.
    """

    def __init__(self, device: str, train: data.Records, size: int, seed: int) -> None:
        from trainer.data import tfrecord

        with tf.device(device):
            dataset = tfrecord.pipeline(train, size, seed)
            self._iterator = tf.compat.v1.data.make_initializable_iterator(dataset)
        self._device = device
        self.feeds: list[Any] = []

    def load(self, session: Any) -> None:
        """Starts to read; needed once a session."""
        session.run(self._iterator.initializer)

    def arrays(self, count: int) -> list[NDArray[Any]]:
        """Nothing: the batches come by themselves."""
        return []

    def batch(self, number: int) -> tuple[Any, Any]:
        """Images and labels of the next batch."""
        with tf.device(self._device):
            images, labels = self._iterator.get_next()
            return images, labels


def make(
    device: str, dataset: Dataset, size: int, seed: int, name: str = ""
) -> MemoryInput | RecordInput:
    """Batches of `size` from the training data on `device`."""
    if isinstance(dataset.train, data.Records):
        return RecordInput(device, dataset.train, size, seed)
    return MemoryInput(device, dataset.train, size, seed, name)


def pipeline(dataset: Dataset, size: int) -> Any:
    """The same as a `tf.data.Dataset`, shuffled anew by each that reads it."""
    train = dataset.train
    if isinstance(train, data.Records):
        from trainer.data import tfrecord

        return tfrecord.pipeline(train, size, None)
    indices = tf.data.Dataset.range(len(train)).shuffle(len(train)).repeat().batch(size)
    images, labels = tf.constant(train.images), tf.constant(train.labels)
    return indices.map(lambda at: (tf.gather(images, at), tf.gather(labels, at))).prefetch(2)


def cut(batch: tuple[Any, Any], devices: list[str]) -> list[tuple[Any, Any]]:
    """A batch cut into one a device."""
    if len(devices) == 1:
        return [batch]
    images, labels = (tf.split(part, len(devices)) for part in batch)
    return list(zip(images, labels, strict=True))
