"""`async` and `in-graph`: gradients are applied as they come, whatever others did meanwhile.

Every step fetches all weights and pushes all gradients. Several steps are one call of the session:
they are built one after the other into the graph, each fetch after the push before it, and what
lies between them never waits for Python.
"""

from typing import Any

import tensorflow as tf

from trainer.model import Schedule
from trainer.modes import Context
from trainer.parameters import Parameters, mean
from trainer.progress import Step
from trainer.worker import Worker


def train(context: Context) -> None:
    """Trains as one of the workers, or as the only client of all workers' devices."""
    from trainer.downpour import DownpourWorker

    options = context.options
    worker: type[Worker] = InGraphWorker if options.mode == "in-graph" else AsyncWorker
    if worker is AsyncWorker and max(options.fetch_every, options.push_every) > 1:
        worker = DownpourWorker
    worker(context).train()


class AsyncWorker(Worker):
    """Fetches all weights and pushes all gradients at every step."""

    def build(self) -> None:
        self._count = self.options.steps_per_call
        self._built = {count: self.build_call(count, self.devices) for count in {self._count, 1}}

    def call(self, step: int) -> list[Step]:
        left = self.options.steps - step
        # Near the end steps are taken one by one, so that not every worker adds a whole call.
        count = self._count if left > 4 * self._count * len(self.role.clients) else 1
        return self.run_call(self._built[count])

    def run_call(self, built: list[Any]) -> list[Step]:
        """Runs a call; its steps."""
        losses, before, after, *_ = self.session.run(built)
        return [
            Step(float(loss), int(done), int(done - seen) - 1)
            for loss, seen, done in zip(losses, before, after, strict=True)
        ]

    def build_call(self, count: int, devices: list[str]) -> list[Any]:
        """The operations of `count` steps: losses, global steps before and after, the pushes."""
        where = devices if self.everywhere else [self.cpu]
        steps = []
        last: list[Any] | None = None
        for _, batch in self.input.batches(count):
            loss, seen, pushed = fetch_and_push(
                self.shared, self.schedule, batch, devices, where, last
            )
            done = self.shared.count(pushed[:1])
            if self.role.is_chief:
                with tf.control_dependencies(pushed):
                    averaged = self.shared.average(done)
                pushed = [tf.group(*pair) for pair in zip(pushed, averaged, strict=True)]
            last = [tf.group(pushed[0], done), *pushed[1:]]
            steps.append((loss, seen, done))
        losses, before, after = zip(*steps, strict=True)
        with tf.device(self.cpu):
            fetched = tf.stack(losses)
        with tf.device(self.shared.step.device):
            return [fetched, tf.stack(before), tf.stack(after), *(last or [])]


class InGraphWorker(AsyncWorker):
    """The same on the devices of all workers, whose gradients are averaged on the ps."""

    everywhere = True


def fetch_and_push(
    shared: Parameters,
    schedule: Schedule,
    batch: tuple[Any, Any],
    devices: list[str],
    where: list[str],
    last: list[Any] | None,
) -> tuple[Any, Any, list[Any]]:
    """One step after the pushes `last`: its loss, the global step at its fetch, its pushes.

    Gradients are sent from `where`: all of `devices`, or one that averages them.
    """
    with tf.device(shared.step.device), tf.control_dependencies((last or [])[:1]):
        seen = shared.step.read_value()
        rate = schedule(tf.cast(seen, tf.float32))
    with tf.device(where[0]):
        loss, columns = shared.gradients(devices, shared.fetch(last), batch)
        if len(where) < len(devices):
            columns = [[mean(column)] for column in columns]
    return loss, seen, shared.descend(shared.send(columns, where), rate)
