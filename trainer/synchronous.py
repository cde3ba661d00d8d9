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

A worker's steps stand one after the other in the graph, several in one call of its session: what
lies between them does not wait for Python.
"""

import contextlib
import itertools
import json
import threading
from typing import Any

import tensorflow as tf

from trainer.exceptions import UsageError
from trainer.modes import Context
from trainer.parameters import mean, subtract
from trainer.progress import Step
from trainer.worker import Worker

SHARED = "/job:ps/task:0/device:CPU:0"
END = -1
"""The token that ends the worker that takes it."""
SEVERAL = 10
"""Steps of a worker in one call, which returns when each of them has its token."""
CAPACITY = 256
"""Tokens that a queue holds: those of the steps before the present one are forgotten at a start."""


def train(context: Context) -> None:
    """Trains as one of the workers."""
    options = context.options
    if options.log_batches and context.role.is_chief:
        try:
            open(options.log_batches, "a", encoding="utf-8").close()
        except OSError as error:
            path = options.log_batches
            raise UsageError(f"--log-batches={path}: {error.strerror}") from None
    SyncWorker(context, options.replicas_to_aggregate or len(context.role.clients)).train()


class SyncWorker(Worker):
    """Pushes one batch's gradients a step, then waits until the chief's update is done.

    Behind the gradients travel a few more numbers: which worker's which batch they are of.
    """

    def build_graph(self) -> None:
        workers = len(self.role.clients)
        numbers = sum(self.shared.layout.sizes) + 2 * workers
        with tf.device(SHARED):
            accumulator = tf.compat.v1.ConditionalAccumulator(
                tf.float32, (numbers,), shared_name="gradients"
            )
            queues = [
                tf.queue.FIFOQueue(CAPACITY, [tf.int64], [()], shared_name=f"tokens_{number}")
                for number in range(workers)
            ]
            own = queues[self.role.number]
            self._forget_tokens = own.dequeue_many(own.size())
            self.end_own = _end(own)
        self._steps = {
            count: self._steps_in_a_row(count, accumulator, own) for count in (SEVERAL, 1)
        }
        self._watching = False
        self._update = Update(self, accumulator, queues) if self.role.is_chief else None

    def begin(self, step: int, joined: bool) -> None:
        """Forgets tokens of an earlier attempt; the chief starts to update."""
        self.session.run(self._forget_tokens)
        if self._update:
            self._update.start(step, joined)
        if self._update and not self._watching:
            self._watching = True
            # Told to end, the chief may be waiting for a token that no other worker helps to make.
            threading.Thread(target=self._end_on_signal, daemon=True).start()

    def take_steps(self, step: int) -> list[Step]:
        """The steps of one call, up to the update that was the last."""
        several = not self.slow and self.options.steps - step >= SEVERAL
        losses, steps_seen = self.session.run(self._steps[SEVERAL if several else 1])
        taken = []
        for loss, (at_fetch, at_push, token) in zip(losses, steps_seen, strict=True):
            if token == END:
                break
            staleness = int(at_push - at_fetch)
            taken.append(Step(float(loss), int(token), staleness, dropped=staleness > 0))
        if taken:
            return taken
        if self._update:
            self._update.check()
        else:
            self.session.run(self.end_own)  # stays for whoever takes this worker's place
        return []

    def _end_on_signal(self) -> None:
        self.stop.wait()
        with contextlib.suppress(tf.errors.OpError, RuntimeError):  # the ps may be gone
            self.session.run(self.end_own)

    def _steps_in_a_row(self, count: int, accumulator: Any, tokens: Any) -> tuple[Any, Any]:
        """`count` steps: their losses, shape (count,), and of each the global steps at its fetch
        and its push, and its token, shape (count, 3)."""
        losses: list[Any] = []
        steps_seen: list[Any] = []
        for batch in self.input.batches(count):
            loss, seen = self._one_step(accumulator, tokens, batch, steps_seen[-1:])
            losses.append(loss)
            steps_seen.append(seen)
        with tf.device(self.cpu):
            all_losses = tf.stack(losses)
        with tf.device(SHARED):
            return all_losses, tf.stack(steps_seen)

    def _one_step(
        self,
        accumulator: Any,
        tokens: Any,
        batch: tuple[Any, list[tuple[Any, Any]]],
        before: list[Any],
    ) -> tuple[Any, Any]:
        """One step after the one `before`: fetch, compute, push, wait for a token. Returns the loss
        and, shape (3,), the global steps at fetch and push, and the token, which is the step after
        the update.

        `batch` has its number and a batch a device: images, shape (batch, 784), and labels, shape
        (batch,).
        """
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

        losses, gradients = [], []  # g ← ∇loss(w', batch); of each device, of each weight
        for device, (images, labels) in zip(self.devices, parts, strict=True):
            with tf.device(device):
                weights = layout.split([tf.identity(flat) for flat in fetched])
                losses.append(self.loss(weights, images, labels))
                gradients.append(tf.gradients(losses[-1], weights))
        with tf.device(self.cpu):
            loss = mean(losses)
            means = [mean(list(of_devices)) for of_devices in zip(*gradients, strict=True)]
            # All gradients are copied once: (all numbers of the network + 2 · workers,).
            pieces = itertools.chain(*layout.pieces(means))
            pushed = tf.concat([*pieces, self._sender(number)], 0)

        with tf.device(SHARED):
            # To wait for `pushed` itself would be a message of its own beside the tensor's.
            arrived = tf.identity(pushed)
            with tf.control_dependencies([arrived]):
                at_push = tf.identity(shared.step.read_value())
            with tf.control_dependencies([at_push]):
                added = accumulator.apply_grad(arrived, local_step=at_fetch)
            with tf.control_dependencies([added]):
                token = tokens.dequeue()
            return loss, tf.stack([at_fetch, at_push, token])

    def _sender(self, number: Any) -> Any:
        """Whose gradients these are, shape (2 · workers,): 1 at the worker, and at the worker in
        the second half the number of its batch."""
        workers, me = len(self.role.clients), self.role.number
        batch = tf.one_hot(workers + me, 2 * workers) * tf.cast(number, tf.float32)
        return tf.one_hot(me, 2 * workers) + batch


class Update:
    """The chief's side: takes the mean of fresh gradients, applies it, tells the workers.

    Everything happens on the ps; the chief only says that one more update comes.
    """

    def __init__(self, worker: SyncWorker, accumulator: Any, queues: list[Any]) -> None:
        self._worker = worker
        self._error: BaseException | None = None
        self._update = self._one_update(accumulator, queues)
        with tf.device(SHARED):
            step = worker.shared.step.read_value()
            others = [queue for n, queue in enumerate(queues) if n != worker.role.number]
            self._restart = [accumulator.set_global_step(step), *_give(step, others)]
            self._end = [_end(queue) for queue in queues]

    def start(self, step: int, joined: bool) -> None:
        """Begins to update in a thread of its own, from global step `step` to the limit.

        A chief before this one may have taken gradients that it never applied, and their workers
        wait: each gets a token for the present step.
        """
        self._error, session = None, self._worker.session
        if joined:
            session.run(self._restart)
        threading.Thread(target=self._work, args=(session, step), daemon=True).start()

    def check(self) -> None:
        """Raises what ended the updates before the limit."""
        if self._error:
            raise self._error

    def _work(self, session: Any, step: int) -> None:
        options, stop = self._worker.options, self._worker.stop
        try:
            while step < options.steps and not stop.requested:
                _, *senders = session.run(self._update)
                step += 1
                if senders:
                    self._log(step, *senders)
            if not stop.requested:
                session.run(self._end)
        except Exception as error:
            self._error = error
            with contextlib.suppress(tf.errors.OpError, RuntimeError):
                session.run(self._worker.end_own)

    def _one_update(self, accumulator: Any, queues: list[Any]) -> list[Any]:
        """One update: the operations to run and, where it is logged, the mean of the senders of its
        gradients."""
        worker, shared = self._worker, self._worker.shared
        sizes = shared.layout.sizes
        with tf.device(SHARED):
            taken = accumulator.take_grad(worker.gradients)  # g: (all numbers + 2 · workers,)
            # Slices: `tf.split` would copy them.
            ends = [*itertools.accumulate(sizes)]
            gradients = [taken[end - size : end] for size, end in zip(sizes, ends, strict=True)]
            sender = taken[ends[-1] :]
            with tf.control_dependencies([taken]):
                rate = worker.schedule(tf.cast(shared.step.read_value(), tf.float32))
        applied = []  # w ← w − η(step) · g; of each ps: (numbers there,)
        for flat, gradient in zip(shared.flats, gradients, strict=True):
            with tf.device(flat.device):
                applied.append(subtract(flat, rate, gradient))
        with tf.device(SHARED), tf.control_dependencies(applied):
            step = tf.identity(shared.step.assign_add(1))  # step ← step + 1
        averaged = shared.average(step)
        with tf.device(SHARED), tf.control_dependencies(applied):
            updated = [*averaged, *_give(step, queues)]
        return [updated, sender] if worker.options.log_batches else [updated]

    def _log(self, step: int, sender: Any) -> None:
        record = {"step": step, "batches": self._batches(sender)}
        with open(self._worker.options.log_batches, "a", encoding="utf-8") as log:
            log.write(json.dumps(record) + "\n")

    def _batches(self, sender: Any) -> list[tuple[int, int]]:
        """Worker and batch number of each gradient in an update, from the mean of their senders.

        Of a worker that has two of them in it, which a restart may cause, the sum of both numbers.
        """
        workers = len(self._worker.role.clients)
        shares, numbers = sender.reshape(2, workers)
        one = shares[shares > 0].min()
        return [
            (worker, round(float(numbers[worker] / one)))
            for worker in range(workers)
            if shares[worker]
        ]


def _end(queue: Any) -> Any:
    """Tokens that end a worker: what its present call still takes, and the whole next one."""
    return queue.enqueue_many([tf.fill([2 * SEVERAL], tf.constant(END, tf.int64))])


def _give(step: Any, queues: list[Any]) -> list[Any]:
    """A token for each queue; who has one unread computes with the new weights anyway."""
    given = []
    for queue in queues:
        with tf.control_dependencies([step]):
            empty = tf.equal(queue.size(), 0)
        enqueue = lambda queue=queue: tf.group(queue.enqueue([step]))  # noqa: E731
        given.append(tf.cond(empty, enqueue, tf.no_op))
    return given
