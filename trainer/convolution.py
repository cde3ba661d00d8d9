"""Convolutional networks of `towers`: a small one, and that of TensorFlow's own MNIST tutorial."""

from typing import Any

import numpy as np
import tensorflow as tf

from trainer.data import SIDE
from trainer.model import CLASSES, MLP, Model


def _cnn(weights: Any, pixels: Any) -> Any:
    maps = tf.reshape(pixels, (-1, SIDE, SIDE, 1))
    for layer in (0, 2):
        maps = tf.nn.conv2d(maps, weights[layer], strides=1, padding="SAME") + weights[layer + 1]
        maps = tf.nn.max_pool2d(tf.nn.relu(maps), ksize=2, strides=2, padding="SAME")
    flat = tf.reshape(maps, (-1, int(np.prod(maps.shape[1:]))))
    hidden = tf.nn.relu(tf.matmul(flat, weights[4]) + weights[5])
    return tf.matmul(hidden, weights[6]) + weights[7]


def _cnn_model(name: str, first: int, second: int, hidden: int, low: float) -> Model:
    """Two layers of 5×5 convolution and pooling, one hidden layer; momentum wants a low rate."""
    layers = ("conv1", "conv2", "hidden", "output")
    inputs = ((5, 5, 1), (5, 5, first), (7 * 7 * second,), (hidden,))
    outputs = (first, second, hidden, CLASSES)
    return Model(
        name,
        tuple(f"{layer}/{what}" for layer in layers for what in ("weights", "biases")),
        tuple(
            shape
            for before, after in zip(inputs, outputs, strict=True)
            for shape in ((*before, after), (after,))
        ),
        _cnn,
        low,
        learning_rate=0.02,
        momentum=0.9,
    )


CNN = _cnn_model("cnn", 16, 32, 128, 0.0)
CNN_TUTORIAL = _cnn_model("cnn-tutorial", 32, 64, 1024, -0.5)
MODELS = {model.name: model for model in (MLP, CNN, CNN_TUTORIAL)}
