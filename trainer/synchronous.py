"""`sync`: the gradients of several workers are averaged into one update.

    ps:      w (all weights), step, an accumulator, a queue of tokens for each worker
    worker:  repeat
                 s ← step, w' ← w               fetch
                 g ← ∇loss(w', batch)           on the worker
                 accumulator.add(g, s)          push; dropped there if s < step
                 wait for a token in its own queue
    chief:   repeat
                 g ← accumulator.take(N)        the mean; waits for N fresh gradients
                 w ← w − η(step) · g
                 step ← step + 1
                 a token into every queue

Everybody waits for the slowest of the first N workers. The mechanism is that of TensorFlow's
`SyncReplicasOptimizer`, with its two weak points mended. All gradients of a worker are one tensor
in one `ConditionalAccumulator`: with one accumulator a variable, two variables may average
different batches. And a worker waits in a queue of its own: with one token queue for all, a fast
worker takes what a slow one needs, and whoever comes last waits for tokens that nobody makes any
more.
"""

import itertools
from typing import Any

import tensorflow as tf

from trainer.batch_log import check_log
from trainer.modes import Context
from trainer.parameters import average_gradients, mean, subtract
from trainer.rounds import SHARED, Batch, RoundWorker, give


def train(context: Context) -> None:
    """Trains as one of the workers."""
    check_log(context)
    SyncWorker(context, context.options.replicas_to_aggregate or len(context.role.clients)).train()


class SyncWorker(RoundWorker):
    """Pushes one batch's gradients a step, then waits until the chief's update is done."""

    def one_step(self, batch: Batch, before: list[Any]) -> tuple[Any, Any]:
        shared, layout = self.shared, self.shared.layout
        number, parts = batch
        # The step is read before the weights: weights that change in between are newer than
        # their label, and the accumulator takes them for stale instead of for fresh.
        with tf.device(SHARED), tf.control_dependencies(before):
            at_fetch = tf.identity(shared.step.read_value())
        fetched = []  # w' ← w; of each ps: (numbers there,)
        for flat in shared.flats:
            with tf.device(flat.device), tf.control_dependencies([at_fetch]):
                fetched.append(flat.read_value())

        # g ← ∇loss(w', batch); of each weight
        losses, tower_gradients = self.tower_gradients(fetched, parts, joined=False)
        with tf.device(self.cpu):
            loss, gradients = mean(losses), average_gradients(tower_gradients)
            # All gradients are copied once: (all numbers of the network + 2 · workers,).
            pieces = itertools.chain(*layout.pieces(gradients))
            pushed = tf.concat([*pieces, self.sender(number)], 0)

        with tf.device(SHARED):
            # To wait for `pushed` itself would be a message of its own beside the tensor's.
            arrived = tf.identity(pushed)
            with tf.control_dependencies([arrived]):
                at_push = tf.identity(shared.step.read_value())
            with tf.control_dependencies([at_push]):
                added = self.accumulator.apply_grad(arrived, local_step=at_fetch)
            with tf.control_dependencies([added]):
                token = self.tokens.dequeue()
            return loss, tf.stack([at_fetch, at_push, token])

    def one_update(self) -> tuple[list[Any], Any]:
        shared, sizes = self.shared, self.shared.layout.sizes
        with tf.device(SHARED):
            taken = self.accumulator.take_grad(self.gradients)  # g: (all numbers + 2 · workers,)
            # Slices: `tf.split` would copy them.
            ends = [*itertools.accumulate(sizes)]
            gradients = [taken[end - size : end] for size, end in zip(sizes, ends, strict=True)]
            sender = taken[ends[-1] :]
            with tf.control_dependencies([taken]):
                rate = self.schedule(tf.cast(shared.step.read_value(), tf.float32))
        applied = []  # w ← w − η(step) · g; of each ps: (numbers there,)
        for flat, gradient in zip(shared.flats, gradients, strict=True):
            with tf.device(flat.device):
                applied.append(subtract(flat, rate, gradient))
        with tf.device(SHARED), tf.control_dependencies(applied):
            step = tf.identity(shared.step.assign_add(1))  # step ← step + 1
        averaged = shared.average(step)
        with tf.device(SHARED), tf.control_dependencies(applied):
            return [*averaged, *give(step, self.queues)], sender
