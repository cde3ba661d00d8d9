"""`async` and `in-graph`: gradients are applied as they come, whatever others did meanwhile.

Every step fetches all weights and pushes all gradients. Several steps are one call of the session:
they are built one after the other into the graph, each fetch after the push before it, and what
lies between them never waits for Python.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from trainer.data import Dataset
from trainer.flags import Options
from trainer.model import Schedule
from trainer.parameters import Parameters, mean
from trainer.progress import Step
from trainer.role import Role
from trainer.stop import Stop
from trainer.worker import TrainStep, Worker, WorkerGraph


def train(role: Role, options: Options, dataset: Dataset, stop: Stop) -> None:
    """Trains as one of the workers, or as the only client of all workers' devices."""
    from trainer.downpour import DownpourStep

    steps: type[TrainStep] = InGraphStep if options.mode == "in-graph" else AsyncStep
    if steps is AsyncStep and max(options.fetch_every, options.push_every) > 1:
        steps = DownpourStep
    Worker(role, options, dataset, steps).train(stop)


class AsyncStep(TrainStep):
    """Fetches all weights and pushes all gradients at every step."""

    def __init__(self, graph: WorkerGraph) -> None:
        super().__init__(graph)
        self._count = graph.options.steps_per_call
        self._built = {count: self._build(count) for count in {self._count, 1}}

    def run(self, step: int) -> list[Step]:
        """Runs one call."""
        left = self.graph.options.steps - step
        # Near the end steps are taken one by one, so that not every worker adds a whole call.
        count = self._count if left > 4 * self._count * self.graph.role.trainers else 1
        losses, before, after, *_ = self.session.run(self._built[count])
        return [
            Step(float(loss), int(done), int(done - seen) - 1)
            for loss, seen, done in zip(losses, before, after, strict=True)
        ]

    def _build(self, count: int) -> list[Any]:
        """The operations of `count` steps: losses, global steps before and after, the pushes."""
        graph, shared = self.graph, self.graph.parameters
        where = graph.devices if self.everywhere else [graph.cpu]
        steps = []
        last: list[Any] | None = None
        for _, batch in graph.input.batches(count):
            loss, seen, pushed = fetch_and_push(
                shared, graph.training.schedule, batch, graph.devices, where, last
            )
            done = shared.count(pushed[:1])
            if graph.role.is_chief:
                with tf.control_dependencies(pushed):
                    averaged = shared.average(done)
                pushed = [tf.group(*pair) for pair in zip(pushed, averaged, strict=True)]
            last = [tf.group(pushed[0], done), *pushed[1:]]
            steps.append((loss, seen, done))
        losses, before, after = zip(*steps, strict=True)
        with tf.device(graph.cpu):
            fetched = tf.stack(losses)
        with tf.device(shared.step.device):
            return [fetched, tf.stack(before), tf.stack(after), *(last or [])]


class InGraphStep(AsyncStep):
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
        rate = schedule.tensor(seen)
    with tf.device(where[0]):
        loss, columns = shared.gradients(devices, shared.fetch(last), batch)
        if len(where) < len(devices):
            columns = [[mean(column)] for column in columns]
    return loss, seen, shared.descend(shared.send(columns, where), rate)
