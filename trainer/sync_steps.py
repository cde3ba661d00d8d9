"""Synchronous steps: the gradients of several workers are averaged into one update.

The mechanism is that of TensorFlow's `SyncReplicasOptimizer`, with its two weak points mended.
A worker's gradients travel through one queue, all variables at once: with one accumulator a
variable, two variables may average different batches. And a worker waits in a queue of its own:
with one token queue for all, a fast worker takes what a slow one needs, and whoever comes last
waits for tokens that nobody makes any more.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from trainer import towers
from trainer.network import variable

if TYPE_CHECKING:
    from trainer.stop import Stop
    from trainer.worker import Part

SHARED = "/job:ps/task:0/cpu:0"
OVER = -1


class SyncSteps:
    """Pushes one batch's gradients a step, then waits until the chief's update is done."""

    def __init__(self, part: Part) -> None:
        self._part = part
        network, role = part.network, part.role
        workers = role.trainers
        with tf.device(SHARED):
            # Room for two of each worker: one that is stale, and one that is fresh.
            self._gradients = tf.queue.FIFOQueue(
                2 * workers,
                [tf.int64, tf.int32, tf.int32, *(tf.float32 for _ in network.weights)],
                [(), (), (), *network.model.shapes],
                shared_name="gradients",
            )
            self._tokens = [
                tf.queue.FIFOQueue(4, [tf.int64], [()], shared_name=f"tokens_{number}")
                for number in range(workers)
            ]
            mine = self._tokens[role.trainer_number]
            self._waiting = mine.size()
            self._token = mine.dequeue()
            self._wake = mine.enqueue([tf.constant(OVER, tf.int64)])
        with tf.device(f"{role.device}/cpu:0"):
            self._batch = tf.compat.v1.placeholder(tf.int32, ())
            # The step is read before the weights: weights that change in between are newer than
            # their label, and the update counts them as stale instead of as fresh.
            label = tf.identity(network.step)
            with tf.control_dependencies([label]):
                weights = [tf.identity(weight.read_value()) for weight in network.weights]
            losses, gradients = towers.gradients(
                network.model, part.devices, weights, part.device_batches(), part.options.l2
            )
            self._loss = towers.mean(losses)
            means = [towers.mean(list(column)) for column in zip(*gradients, strict=True)]
            number = tf.constant(role.trainer_number, tf.int32)
            self._push = self._gradients.enqueue([label, number, self._batch, *means])
        self._update = None
        if role.is_chief:
            self._update = Update(part, self._gradients, self._tokens, self._wake)
        self._run: Any = None
        self._session: Any = None
        self._watching = False
        self._taken = 0

    def begin(self, session: Any, step: int, stop: Stop) -> None:
        """Forgets tokens of an earlier attempt; the chief starts to update."""
        self._session = session
        self._run = session.make_callable(
            [self._loss, self._push], [self._part.indices, self._batch]
        )
        for _ in range(int(session.run(self._waiting))):
            session.run(self._token)
        if self._update:
            self._update.start(session, step, stop)
        if self._update and not self._watching:
            self._watching = True
            # Told to end, the chief may be waiting for a token that no other worker helps to make.
            threading.Thread(target=self._wake_on, args=(stop,), daemon=True).start()

    def take(self, step: int) -> tuple[float, int] | None:
        """One batch a device; returns when an update has been made, None when it was the last."""
        loss, _ = self._run(next(self._part.batches), self._taken)
        self._taken += 1
        token = int(self._session.run(self._token))
        if token == OVER:
            if self._update:
                self._update.check()
            else:
                self._session.run(self._wake)  # stays for whoever takes this worker's place
            return None
        return float(loss), token

    def flush(self) -> None:
        """Nothing: every step has been pushed."""

    def end(self) -> None:
        """Nothing: the update's thread has told all workers."""

    def _wake_on(self, stop: Stop) -> None:
        stop.wait()
        with contextlib.suppress(tf.errors.OpError, RuntimeError):  # the session may be closed
            self._session.run(self._wake)


class Update:
    """The chief's side: collects fresh gradients, applies their mean, tells the workers.

    The gradients stay on ps:0; the chief only says what is next.
    """

    def __init__(self, part: Part, gradients: Any, tokens: list[Any], wake: Any) -> None:
        self._part = part
        self._wake = wake
        network = part.network
        self._needed = part.options.replicas_to_aggregate or part.role.trainers
        self._error: BaseException | None = None
        self.dropped = 0
        with tf.device(SHARED):
            sums = [
                variable(f"sum/{name}", shape)
                for name, shape in zip(network.model.names, network.model.shapes, strict=True)
            ]
            self._clear = tf.group(*(one.assign(tf.zeros(one.shape)) for one in sums))
            label, worker, batch, *values = gradients.dequeue()
            fresh = tf.equal(label, network.step)
            share = tf.cast(fresh, tf.float32) / self._needed
            added = [
                one.assign_add(share * value, read_value=False)
                for one, value in zip(sums, values, strict=True)
            ]
            self._collect = [tf.identity(fresh), tf.identity(worker), tf.identity(batch), *added]
            self._count = network.step.assign_add(1)
            self._sizes = [queue.size() for queue in tokens]
            self._tell = [queue.enqueue([network.step.read_value()]) for queue in tokens]
            self._end = [queue.enqueue([tf.constant(OVER, tf.int64)]) for queue in tokens]
        self._rate = tf.compat.v1.placeholder(tf.float32, ())
        applied = []
        for weight, one in zip(network.weights, sums, strict=True):
            with tf.device(weight.device):
                applied.append(weight.assign_sub(self._rate * one, read_value=False))
        self._apply = tf.group(*applied)

    def start(self, session: Any, step: int, stop: Stop) -> None:
        """Begins to update in a thread of its own, from global step `step` to the limit."""
        self._error = None
        threading.Thread(target=self._work, args=(session, step, stop), daemon=True).start()

    def check(self) -> None:
        """Raises what ended the updates before the limit."""
        if self._error:
            raise self._error

    def _work(self, session: Any, step: int, stop: Stop) -> None:
        path = self._part.options.log_batches
        try:
            with open(path or os.devnull, "a", encoding="utf-8") as log:
                while step < self._part.options.steps and not stop.requested:
                    batches = self._one(session, step)
                    step += 1
                    log.write(json.dumps({"step": step, "batches": batches}) + "\n")
                    log.flush()
            if not stop.requested:
                session.run(self._end)
        except Exception as error:
            self._error = error
            with contextlib.suppress(tf.errors.OpError, RuntimeError):
                session.run(self._wake)

    def _one(self, session: Any, step: int) -> list[tuple[int, int]]:
        """One update; returns worker and batch number of each gradient in it."""
        session.run(self._clear)
        batches: list[tuple[int, int]] = []
        while len(batches) < self._needed:
            fresh, worker, batch, *_ = session.run(self._collect)
            if fresh:
                batches.append((int(worker), int(batch)))
            else:
                self.dropped += 1
        session.run(self._apply, {self._rate: self._part.schedule(step)})
        session.run(self._count)
        # Who still has a token unread will compute with the new weights all the same.
        sizes = session.run(self._sizes)
        tell = zip(self._tell, sizes, strict=True)
        session.run([enqueue for enqueue, waiting in tell if not waiting])
        return batches
