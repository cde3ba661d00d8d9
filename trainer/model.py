"""The 784-500-10 network, as functions of tensors: the same in graphs and in eager code.

The arithmetic of the schedules is plain Python, so that every mode, and every test, has the same.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import tensorflow as tf

from trainer.data import PIXELS

HIDDEN = 500
CLASSES = 10
NAMES = ("hidden/weights", "hidden/biases", "output/weights", "output/biases")
SHAPES = ((PIXELS, HIDDEN), (HIDDEN,), (HIDDEN, CLASSES), (CLASSES,))


@dataclasses.dataclass(frozen=True)
class Schedule:
    """The learning rate: `start` times `decay` for every epoch, falling smoothly.

    `epoch` is how many global steps an epoch has.
    """

    start: float
    decay: float
    epoch: float

    def __call__(self, step: int) -> float:
        """The learning rate at global step `step`."""
        return self.start * math.pow(self.decay, step / self.epoch)


@dataclasses.dataclass(frozen=True)
class Averaging:
    """The moving average of the weights: `shadow ← d·shadow + (1 − d)·weight` at every global step.

    As in TensorFlow's `ExponentialMovingAverage`, d starts low, (1 + step) / (10 + step), so that
    the first average does not remember the initial weights.
    """

    decay: float

    def weight(self, step: int, since: int) -> float:
        """What the weights count at `step` when the last average was taken at step `since`.

        One update with 1 − d^k stands for k of them with weights that did not change meanwhile.
        This is what keeps the average off the critical path: not every step pays for it.
        """
        decay = min(self.decay, (1 + step) / (10 + step))
        return 1 - float(decay) ** max(step - since, 0)


def initial_weights(seed: int) -> list[np.ndarray[Any, np.dtype[np.float32]]]:
    """First values: weights normal with deviation 0.1, cut at two deviations; biases zero.

    Drawn by NumPy, so that every mode starts from the same network for the same seed.
    """
    generator = np.random.default_rng(seed)
    values = []
    for shape in SHAPES:
        value = np.zeros(shape, np.float32)
        if len(shape) == 2:
            value = generator.standard_normal(shape, np.float32)
            while (far := np.abs(value) > 2).any():
                value[far] = generator.standard_normal(int(far.sum()), np.float32)
            value *= np.float32(0.1)
        values.append(value)
    return values


def logits(weights: Any, images: Any) -> Any:
    """Logits, shape (batch, 10), for uint8 `images`, shape (batch, 784)."""
    hidden_weights, hidden_biases, output_weights, output_biases = weights
    pixels = tf.cast(images, tf.float32) * (1 / 255)
    hidden = tf.nn.relu(tf.matmul(pixels, hidden_weights) + hidden_biases)
    return tf.matmul(hidden, output_weights) + output_biases


def loss(weights: Any, images: Any, labels: Any, l2: float) -> Any:
    """Mean cross entropy over the batch plus `l2` times half the squared weights (no biases)."""
    cross_entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=tf.cast(labels, tf.int32), logits=logits(weights, images)
    )
    squares = tf.nn.l2_loss(weights[0]) + tf.nn.l2_loss(weights[2])
    return tf.reduce_mean(cross_entropy) + l2 * squares


def accuracy(weights: Any, images: Any, labels: Any) -> Any:
    """The share of `images` whose label is the network's first choice."""
    choice = tf.argmax(logits(weights, images), axis=1, output_type=tf.int32)
    return tf.reduce_mean(tf.cast(tf.equal(choice, tf.cast(labels, tf.int32)), tf.float32))
