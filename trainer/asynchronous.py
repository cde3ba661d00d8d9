"""`async`: a worker's gradients are applied as they come, whatever the others did meanwhile.

Every step fetches all weights and pushes all gradients. Several steps are one call of the session:
they are built one after the other into the graph, each fetch after the push before it, and what
lies between them never waits for Python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from trainer.inputs import cut
from trainer.parameters import mean
from trainer.progress import Step
from trainer.worker import Worker

if TYPE_CHECKING:
    from trainer.data import Dataset
    from trainer.flags import Options
    from trainer.role import Role
    from trainer.stop import Stop
    from trainer.worker import WorkerGraph


def train(role: Role, options: Options, dataset: Dataset, stop: Stop) -> None:
    """Trains as one of the workers."""
    from trainer.downpour import DownpourSteps

    rarely = options.fetch_every > 1 or options.push_every > 1
    kind = DownpourSteps if rarely else AsyncSteps
    Worker(role, options, dataset, "async", kind).train(stop)


class AsyncSteps:
    """Fetches all weights and pushes all gradients at every step.

    Args:
        average_on_ps: Where the gradients of several devices meet: on the ps of their weight, or
            on this task's own CPU.
    """

    def __init__(self, part: WorkerGraph, average_on_ps: bool = False) -> None:
        self._part = part
        self._average_on_ps = average_on_ps
        self._wire = tf.as_dtype(part.options.wire)
        count = part.options.steps_per_call
        self._built = {number: self._build(number) for number in {count, 1}}
        # Near the end steps are taken one by one, so that not every worker adds a whole call.
        self._margin = 4 * count * part.role.trainers
        self._calls: dict[int, Any] = {}

    def begin(self, session: Any, step: int, stop: Stop, joined: bool) -> None:
        """Prepares the calls for this session."""
        feeds = self._part.input.feeds
        self._calls = {
            count: session.make_callable(fetches, feeds) for count, fetches in self._built.items()
        }

    def run(self, step: int) -> list[Step]:
        """The steps of one call."""
        left = self._part.options.steps - step
        count = max(self._calls) if left > self._margin else 1
        losses, before, after, *_ = self._calls[count](*self._part.input.arrays(count))
        return [
            Step(float(loss), int(done), int(done - seen) - 1)
            for loss, seen, done in zip(losses, before, after, strict=True)
        ]

    def flush(self) -> None:
        """Nothing: every step has been pushed."""

    def _build(self, count: int) -> list[Any]:
        """The operations of `count` steps: losses, global steps before and after."""
        losses, before, after = [], [], []
        last: list[Any] = []
        for number in range(count):
            loss, seen, done, last = self._step(number, last)
            losses.append(loss)
            before.append(seen)
            after.append(done)
        with tf.device(self._part.cpu):
            fetched = tf.stack(losses)
        with tf.device(self._part.parameters.step.device):
            return [fetched, tf.stack(before), tf.stack(after), *last]

    def _step(self, number: int, last: list[Any]) -> tuple[Any, Any, Any, list[Any]]:
        """One step after the pushes `last`, one for each ps: fetch, compute, push."""
        part, shared = self._part, self._part.parameters
        with tf.device(shared.step.device), tf.control_dependencies(last[:1]):
            seen = shared.step.read_value()
        fetched = []
        for flat, weights in zip(shared.flats, shared.read(last), strict=True):
            with tf.device(flat.device):
                fetched.append(tf.cast(weights, self._wire))
        with tf.device(part.cpu):
            local = [tf.cast(weights, tf.float32) for weights in fetched]
            batches = cut(part.input.batch(number), part.devices)
            losses, towers = shared.towers(part.devices, local, batches, part.options.l2)
            loss = mean(losses)
        gradients = []
        for flat, *column in zip(shared.flats, *towers, strict=True):
            if self._average_on_ps:
                sent = []
                for device, gradient in zip(part.devices, column, strict=True):
                    with tf.device(device):
                        sent.append(tf.cast(gradient, self._wire))
            else:
                with tf.device(part.cpu):
                    sent = [tf.cast(mean(column), self._wire)]
            with tf.device(flat.device):
                gradients.append(mean([tf.cast(one, tf.float32) for one in sent]))
        with tf.device(shared.step.device):
            rate = part.schedule.tensor(seen)
        pushed = shared.descend(gradients, rate)
        done = shared.count(pushed[:1])
        if part.role.is_chief:
            with tf.control_dependencies(pushed):
                averaged = shared.average(done)
            pushed = [tf.group(*pair) for pair in zip(pushed, averaged, strict=True)]
        return loss, seen, done, [tf.group(pushed[0], done), *pushed[1:]]
