"""Downpour SGD (Dean et al., 2012): asynchronous steps that fetch and push only now and then.

The worker trains on a copy of the weights. It pushes what its steps have changed every P steps and
takes over the shared weights every K, instead of both at every step. All steps up to an exchange,
and the exchange, are one call of the session.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from trainer.parameters import mean, subtract, variable
from trainer.progress import Step
from trainer.stop import Stop
from trainer.worker import TrainStep, WorkerGraph


class DownpourStep(TrainStep):
    """Steps on local weights; `base` is local weights less the changes that were not pushed yet.

    So `base - local` is what is to be pushed, without a pass over all weights at every step to add
    it up.
    """

    def __init__(self, graph: WorkerGraph) -> None:
        super().__init__(graph)
        shapes = list(enumerate(graph.parameters.layout.shapes))
        with tf.device(graph.cpu):
            self._local = [variable(f"local/flat_{number}", shape) for number, shape in shapes]
            self._base = [variable(f"base/flat_{number}", shape) for number, shape in shapes]
            self._rates = tf.compat.v1.placeholder(tf.float32, (None,))
            self._count = tf.compat.v1.placeholder(tf.int64, ())
            shared = graph.parameters.fetch()
            self._copy = self._assign(shared, shared, [])
        self._built: dict[tuple[int, bool, bool], list[Any]] = {}
        self._taken = self._pending = 0

    def begin(self, session: Any, step: int, stop: Stop, joined: bool) -> None:
        """Takes over the shared weights."""
        super().begin(session, step, stop, joined)
        self._pending = 0
        session.run(self._copy)

    def run(self, step: int) -> list[Step]:
        """The steps up to the next exchange, or to the last step.

        Between two pushes the global step counts only this worker's.
        """
        options = self.graph.options
        until_fetch = options.fetch_every - self._taken % options.fetch_every
        until_push = options.push_every - self._pending
        count = max(1, min(until_fetch, until_push, options.steps - step))
        losses, done = self._call(count, step, count == until_push, count == until_fetch)
        return [
            Step(float(loss), int(done) - count + number if done else step + number)
            for number, loss in enumerate(losses, 1)
        ]

    def flush(self) -> None:
        """Pushes what has not been pushed yet."""
        if self._pending:
            self._call(0, 0, True, False)

    def _call(self, count: int, step: int, push: bool, fetch: bool) -> tuple[Any, int]:
        """Runs `count` steps and then what is due; their losses, and the global step if pushed."""
        kind = (count, push, fetch)
        if kind not in self._built:
            self._built[kind] = self._build(*kind)
        self._taken += count
        self._pending += count
        rates = [self.graph.training.schedule(step + later) for later in range(count)]
        feed = {self._rates: rates, self._count: self._pending}
        losses, done, *_ = self.session.run(self._built[kind], feed)
        if push:
            self._pending = 0
        return losses, int(done)

    def _build(self, count: int, push: bool, fetch: bool) -> list[Any]:
        graph, shared = self.graph, self.graph.parameters
        losses: list[Any] = []
        last: list[Any] = []
        done: Any = tf.constant(0, tf.int64)
        with tf.device(graph.cpu):
            for number, (_, batch) in enumerate(graph.input.batches(count)):
                weights = _read(self._local, last)
                loss, columns = shared.gradients(graph.devices, weights, batch)
                losses.append(loss)
                last = [
                    subtract(one, self._rates[number], mean(column))
                    for one, column in zip(self._local, columns, strict=True)
                ]
            if push:
                local, base = _read(self._local, last), _read(self._base, last)
                changes = [[old - new] for old, new in zip(base, local, strict=True)]
                pushed = shared.descend(shared.send(changes, [graph.cpu]), tf.constant(1.0))
                done = shared.count(pushed, self._count)
                averaged = shared.average(done) if graph.role.is_chief else []
                last = [done, *pushed, *averaged, *base, *local]
            if fetch:
                fetched = shared.fetch([tf.group(*last)] * len(shared.flats))
            if fetch and push:
                last = self._assign(fetched, fetched, [*fetched, *last])
            elif fetch:
                local, base = _read(self._local, last), _read(self._base, last)
                moved = [w + new - old for w, new, old in zip(fetched, local, base, strict=True)]
                last = self._assign(moved, fetched, [*moved, *local, *base])
            elif push:
                last = self._assign([], local, last)
            return [tf.stack(losses) if losses else tf.zeros(0), done, *last]

    def _assign(self, local: list[Any], base: list[Any], after: list[Any]) -> list[Any]:
        """Sets the local weights, where there are new ones, and the base."""
        with tf.control_dependencies(after):
            return [
                variable.assign(value, read_value=False)
                for variables, values in ((self._local, local), (self._base, base))
                for variable, value in zip(variables, values, strict=False)
            ]


def _read(variables: list[Any], after: list[Any]) -> list[Any]:
    with tf.control_dependencies(after):
        return [one.read_value() for one in variables]
