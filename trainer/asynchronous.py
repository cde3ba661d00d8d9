"""`async`: gradients are applied as they come, whatever others did meanwhile.

    ps:      w (all weights), step
    worker:  repeat
                 w' ← w                      fetch, from every ps
                 g ← ∇loss(w', batch)        on the worker
                 w ← w − η(step) · g         push: the ps subtracts
                 step ← step + 1

Nobody waits for anybody. Between a worker's fetch and its push other workers may have pushed; how
many did is the step's staleness.
"""

from typing import Any

import tensorflow as tf

from trainer.calls import CallWorker, StepTensors
from trainer.downpour import DownpourWorker
from trainer.modes import Context
from trainer.parameters import average_gradients, mean, subtract


def train(context: Context) -> None:
    """Trains as one of the workers."""
    every = max(context.options.fetch_every, context.options.push_every)
    (DownpourWorker if every > 1 else AsyncWorker)(context).train()


class AsyncWorker(CallWorker):
    """Fetches all weights and pushes all gradients at every step."""

    def one_step(self, parts: list[tuple[Any, Any]], before: list[Any]) -> StepTensors:
        shared = self.shared
        with tf.device(shared.step.device), tf.control_dependencies(before[:1]):
            step_at_fetch = shared.step.read_value()
            rate = self.schedule(tf.cast(step_at_fetch, tf.float32))  # η(step)

        fetched = []  # w' ← w; of each ps: (numbers there,)
        for number, flat in enumerate(shared.flats):
            with tf.device(flat.device), tf.control_dependencies(before[number : number + 1]):
                fetched.append(flat.read_value())

        losses, tower_gradients = self.tower_gradients(fetched, parts)  # g ← ∇loss(w', batch)
        with tf.device(self.cpu):
            loss, gradients = mean(losses), average_gradients(tower_gradients)

        pushed = []  # w ← w − η(step) · g
        for flat, gradient in zip(shared.flats, gradients, strict=True):
            with tf.device(flat.device):
                pushed.append(subtract(flat, rate, gradient))

        with tf.device(shared.step.device), tf.control_dependencies(pushed[:1]):
            step_after = tf.identity(shared.step.assign_add(1))  # step ← step + 1
        return StepTensors(loss, step_at_fetch, step_after, pushed)
