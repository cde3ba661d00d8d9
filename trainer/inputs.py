"""Batches of the training data: a `tf.data` pipeline, and its iterator in a graph."""

from typing import Any

import tensorflow as tf

from trainer.data import Dataset, Records, Split


def pipeline(dataset: Dataset, size: int, seed: int | None, arrays: Any = None) -> Any:
    """Endless shuffled batches of images and labels, from memory or from TFRecord files.

    Examples in memory are picked by shuffled indices out of `arrays`, images and labels.
    """
    train = dataset.train
    if isinstance(train, Records):
        from trainer.data import tfrecord

        return tfrecord.pipeline(train, size, seed)
    images, labels = arrays or (tf.constant(train.images), tf.constant(train.labels))

    # Without AutoGraph, whose generated files a killed task would leave behind in /tmp.
    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def pick(indices: Any) -> tuple[Any, Any]:
        return tf.gather(images, indices), tf.gather(labels, indices)

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def shuffled(number: Any) -> Any:
        return tf.random.experimental.stateless_shuffle(tf.range(len(train)), (number, 0))

    # Whole epochs are shuffled and then cut: `shuffle` would move each index by itself.
    epochs = tf.data.Dataset.random(seed).map(shuffled)
    return epochs.rebatch(size, drop_remainder=True).map(pick).prefetch(2)


def parts(batch: tuple[Any, Any], count: int) -> list[tuple[Any, Any]]:
    """Images and labels of a batch, cut into `count` equal parts."""
    if count == 1:
        return [batch]
    images, labels = batch
    return list(zip(tf.split(images, count), tf.split(labels, count), strict=True))


class Input:
    """Numbered batches on `device`, whose task holds the examples: none is fed at a step.

    A batch has `size` examples in equal `parts`.
    """

    def __init__(self, device: str, dataset: Dataset, size: int, seed: int, parts: int = 1) -> None:
        self._device, self._parts = device, parts
        self._feed: dict[Any, Any] = {}
        with tf.device(device):
            if isinstance(dataset.train, Split):
                held = (dataset.train.images, dataset.train.labels)
                self._feed = {tf.compat.v1.placeholder(tf.uint8, one.shape): one for one in held}
            batches = pipeline(dataset, size, seed, tuple(self._feed)).enumerate()
            self._iterator = tf.compat.v1.data.make_initializable_iterator(batches)

    def load(self, session: Any) -> None:
        """Brings the examples to their task and starts from batch 0; needed once a session."""
        session.run(self._iterator.initializer, self._feed)

    def batches(self, count: int) -> list[tuple[Any, list[tuple[Any, Any]]]]:
        """Number, and the images and labels of each part, of the next `count` batches in order."""
        batches: list[tuple[Any, list[tuple[Any, Any]]]] = []
        for _ in range(count):
            with tf.device(self._device), tf.control_dependencies([one for one, _ in batches[-1:]]):
                number, batch = self._iterator.get_next()
                batches.append((number, parts(batch, self._parts)))
        return batches
