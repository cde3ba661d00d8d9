"""Data-parallel steps with JAX."""

import os

import fault
import jax
import numpy as np
from jax.experimental import multihost_utils

SECONDS = int(os.environ["PATIENCE"])

jax.distributed.initialize(heartbeat_timeout_seconds=SECONDS, shutdown_timeout_seconds=SECONDS)
rank = jax.process_index()
weights = np.zeros(1000)
for step in range(1, 200):
    fault.trouble(step, rank)
    gradients = multihost_utils.process_allgather(np.full(1000, float(rank)))
    weights = weights - gradients.mean(axis=0)
    if rank == 0:
        print(f"step {step} loss {1 / step:.3f}", flush=True)
