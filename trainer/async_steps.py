"""Asynchronous steps: a worker's gradients are applied as they come, whatever the others did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from trainer import towers

if TYPE_CHECKING:
    from trainer.stop import Stop
    from trainer.worker import Part


class AsyncSteps:
    """Fetches all weights and pushes all gradients at every step.

    Args:
        average_on_ps: Where the gradients of several devices meet: on the ps of their weight, or
            on this task's own CPU.
    """

    def __init__(self, part: Part, average_on_ps: bool = False) -> None:
        self._part = part
        network = part.network
        with tf.device(f"{part.role.device}/cpu:0"):
            self._rate = tf.compat.v1.placeholder(tf.float32, ())
            # One read a variable: each use of a variable would fetch it from its ps again.
            weights = [tf.identity(weight) for weight in network.weights]
            losses, gradients = towers.gradients(
                network.model,
                part.devices,
                weights,
                part.device_batches(),
                part.options.l2,
                scale=self._rate,
            )
            loss = towers.mean(losses)
        updates = []
        for weight, *column in zip(network.weights, *gradients, strict=True):
            with tf.device(weight.device if average_on_ps else f"{part.role.device}/cpu:0"):
                change = towers.mean(column)
            with tf.device(weight.device):
                updates.append(weight.assign_sub(change, read_value=False))
        with tf.device(network.step.device):
            counted = network.step.assign_add(1)
        self._fetches = [loss, counted, *updates]
        self._run: Any = None

    def begin(self, session: Any, step: int, stop: Stop) -> None:
        """Prepares the step for this session."""
        self._run = session.make_callable(self._fetches, [self._part.indices, self._rate])

    def take(self, step: int) -> tuple[float, int]:
        """One batch a device: its mean loss, and the global step after it."""
        loss, counted, *_ = self._run(next(self._part.batches), self._part.schedule(step))
        return float(loss), int(counted)

    def flush(self) -> None:
        """Nothing: every step has been pushed."""

    def end(self) -> None:
        """Nothing: each worker counts for itself."""
