"""Asynchronous steps that fetch and push only now and then: Downpour SGD (Dean et al., 2012).

The worker trains on a copy of the weights. It pushes what its steps have changed every P steps and
takes over the shared weights every K, instead of both at every step. All steps from one exchange to
the next are one call of the session: a loop in the graph, which saves a fifth of a step.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from trainer import towers
from trainer.network import variable

if TYPE_CHECKING:
    from trainer.stop import Stop
    from trainer.worker import Part


class DownpourSteps:
    """Steps on local weights; `base` is local weights less the changes that were not pushed yet.

    So `base - local` is what is to be pushed, without a pass over all weights at every step to add
    it up.
    """

    def __init__(self, part: Part) -> None:
        self._part = part
        network = part.network
        with tf.device(f"{part.role.device}/cpu:0"):
            names = list(zip(network.model.names, network.model.shapes, strict=True))
            local = [variable(f"local/{name}", shape) for name, shape in names]
            base = [variable(f"base/{name}", shape) for name, shape in names]
            self._indices = tf.compat.v1.placeholder(tf.int32, (None, part.examples))
            self._rates = tf.compat.v1.placeholder(tf.float32, (None,))
            self._losses = self._loop(local)
            self._count = tf.compat.v1.placeholder(tf.int64, ())
            pending = [old - new for old, new in zip(base, local, strict=True)]
        pushed = []
        for weight, change in zip(network.weights, pending, strict=True):
            with tf.device(weight.device):
                pushed.append(weight.assign_sub(change, read_value=False))
        with tf.device(network.step.device):
            counted = network.step.assign_add(self._count)
        with tf.device(f"{part.role.device}/cpu:0"):
            with tf.control_dependencies(pushed):
                rebased = [
                    old.assign(new, read_value=False) for old, new in zip(base, local, strict=True)
                ]
            self._push = [counted, *rebased]
            shared = [tf.identity(weight) for weight in network.weights]
            with tf.control_dependencies([*shared, *pending]):
                self._fetch = [
                    old.assign(weight + change, read_value=False)
                    for old, weight, change in zip(base, shared, pending, strict=True)
                ] + [
                    new.assign(weight, read_value=False)
                    for new, weight in zip(local, shared, strict=True)
                ]
            self._copy = [
                one.assign(weight, read_value=False)
                for many in (base, local)
                for one, weight in zip(many, shared, strict=True)
            ]
        self._session: Any = None
        self._run: Any = None
        self._taken = self._pending = 0
        self._done: deque[float] = deque()
        """Losses of steps that were taken and not told yet."""

    def _loop(self, weights: list[Any]) -> Any:
        """Trains `weights` on as many batches as are fed, one after the other; their losses."""
        count = tf.size(self._rates)

        def step(number: Any, losses: Any) -> tuple[Any, Any]:
            part = self._part
            batches = part.device_batches(self._indices[number])
            found, gradients = towers.gradients(
                part.network.model, part.devices, weights, batches, part.options.l2
            )
            updates = [
                tf.raw_ops.ResourceApplyGradientDescent(
                    var=weight.handle, alpha=self._rates[number], delta=towers.mean(list(column))
                )
                for weight, *column in zip(weights, *gradients, strict=True)
            ]
            with tf.control_dependencies(updates):
                return number + 1, losses.write(number, towers.mean(found))

        start = (0, tf.TensorArray(tf.float32, count, element_shape=()))
        _, losses = tf.while_loop(
            lambda number, _: number < count, step, start, parallel_iterations=1
        )
        return losses.stack()

    def begin(self, session: Any, step: int, stop: Stop) -> None:
        """Takes over the shared weights."""
        self._session = session
        session.run(self._copy)
        self._pending = 0
        self._done.clear()
        self._run = session.make_callable(self._losses, [self._indices, self._rates])

    def take(self, step: int) -> tuple[float, int]:
        """One batch a device; between two pushes the global step counts only this worker's."""
        if not self._done:
            self._train(step)
        loss = self._done.popleft()
        self._taken += 1
        self._pending += 1
        step += 1
        if self._pending == self._part.options.push_every:
            step = self._push_now()
        if self._taken % self._part.options.fetch_every == 0:
            self._session.run(self._fetch)
        return loss, step

    def _train(self, step: int) -> None:
        """Takes all steps up to the next exchange, or to the last step."""
        options, part = self._part.options, self._part
        until_fetch = options.fetch_every - self._taken % options.fetch_every
        until_push = options.push_every - self._pending
        count = max(1, min(until_fetch, until_push, options.steps - step))
        batches = np.stack([next(part.batches) for _ in range(count)])
        rates = [part.schedule(step + later) for later in range(count)]
        self._done.extend(map(float, self._run(batches, rates)))

    def flush(self) -> None:
        """Pushes what has not been pushed yet, told or not."""
        self._pending += len(self._done)
        self._done.clear()
        if self._pending:
            self._push_now()

    def end(self) -> None:
        """Nothing: each worker counts for itself."""

    def _push_now(self) -> int:
        step, *_ = self._session.run(self._push, {self._count: self._pending})
        self._pending = 0
        return int(step)
