"""`sync`: the gradients of several workers are averaged into one update.

The mechanism is that of TensorFlow's `SyncReplicasOptimizer`, with its two weak points mended.
All gradients of a worker are one tensor in one `ConditionalAccumulator`: with one accumulator a
variable, two variables may average different batches. And a worker waits in a queue of its own:
with one token queue for all, a fast worker takes what a slow one needs, and whoever comes last
waits for tokens that nobody makes any more.
"""

import contextlib
import json
import os
import threading
from typing import Any

import tensorflow as tf

from trainer.errors import UsageError
from trainer.modes import Context
from trainer.parameters import ROW, mean
from trainer.progress import Step
from trainer.worker import Worker

SHARED = "/job:ps/task:0/device:CPU:0"
END = -1
# Tokens that end a call of any worker, however many steps it has; and room for them many times, as
# a chief may come back. The same for all: not every worker has the same --steps-per-call.
ENOUGH = 256
CAPACITY = 16 * ENOUGH


def train(context: Context) -> None:
    """Trains as one of the workers."""
    options = context.options
    if options.log_batches and context.role.is_chief:
        try:
            open(options.log_batches, "a", encoding="utf-8").close()
        except OSError as error:
            path = options.log_batches
            raise UsageError(f"--log-batches={path}: {error.strerror}") from None
    options.replicas_to_aggregate = options.replicas_to_aggregate or len(context.role.clients)
    SyncWorker(context, gradients=options.replicas_to_aggregate).train()


