"""The network and its schedules against numbers worked out by hand or in NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.lazily import model, tf
from trainer import data


def test_learning_rate_falls_once_an_epoch() -> None:
    """Start value times decay to the power of epochs, and between epochs in between."""
    schedule = model.Schedule(start=0.8, decay=0.5, epoch=100)
    assert schedule(0) == 0.8
    assert schedule(100) == pytest.approx(0.4)
    assert schedule(300) == pytest.approx(0.1)
    assert schedule(50) == pytest.approx(0.8 / 2**0.5)
    assert float(schedule(tf.constant(50.0))) == pytest.approx(schedule(50))


def test_moving_average_counts_as_tensorflow_does() -> None:
    """With an update at every step it is TensorFlow's own moving average."""
    values = np.random.default_rng(0).standard_normal(200).astype(np.float32)
    variable = tf.Variable(0.0)
    reference = tf.train.ExponentialMovingAverage(0.9)
    reference.apply([variable])  # makes the shadow, with the value 0
    shadow = 0.0
    for step, value in enumerate(values):
        variable.assign(value)
        stepwise = tf.train.ExponentialMovingAverage(0.9, num_updates=step)
        stepwise._averages = reference._averages
        stepwise.apply([variable])
        shadow += float(model.average_share(0.9, step, step - 1)) * (float(value) - shadow)
    assert shadow == pytest.approx(float(reference.average(variable)), abs=1e-5)


def test_moving_average_of_several_steps_at_once() -> None:
    """One update for ten steps is ten updates with an unchanged weight; none for no step."""
    shadow, weight = 2.0, 5.0
    for _ in range(10):
        shadow = 0.99 * shadow + 0.01 * weight
    assert 2.0 + float(model.average_share(0.99, 5000, 4990)) * 3.0 == pytest.approx(shadow)
    assert float(model.average_share(0.99, 7, 7)) == 0
    assert float(model.average_share(0.99, 0, -1)) == pytest.approx(0.9)


def test_first_weights() -> None:
    """Normal with deviation 0.1 cut at 0.2, zero biases, the same for the same seed."""
    first = model.MLP.initial(1)
    assert [value.shape for value in first] == list(model.MLP.shapes)
    assert np.abs(first[0]).max() <= 0.2
    assert first[0].std() == pytest.approx(0.088, abs=0.001)  # 0.1 cut at two deviations
    assert not first[1].any() and not first[3].any()
    np.testing.assert_array_equal(first[2], model.MLP.initial(1)[2])
    assert not np.array_equal(first[2], model.MLP.initial(2)[2])


def test_loss_and_gradients_match_numpy() -> None:
    """Loss, L2 term and gradients are those that NumPy gives for the same batch."""
    dataset = data.load(None)
    images, labels = dataset.train.images[:20], dataset.train.labels[:20]
    weights = model.MLP.initial(3)
    l2 = 0.01
    pixels = images.astype(np.float64) / 255
    hidden = np.maximum(pixels @ weights[0] + weights[1], 0)
    scores = hidden @ weights[2] + weights[3]
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    expected = -np.log(shares[rows, labels]).mean()
    expected += l2 * ((weights[0] ** 2).sum() + (weights[2] ** 2).sum()) / 2
    error = shares.copy()
    error[rows, labels] -= 1
    error /= len(labels)
    back = (error @ weights[2].T) * (hidden > 0)
    gradients = [
        pixels.T @ back + l2 * weights[0],
        back.sum(axis=0),
        hidden.T @ error + l2 * weights[2],
        error.sum(axis=0),
    ]
    tensors = [tf.constant(weight) for weight in weights]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        loss = model.MLP.loss(tensors, images, labels, l2)
    assert float(loss) == pytest.approx(expected, rel=1e-5)
    for found, wanted in zip(tape.gradient(loss, tensors), gradients, strict=True):
        np.testing.assert_allclose(found.numpy(), wanted, atol=1e-5)
    right = (scores.argmax(axis=1) == labels).mean()
    assert float(model.MLP.accuracy(tensors, images, labels)) == pytest.approx(right)
