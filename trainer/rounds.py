"""What `synchronous.py` needs to run well: several steps in a call, restarts, ends.

A worker's steps stand one after the other in the graph, several in one call of its session: what
lies between them does not wait for Python. The chief asks for the updates in a thread of its own.
Tokens of an earlier attempt are forgotten at a start; the token `END` ends whoever takes it. Behind
the gradients travel a few more numbers, for `batch_log`: which worker's which batch they are of.
"""

import contextlib
import threading
from typing import Any, TypeAlias

import tensorflow as tf

from trainer.batch_log import BatchLog
from trainer.progress import Step
from trainer.worker import Worker

Batch: TypeAlias = tuple[Any, list[tuple[Any, Any]]]
"""Its number, and a batch a device: images, shape (batch, 784), and labels, shape (batch,)."""
SHARED = "/job:ps/task:0/device:CPU:0"
END = -1
"""The token that ends the worker that takes it."""
SEVERAL = 10
"""Steps of a worker in one call, which returns when each of them has its token."""
CAPACITY = 256
"""Tokens that a queue holds: those of the steps before the present one are forgotten at a start."""


class RoundWorker(Worker):
    """A worker of rounds: each ends with an update, which the chief makes of gradients of several.

    Attributes:
        accumulator: Where gradients wait for their update; it takes none of earlier steps.
        queues: Of tokens, one a worker.
        tokens: This worker's own queue.
    """

    def one_step(self, batch: Batch, before: list[Any]) -> tuple[Any, Any]:
        """One step after the one `before`: fetch, compute, push, wait for a token.

        Returns:
            The loss and, shape (3,), the global steps at fetch and push, and the token, which is
            the step after the update.
        """
        raise NotImplementedError

    def one_update(self) -> tuple[list[Any], Any]:
        """One update by the chief: the operations to run, and the mean of the senders of its
        gradients, shape (2 · workers,)."""
        raise NotImplementedError

    def build_graph(self) -> None:
        workers = len(self.role.clients)
        numbers = sum(self.shared.layout.sizes) + 2 * workers
        with tf.device(SHARED):
            self.accumulator = tf.compat.v1.ConditionalAccumulator(
                tf.float32, (numbers,), shared_name="gradients"
            )
            self.queues = [
                tf.queue.FIFOQueue(CAPACITY, [tf.int64], [()], shared_name=f"tokens_{number}")
                for number in range(workers)
            ]
            self.tokens = own = self.queues[self.role.number]
            self._forget_tokens = own.dequeue_many(own.size())
            self.end_own = _end(own)
        self._steps = {count: self._steps_in_a_row(count) for count in (SEVERAL, 1)}
        self._watching = False
        self._updates = Updates(self) if self.role.is_chief else None

    def forget(self) -> None:
        """Forgets tokens of an earlier attempt. Those that end a worker come after the last step:
        a worker that has them forgotten sees that step, and takes none."""
        self.session.run(self._forget_tokens)

    def begin(self, step: int, joined: bool) -> None:
        """The chief starts to update."""
        if self._updates:
            self._updates.start(step, joined)
        if self._updates and not self._watching:
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
        if self._updates:
            self._updates.check()
        else:
            self.session.run(self.end_own)  # stays for whoever takes this worker's place
        return []

    def _end_on_signal(self) -> None:
        self.stop.wait()
        with contextlib.suppress(tf.errors.OpError, RuntimeError):  # the ps may be gone
            self.session.run(self.end_own)

    def _steps_in_a_row(self, count: int) -> tuple[Any, Any]:
        """`count` steps: their losses, shape (count,), and of each the global steps at its fetch
        and its push, and its token, shape (count, 3)."""
        losses: list[Any] = []
        steps_seen: list[Any] = []
        for batch in self.input.batches(count):
            loss, seen = self.one_step(batch, steps_seen[-1:])
            losses.append(loss)
            steps_seen.append(seen)
        with tf.device(self.cpu):
            all_losses = tf.stack(losses)
        with tf.device(SHARED):
            return all_losses, tf.stack(steps_seen)

    def sender(self, number: Any) -> Any:
        """Whose gradients these are, shape (2 · workers,): 1 at the worker, and at the worker in
        the second half the number of its batch."""
        workers, me = len(self.role.clients), self.role.number
        batch = tf.one_hot(workers + me, 2 * workers) * tf.cast(number, tf.float32)
        return tf.one_hot(me, 2 * workers) + batch


class Updates:
    """The chief's side: takes the mean of fresh gradients, applies it, tells the workers.

    Everything happens on the ps; the chief only says that one more update comes.
    """

    def __init__(self, worker: RoundWorker) -> None:
        self._worker = worker
        self._error: BaseException | None = None
        updated, sender = worker.one_update()
        self._log = BatchLog(worker.options.log_batches, len(worker.role.clients))
        self._update = [updated, sender] if worker.options.log_batches else [updated]
        with tf.device(SHARED):
            step = worker.shared.step.read_value()
            others = [queue for n, queue in enumerate(worker.queues) if n != worker.role.number]
            self._restart = [worker.accumulator.set_global_step(step), *give(step, others)]
            self._end = [_end(queue) for queue in worker.queues]

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
                for sender in senders:
                    self._log.write(step, sender)
            if not stop.requested:
                session.run(self._end)
        except Exception as error:
            self._error = error
            with contextlib.suppress(tf.errors.OpError, RuntimeError):
                session.run(self._worker.end_own)


def _end(queue: Any) -> Any:
    """Tokens that end a worker: what its present call still takes, and the whole next one."""
    return queue.enqueue_many([tf.fill([2 * SEVERAL], tf.constant(END, tf.int64))])


def give(step: Any, queues: list[Any]) -> list[Any]:
    """A token for each queue; who has one unread computes with the new weights anyway."""
    given = []
    for queue in queues:
        with tf.control_dependencies([step]):
            empty = tf.equal(queue.size(), 0)
        enqueue = lambda queue=queue: tf.group(queue.enqueue([step]))  # noqa: E731
        given.append(tf.cond(empty, enqueue, tf.no_op))
    return given
