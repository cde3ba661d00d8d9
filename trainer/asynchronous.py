"""`async`: gradients are applied as they come, whatever others did meanwhile.

    ps:      w (all weights), step
    worker:  repeat
                 w' ← w                      fetch, from every ps
                 g ← ∇loss(w', batch)        on the worker
                 w ← w − η(step) · g         push: the ps subtracts
                 step ← step + 1

Nobody waits for anybody. Between a worker's fetch and its push other workers may have pushed; how
many did is the step's staleness.

Several steps stand one after the other in the graph, each fetch after the push before it: what lies
between them does not wait for Python.
"""

from typing import Any

import tensorflow as tf

from trainer.downpour import DownpourWorker
from trainer.modes import Context
from trainer.parameters import mean, subtract
from trainer.progress import Step
from trainer.worker import Worker


def train(context: Context) -> None:
    """Trains as one of the workers."""
    every = max(context.options.fetch_every, context.options.push_every)
    (DownpourWorker if every > 1 else AsyncWorker)(context).train()


class AsyncWorker(Worker):
    """Fetches all weights and pushes all gradients at every step."""

    def build_graph(self) -> None:
        self._several = 1 if self.slow else self.options.steps_per_call
        self._steps = {count: self._steps_in_a_row(count) for count in {self._several, 1}}

    def take_steps(self, step: int) -> list[Step]:
        left = self.options.steps - step
        # Near the end steps are taken one by one, so that not every worker adds `_several`.
        near = left <= 4 * self._several * len(self.role.clients)
        losses, (at_fetch, after), *_ = self.session.run(self._steps[1 if near else self._several])
        return [
            Step(float(loss), int(step_after), staleness=int(step_after - step_at_fetch) - 1)
            for loss, step_at_fetch, step_after in zip(losses, at_fetch, after, strict=True)
        ]

    def _steps_in_a_row(self, count: int) -> list[Any]:
        """The operations of `count` steps: their losses, shape (count,), the global steps at their
        fetches and after their pushes, shape (2, count), and the last pushes."""
        losses, at_fetch, after = [], [], []
        pushed: list[Any] = []
        for _, parts in self.input.batches(count):
            loss, step_at_fetch, step_after, pushed = self._one_step(parts, pushed)
            losses.append(loss)  # a number, as are the steps
            at_fetch.append(step_at_fetch)
            after.append(step_after)
        with tf.device(self.cpu):
            all_losses = tf.stack(losses)
        with tf.device(self.shared.step.device):
            return [all_losses, tf.stack([at_fetch, after]), *pushed]

    def _one_step(
        self, parts: list[tuple[Any, Any]], before: list[Any]
    ) -> tuple[Any, Any, Any, list[Any]]:
        """One step after the pushes `before`, one a ps: its loss, the global steps at its fetch and
        after its push, and its pushes, one a ps.

        `parts` are a batch a device: images, shape (batch, 784), and labels, shape (batch,).
        """
        shared, layout = self.shared, self.shared.layout
        with tf.device(shared.step.device), tf.control_dependencies(before[:1]):
            step_at_fetch = shared.step.read_value()
            rate = self.schedule(tf.cast(step_at_fetch, tf.float32))  # η(step)

        fetched = []  # w' ← w; of each ps: (numbers there,)
        for number, flat in enumerate(shared.flats):
            with tf.device(flat.device), tf.control_dependencies(before[number : number + 1]):
                fetched.append(flat.read_value())

        losses, gradients = [], []  # g ← ∇loss(w', batch); of each device, of each ps the same
        for device, (images, labels) in zip(self.devices, parts, strict=True):
            with tf.device(device):
                weights = layout.split([tf.identity(flat) for flat in fetched])
                losses.append(self.loss(weights, images, labels))
                gradients.append(layout.join(tf.gradients(losses[-1], weights)))
        with tf.device(self.cpu):
            loss = mean(losses)
            means = [mean(list(of_devices)) for of_devices in zip(*gradients, strict=True)]

        pushed = []  # w ← w − η(step) · g
        for flat, gradient in zip(shared.flats, means, strict=True):
            with tf.device(flat.device):
                pushed.append(subtract(flat, rate, gradient))

        with tf.device(shared.step.device), tf.control_dependencies(pushed[:1]):
            step_after = tf.identity(shared.step.assign_add(1))  # step ← step + 1
        if self.role.is_chief:
            with tf.control_dependencies(pushed):
                averaged = shared.average(step_after)
            pushed = [tf.group(*pair) for pair in zip(pushed, averaged, strict=True)]
        return loss, step_at_fetch, step_after, [tf.group(pushed[0], step_after), *pushed[1:]]
