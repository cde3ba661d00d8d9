"""`sync`: the gradients of several workers are averaged into one update.

The mechanism is that of TensorFlow's `SyncReplicasOptimizer`, with its two weak points mended.
All gradients of a worker are one tensor in one `ConditionalAccumulator`: with one accumulator a
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

from trainer.inputs import cut
from trainer.parameters import ROW, mean
from trainer.progress import Step
from trainer.worker import Worker

if TYPE_CHECKING:
    from trainer.data import Dataset
    from trainer.flags import Options
    from trainer.role import Role
    from trainer.stop import Stop
    from trainer.worker import WorkerGraph

SHARED = "/job:ps/task:0/device:CPU:0"
OVER = -1
# Tokens that end a call of any worker, however many steps it has; and room for them many times, as
# a chief may come back. The same for all: not every worker has the same --steps-per-call.
ENOUGH = 256
CAPACITY = 16 * ENOUGH


def train(role: Role, options: Options, dataset: Dataset, stop: Stop) -> None:
    """Trains as one of the workers."""
    needed = options.replicas_to_aggregate or role.trainers
    Worker(role, options, dataset, "sync", SyncSteps, gradients=needed).train(stop)


class SyncSteps:
    """Pushes one batch's gradients a step, then waits until the chief's update is done.

    Behind the gradients travel a few more numbers: which worker's which batch they are of.
    """

    def __init__(self, part: WorkerGraph) -> None:
        self._part = part
        count, workers = part.options.steps_per_call, part.role.trainers
        rows = sum(shape[0] for shape in part.parameters.layout.shapes)
        self._sender_rows = -(-2 * workers // ROW)
        with tf.device(SHARED):
            self._accumulator = tf.compat.v1.ConditionalAccumulator(
                tf.float32, (rows + self._sender_rows, ROW), shared_name="gradients"
            )
            self._tokens = [
                tf.queue.FIFOQueue(CAPACITY, [tf.int64], [()], shared_name=f"tokens_{number}")
                for number in range(workers)
            ]
            mine = self._tokens[part.role.trainer_number]
            self._drain = mine.dequeue_many(mine.size())
            self._end_mine = mine.enqueue_many([tf.fill([ENOUGH], tf.constant(OVER, tf.int64))])
        with tf.device(part.cpu):
            self._first_batch = tf.compat.v1.placeholder(tf.float32, ())
        self._built = {number: self._build(number, mine) for number in {count, 1}}
        self._calls: dict[int, Any] = {}
        self._taken = 0
        self._session: Any = None
        self._update = None
        self._watching = False
        if part.role.is_chief:
            self._update = Update(part, self._accumulator, self._tokens)

    def begin(self, session: Any, step: int, stop: Stop, joined: bool) -> None:
        """Forgets tokens of an earlier attempt; the chief starts to update."""
        self._session = session
        feeds = [*self._part.input.feeds, self._first_batch]
        self._calls = {
            count: session.make_callable(fetches, feeds) for count, fetches in self._built.items()
        }
        session.run(self._drain)
        if self._update:
            self._update.start(session, step, stop, self._end_mine, joined)
        if self._update and not self._watching:
            self._watching = True
            # Told to end, the chief may be waiting for a token that no other worker helps to make.
            threading.Thread(target=self._end_on, args=(stop,), daemon=True).start()

    def run(self, step: int) -> list[Step]:
        """The steps of one call, up to the update that was the last."""
        left = self._part.options.steps - step
        count = max(self._calls) if left >= max(self._calls) else 1
        arrays = [*self._part.input.arrays(count), self._taken]
        losses, before, late, tokens, *_ = self._calls[count](*arrays)
        self._taken += count
        steps = []
        for loss, seen, at, token in zip(losses, before, late, tokens, strict=True):
            if token == OVER:
                break
            steps.append(Step(float(loss), int(token), int(at - seen), bool(at > seen)))
        if not steps and self._update:
            self._update.check()
        if not steps and not self._update:
            self._session.run(self._end_mine)  # stays for whoever takes this worker's place
        return steps

    def flush(self) -> None:
        """Nothing: every step has been pushed."""

    def _build(self, count: int, mine: Any) -> list[Any]:
        """The operations of `count` steps: losses, steps before and at the push, tokens."""
        rows: list[tuple[Any, ...]] = []
        for number in range(count):
            after = [rows[-1][-1]] if rows else []
            rows.append(self._step(number, after, mine))
        losses, before, late, tokens = zip(*rows, strict=True)
        with tf.device(self._part.cpu):
            fetched = tf.stack(losses)
        with tf.device(SHARED):
            return [fetched, tf.stack(before), tf.stack(late), tf.stack(tokens)]

    def _step(self, number: int, after: list[Any], mine: Any) -> tuple[Any, ...]:
        """One step after the token `after`: fetch, compute, push, wait for a token."""
        part, shared = self._part, self._part.parameters
        # The step is read before the weights: weights that change in between are newer than
        # their label, and the accumulator takes them for stale instead of for fresh.
        with tf.device(SHARED), tf.control_dependencies(after):
            seen = tf.identity(shared.step.read_value())
        wire = tf.as_dtype(part.options.wire)
        fetched = []
        for flat, weights in zip(
            shared.flats, shared.read([seen] * len(shared.flats)), strict=True
        ):
            with tf.device(flat.device):
                fetched.append(tf.cast(weights, wire))
        with tf.device(part.cpu):
            local = [tf.cast(weights, tf.float32) for weights in fetched]
            batches = cut(part.input.batch(number), part.devices)
            losses, towers = shared.towers(part.devices, local, batches, part.options.l2)
            loss = mean(losses)
            means = [mean(list(column)) for column in zip(*towers, strict=True)]
            sent = tf.cast(tf.concat(means, 0), wire)
            sender = self._sender(number)
        with tf.device(SHARED):
            with tf.control_dependencies([sent]):
                late = tf.identity(shared.step.read_value())
            gradient = tf.concat([tf.cast(sent, tf.float32), sender], 0)
            with tf.control_dependencies([late]):
                pushed = self._accumulator.apply_grad(gradient, local_step=seen)
            with tf.control_dependencies([pushed]):
                token = mine.dequeue()
        return loss, seen, late, token

    def _sender(self, number: int) -> Any:
        """Rows that name this gradient: 1 for its worker, and the number of its batch."""
        workers, me = self._part.role.trainers, self._part.role.trainer_number
        size = self._sender_rows * ROW
        ones = tf.one_hot(me, size)
        batches = tf.one_hot(workers + me, size) * (self._first_batch + number)
        return tf.reshape(ones + batches, (-1, ROW))

    def _end_on(self, stop: Stop) -> None:
        stop.wait()
        with contextlib.suppress(tf.errors.OpError, RuntimeError):  # the ps may be gone
            self._session.run(self._end_mine)


class Update:
    """The chief's side: takes the mean of fresh gradients, applies it, tells the workers.

    Everything happens on the ps; the chief only says how many updates come next.
    """

    def __init__(self, part: WorkerGraph, accumulator: Any, tokens: list[Any]) -> None:
        self._part = part
        self._tokens = tokens
        self._needed = part.options.replicas_to_aggregate or part.role.trainers
        self._error: BaseException | None = None
        count = part.options.steps_per_call
        self._built = {number: self._build(number, accumulator) for number in {count, 1}}
        with tf.device(SHARED):
            step = part.parameters.step.read_value()
            others = [q for n, q in enumerate(tokens) if n != part.role.trainer_number]
            self._restart = [accumulator.set_global_step(step), *self._give(step, others)]
            over = tf.fill([ENOUGH], tf.constant(OVER, tf.int64))
            self._end = [queue.enqueue_many([over]) for queue in tokens]

    def start(self, session: Any, step: int, stop: Stop, end_mine: Any, joined: bool) -> None:
        """Begins to update in a thread of its own, from global step `step` to the limit.

        A chief before this one may have taken gradients that it never applied, and their workers
        wait: where there was one, each other worker gets a token for the present step.
        """
        self._error = None
        if joined:
            session.run(self._restart)
        arguments = (session, step, stop, end_mine)
        threading.Thread(target=self._work, args=arguments, daemon=True).start()

    def check(self) -> None:
        """Raises what ended the updates before the limit."""
        if self._error:
            raise self._error

    def _work(self, session: Any, step: int, stop: Stop, end_mine: Any) -> None:
        path, limit = self._part.options.log_batches, self._part.options.steps
        try:
            with open(path or os.devnull, "a", encoding="utf-8") as log:
                while step < limit and not stop.requested:
                    count = max(self._built) if limit - step >= max(self._built) else 1
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
                session.run(end_mine)

    def _build(self, count: int, accumulator: Any) -> list[Any]:
        """The operations of `count` updates: the senders of their gradients, and the rest."""
        shared = self._part.parameters
        sizes = [shape[0] for shape in shared.layout.shapes]
        senders: list[Any] = []
        last: list[Any] = []
        for _ in range(count):
            with tf.device(SHARED):
                with tf.control_dependencies(last):
                    taken = accumulator.take_grad(self._needed)
                    before = shared.step.read_value()
                *gradients, sender = tf.split(taken, [*sizes, taken.shape[0] - sum(sizes)])
                with tf.control_dependencies([taken]):
                    rate = self._part.schedule.tensor(before)
            applied = shared.descend(gradients, rate)
            step = shared.count(applied)
            averaged = shared.average(step)
            with tf.device(SHARED), tf.control_dependencies(applied):
                last = [*averaged, *self._give(step, self._tokens)]
            senders.append(tf.reshape(sender, [-1]))
        with tf.device(SHARED):
            return [tf.stack(senders), *last]

    def _give(self, step: Any, queues: list[Any]) -> list[Any]:
        """A token for each queue; who has one unread computes with the new weights anyway."""
        given = []
        for queue in queues:
            with tf.control_dependencies([step]):
                size = queue.size()
            given.append(
                tf.cond(
                    tf.equal(size, 0),
                    lambda queue=queue: tf.group(queue.enqueue([step])),
                    tf.no_op,
                )
            )
        return given

    def _batches(self, sender: Any) -> list[tuple[int, int]]:
        """Worker and batch number of each gradient in an update, from the mean of their senders.

        The mean is over all that had come, which may be more than were needed. Of a worker that has
        two of them in it, which a restart may cause, the sum of both numbers.
        """
        workers = self._part.role.trainers
        shares, numbers = sender[: 2 * workers].reshape(2, workers)
        one = shares[shares > 0].min()
        return [
            (worker, round(float(numbers[worker] / one)))
            for worker in range(workers)
            if shares[worker]
        ]
