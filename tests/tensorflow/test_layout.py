"""Where each weight stands among the ps tasks."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.lazily import convolution, model, parameters, tf


@pytest.mark.parametrize("tasks", [1, 2, 9])
def test_weights_come_back_from_the_ps(tasks: int) -> None:
    """Each in its own shape and place, as arrays and as tensors; a ps may have none of them."""
    for network in (model.MLP, convolution.CNN):
        layout, weights = parameters.Layout(network, tasks), network.initial(1)
        flats = layout.join(weights, np.reshape, np.concatenate)
        assert [flat.shape for flat in flats] == [(size,) for size in layout.sizes], network.name
        assert sum(layout.sizes) == sum(weight.size for weight in weights)
        assert layout.sizes.count(0) == max(0, tasks - len(weights))
        for weight, found in zip(weights, layout.split(flats, np.reshape), strict=True):
            np.testing.assert_array_equal(found, weight)
        tensors = layout.join([tf.constant(weight) for weight in weights])
        for flat, tensor in zip(flats, tensors, strict=True):
            np.testing.assert_array_equal(tensor.numpy(), flat)


def test_the_two_matrices_are_on_two_ps() -> None:
    """Round robin would put both on the first; the rest goes to whoever has less."""
    layout = parameters.Layout(model.MLP, 2)
    assert layout.sizes == [784 * 500, 500 + 500 * 10 + 10]
    others = "hidden/biases, output/weights, output/biases on ps:1"
    assert layout.described() == f"hidden/weights on ps:0; {others}"
