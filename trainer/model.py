"""Network as a function of tensors, its learning rate and the moving average of its weights."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from trainer.data import PIXELS

CLASSES = 10


@dataclasses.dataclass(frozen=True)
class Model:
    """A network: its weights' names and shapes, and what it makes of images.

    `scores` takes weights and pixels, float32 (batch, 784) of `low` to `low` + 1; returns logits.
    """

    name: str
    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    scores: Callable[[Any, Any], Any]
    low: float = 0.0
    learning_rate: float = 0.2
    momentum: float = 0.0

    def initial(self, seed: int) -> list[NDArray[np.float32]]:
        """First values: weights normal with deviation 0.1, cut at two deviations; biases zero.

        Drawn by NumPy, so that every mode starts from the same network for the same seed.
        """
        generator = np.random.default_rng(seed)
        values = []
        for shape in self.shapes:
            value = np.zeros(shape, np.float32)
            if len(shape) > 1:
                value = generator.standard_normal(shape, np.float32)
                while (far := np.abs(value) > 2).any():
                    value[far] = generator.standard_normal(int(far.sum()), np.float32)
                value *= np.float32(0.1)
            values.append(value)
        return values

    def logits(self, weights: Any, images: Any) -> Any:
        """Logits, shape (batch, 10), for uint8 `images`, shape (batch, 784)."""
        return self.scores(weights, tf.cast(images, tf.float32) * (1 / 255) + self.low)

    def loss(self, weights: Any, images: Any, labels: Any, l2: float) -> Any:
        """Mean cross entropy of the batch plus `l2` times half the squared weights, not biases."""
        cross_entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels=tf.cast(labels, tf.int32), logits=self.logits(weights, images)
        )
        squares = [tf.nn.l2_loss(weight) for weight in weights if len(weight.shape) > 1]
        return tf.reduce_mean(cross_entropy) + l2 * tf.add_n(squares)

    def accuracy(self, weights: Any, images: Any, labels: Any) -> Any:
        """The share of `images` whose label is the network's first choice."""
        right = tf.math.in_top_k(tf.cast(labels, tf.int32), self.logits(weights, images), 1)
        return tf.reduce_mean(tf.cast(right, tf.float32))


def _mlp(weights: Any, pixels: Any) -> Any:
    hidden_weights, hidden_biases, output_weights, output_biases = weights
    hidden = tf.nn.relu(tf.matmul(pixels, hidden_weights) + hidden_biases)
    return tf.matmul(hidden, output_weights) + output_biases


MLP = Model(
    "mlp",
    ("hidden/weights", "hidden/biases", "output/weights", "output/biases"),
    ((PIXELS, 500), (500,), (500, CLASSES), (CLASSES,)),
    _mlp,
)


@dataclasses.dataclass(frozen=True)
class Schedule:
    """The learning rate: `start` times `decay` for every `epoch` global steps, falling smoothly."""

    start: float
    decay: float
    epoch: float

    def __call__(self, step: Any) -> Any:
        """The learning rate at global step `step`, a number or a float tensor."""
        return self.start * self.decay ** (step / self.epoch)


def average_share(decay: float, step: Any, since: Any) -> Any:
    """Share of the weights in their moving average at `step` when the last was at `since`.

    The average is `shadow ← d·shadow + (1 − d)·weight` for every global step; as in TensorFlow's
    `ExponentialMovingAverage`, d starts low, (1 + step) / (10 + step). One update with 1 − d^k
    stands for k of them, such as those that a chief missed while it was away.
    """
    step, since = tf.cast(step, tf.float32), tf.cast(since, tf.float32)
    return 1 - tf.pow(tf.minimum(decay, (1 + step) / (10 + step)), tf.maximum(step - since, 0))
