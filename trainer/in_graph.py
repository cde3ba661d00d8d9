"""`in-graph`: one client, the chief, computes on the devices of all workers.

    ps:      w (all weights), step
    chief:   repeat
                 on each worker:  w' ← w                       fetch, from every ps
                                  g ← ∇loss(w', its batch)     on each device
                 on the ps:       w ← w − η(step) · mean(g)    push
                                  step ← step + 1

Each step waits for the slowest device. A worker only serves: its operations are a part of the
chief's graph, which sends it its batch.
"""

from typing import Any

import tensorflow as tf

from trainer.modes import Context
from trainer.parameters import mean, subtract
from trainer.progress import Step
from trainer.worker import Worker


def train(context: Context) -> None:
    """Trains as the only client of all workers' devices."""
    InGraphWorker(context).train()


class InGraphWorker(Worker):
    """Pushes the gradients of all workers' devices; each ps takes their mean."""

    everywhere = True

    def build_graph(self) -> None:
        shared = self.shared
        # One batch a device: images, shape (batch, 784), and labels, shape (batch,).
        ((_, parts),) = self.input.batches(1)

        with tf.device(shared.step.device):
            rate = self.schedule(tf.cast(shared.step.read_value(), tf.float32))  # η(step)
        fetched = []  # w' ← w; of each ps: (numbers there,)
        for flat in shared.flats:
            with tf.device(flat.device):
                fetched.append(flat.read_value())

        losses, tower_gradients = self.tower_gradients(fetched, parts)  # g ← ∇loss(w', part)
        with tf.device(self.cpu):
            loss = mean(losses)

        pushed = []  # w ← w − η(step) · mean of all g
        for flat, *of_devices in zip(shared.flats, *tower_gradients, strict=True):
            with tf.device(flat.device):
                pushed.append(subtract(flat, rate, mean(of_devices)))

        with tf.device(shared.step.device), tf.control_dependencies(pushed):
            step_after = tf.identity(shared.step.assign_add(1))  # step ← step + 1
        self._step: list[Any] = [loss, step_after, *shared.average(step_after)]

    def take_steps(self, step: int) -> list[Step]:
        loss, step_after, *_ = self.session.run(self._step)
        return [Step(float(loss), int(step_after))]