class SyncWorker(Worker):
    """Pushes one batch's gradients a step, then waits until the chief's update is done.

    Behind the gradients travel a few more numbers: which worker's which batch they are of.
    """

    def build(self) -> None:
        workers = len(self.role.clients)
        rows = sum(shape[0] for shape in self.shared.layout.shapes)
        self._sender_rows = -(-2 * workers // ROW)
        with tf.device(SHARED):
            accumulator = tf.compat.v1.ConditionalAccumulator(
                tf.float32, (rows + self._sender_rows, ROW), shared_name="gradients"
            )
            tokens = [
                tf.queue.FIFOQueue(CAPACITY, [tf.int64], [()], shared_name=f"tokens_{number}")
                for number in range(workers)
            ]
            self._accumulator, self._mine = accumulator, tokens[self.role.number]
            self._drain = self._mine.dequeue_many(self._mine.size())
            self.end_mine = _end(self._mine)
        self._count = self.options.steps_per_call
        self._built = {count: self._build(count) for count in {self._count, 1}}
        self._watching = False
        self._update = Update(self, accumulator, tokens) if self.role.is_chief else None

    def begin(self, step: int, joined: bool) -> None:
        """Forgets tokens of an earlier attempt; the chief starts to update."""
        self.session.run(self._drain)
        if self._update:
            self._update.start(step, joined)
        if self._update and not self._watching:
            self._watching = True
            # Told to end, the chief may be waiting for a token that no other worker helps to make.
            threading.Thread(target=self._end_on_signal, daemon=True).start()

    def call(self, step: int) -> list[Step]:
        """The steps of one call, up to the update that was the last."""
        count = self._count if self.options.steps - step >= self._count else 1
        losses, before, late, tokens, *_ = self.session.run(self._built[count])
        steps = []
        for loss, seen, at, token in zip(losses, before, late, tokens, strict=True):
            if token == END:
                break
            steps.append(Step(float(loss), int(token), int(at - seen), bool(at > seen)))
        if not steps and self._update:
            self._update.check()
        elif not steps:
            self.session.run(self.end_mine)  # stays for whoever takes this worker's place
        return steps

    def _end_on_signal(self) -> None:
        self.stop.wait()
        with contextlib.suppress(tf.errors.OpError, RuntimeError):  # the ps may be gone
            self.session.run(self.end_mine)

    def _build(self, count: int) -> list[Any]:
        """The operations of `count` steps: losses, steps before and at the push, tokens."""
        rows: list[tuple[Any, ...]] = []
        for batch in self.input.batches(count):
            rows.append(self._step(*batch, [rows[-1][-1]] if rows else []))
        losses, before, late, tokens = zip(*rows, strict=True)
        with tf.device(self.cpu):
            fetched = tf.stack(losses)
        with tf.device(SHARED):
            return [fetched, tf.stack(before), tf.stack(late), tf.stack(tokens)]

    def _step(self, number: Any, batch: tuple[Any, Any], after: list[Any]) -> tuple[Any, ...]:
        """One step after the token `after`: fetch, compute, push, wait for a token."""
        shared = self.shared
        # The step is read before the weights: weights that change in between are newer than
        # their label, and the accumulator takes them for stale instead of for fresh.
        with tf.device(SHARED), tf.control_dependencies(after):
            seen = tf.identity(shared.step.read_value())
        wire = tf.as_dtype(self.options.wire)
        with tf.device(self.cpu):
            flats = shared.fetch([seen] * len(shared.flats))
            loss, columns = shared.gradients(self.devices, flats, batch)
            sent = tf.cast(tf.concat([mean(column) for column in columns], 0), wire)
            sender = self._sender(number)
        with tf.device(SHARED):
            with tf.control_dependencies([sent]):
                late = tf.identity(shared.step.read_value())
            gradient = tf.concat([tf.cast(sent, tf.float32), sender], 0)
            with tf.control_dependencies([late]):
                pushed = self._accumulator.apply_grad(gradient, local_step=seen)
            with tf.control_dependencies([pushed]):
                token = self._mine.dequeue()
        return loss, seen, late, token

    def _sender(self, number: Any) -> Any:
        """Rows that name this gradient: 1 for its worker, and the number of its batch."""
        workers, me = len(self.role.clients), self.role.number
        size = self._sender_rows * ROW
        batches = tf.one_hot(workers + me, size) * tf.cast(number, tf.float32)
        return tf.reshape(tf.one_hot(me, size) + batches, (-1, ROW))


class Update:
    """The chief's side: takes the mean of fresh gradients, applies it, tells the workers.

    Everything happens on the ps; the chief only says how many updates come next.
    """

    def __init__(self, worker: SyncWorker, accumulator: Any, tokens: list[Any]) -> None:
        self._worker, self._tokens = worker, tokens
        self._error: BaseException | None = None
        self._count = worker.options.steps_per_call
        self._built = {count: self._build(count, accumulator) for count in {self._count, 1}}
        with tf.device(SHARED):
            step = worker.shared.step.read_value()
            others = [q for n, q in enumerate(tokens) if n != worker.role.number]
            self._restart = [accumulator.set_global_step(step), *_give(step, others)]
            self._end = [_end(queue) for queue in tokens]

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
            with open(options.log_batches or os.devnull, "a", encoding="utf-8") as log:
                while step < options.steps and not stop.requested:
                    count = self._count if options.steps - step >= self._count else 1
                    for sender in session.run(self._built[count])[0]:
                        step += 1
                        line = {"step": step, "batches": self._batches(sender)}
                        log.write(json.dumps(line) + "\n")
                    log.flush()
            if not stop.requested:
                session.run(self._end)
        except Exception as error:
            self._error = error
            with contextlib.suppress(tf.errors.OpError, RuntimeError):
                session.run(self._worker.end_mine)

    def _build(self, count: int, accumulator: Any) -> list[Any]:
        """The operations of `count` updates: the senders of their gradients, and the rest."""
        worker, shared = self._worker, self._worker.shared
        sizes = [shape[0] for shape in shared.layout.shapes]
        senders: list[Any] = []
        last: list[Any] = []
        for _ in range(count):
            with tf.device(SHARED):
                with tf.control_dependencies(last):
                    taken = accumulator.take_grad(worker.options.replicas_to_aggregate)
                    before = shared.step.read_value()
                *gradients, sender = tf.split(taken, [*sizes, taken.shape[0] - sum(sizes)])
                with tf.control_dependencies([taken]):
                    rate = worker.schedule(tf.cast(before, tf.float32))
            applied = shared.descend(gradients, rate)
            step = shared.count(applied)
            averaged = shared.average(step)
            with tf.device(SHARED), tf.control_dependencies(applied):
                last = [*averaged, *_give(step, self._tokens)]
            senders.append(tf.reshape(sender, [-1]))
        with tf.device(SHARED):
            return [tf.stack(senders), *last]

    def _batches(self, sender: Any) -> list[tuple[int, int]]:
        """Worker and batch number of each gradient in an update, from the mean of their senders.

        Of a worker that has two of them in it, which a restart may cause, the sum of both numbers.
        """
        workers = len(self._worker.role.clients)
        shares, numbers = sender[: 2 * workers].reshape(2, workers)
        one = shares[shares > 0].min()
        return [
            (worker, round(float(numbers[worker] / one)))
            for worker in range(workers)
            if shares[worker]
        ]


def _end(queue: Any) -> Any:
    """Tokens that end whoever waits at `queue`."""
    return queue.enqueue_many([tf.fill([ENOUGH], tf.constant(END, tf.int64))])


def _give(step: Any, queues: list[Any]) -> list[Any]:
    """A token for each queue; who has one unread computes with the new weights anyway."""
    given = []
    for queue in queues:
        with tf.control_dependencies([step]):
            empty = tf.equal(queue.size(), 0)
        enqueue = lambda queue=queue: tf.group(queue.enqueue([step]))  # noqa: E731
        given.append(tf.cond(empty, enqueue, tf.no_op))
    return given
