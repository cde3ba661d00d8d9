"""Data-parallel training with JAX: every process has a share of the batch, gradients are averaged.

`jax.distributed.initialize()` finds the others by the variables that `framework = "jax"` sets.
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils

STEPS = 50
WEIGHTS = np.array([2.0, -3.0, 0.5])


def loss(weights, inputs, targets):
    """Mean squared error of a linear model."""
    return jnp.mean((inputs @ weights - targets) ** 2)


def main():
    """Trains; every process ends with the same weights."""
    jax.distributed.initialize()
    rank, size = jax.process_index(), jax.process_count()
    print(f"rank {rank} of {size}, {jax.device_count()} devices", flush=True)
    random = np.random.default_rng(rank)
    gradient = jax.jit(jax.value_and_grad(loss))
    weights = np.zeros(3)
    for step in range(1, STEPS + 1):
        inputs = random.normal(size=(64, 3))
        value, slope = gradient(weights, inputs, inputs @ WEIGHTS)
        slope = multihost_utils.process_allgather(slope).reshape(size, 3).mean(axis=0)
        weights = weights - 0.1 * np.asarray(slope)
        if step % 10 == 0:
            print(f"step {step} loss {float(value):.6f}", flush=True)
    everyones = multihost_utils.process_allgather(weights).reshape(size, 3)
    print(f"weights {np.round(weights, 2).tolist()}", flush=True)
    sys.exit(not np.allclose(everyones, weights))


if __name__ == "__main__":
    main()
