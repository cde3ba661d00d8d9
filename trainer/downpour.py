"""Asynchronous steps that fetch and push only now and then: Downpour SGD (Dean et al., 2012).

The worker trains on a copy of the weights. It pushes what its steps have changed every P steps and
takes over the shared weights every K, instead of both at every step. All steps up to an exchange,
and the exchange, are one call of the session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from trainer.inputs import cut
from trainer.parameters import mean, subtract, variable
from trainer.progress import Step

if TYPE_CHECKING:
    from trainer.stop import Stop
    from trainer.worker import WorkerGraph


class DownpourSteps:
    """Steps on local weights; `base` is local weights less the changes that were not pushed yet.

    So `base - local` is what is to be pushed, without a pass over all weights at every step to add
    it up.
    """

    def __init__(self, part: WorkerGraph) -> None:
        self._part = part
        self._wire = tf.as_dtype(part.options.wire)
        shapes = list(enumerate(part.parameters.layout.shapes))
        with tf.device(part.cpu):
            self._local = [variable(f"local/flat_{number}", shape) for number, shape in shapes]
            self._base = [variable(f"base/flat_{number}", shape) for number, shape in shapes]
            self._rates = tf.compat.v1.placeholder(tf.float32, (None,))
            self._count = tf.compat.v1.placeholder(tf.int64, ())
            shared = self._fetched([])
            self._copy = self._assign(shared, shared, [])
        self._built: dict[tuple[int, bool, bool], list[Any]] = {}
        self._calls: dict[tuple[int, bool, bool], Any] = {}
        self._session: Any = None
        self._taken = self._pending = 0

    def begin(self, session: Any, step: int, stop: Stop, joined: bool) -> None:
        """Takes over the shared weights."""
        self._session = session
        self._calls = {}
        self._pending = 0
        session.run(self._copy)

    def run(self, step: int) -> list[Step]:
        """The steps up to the next exchange, or to the last step.

        Between two pushes the global step counts only this worker's.
        """
        options = self._part.options
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
        part, kind = self._part, (count, push, fetch)
        if kind not in self._built:
            self._built[kind] = self._build(*kind)
        if kind not in self._calls:
            feeds = [*(part.input.feeds if count else []), self._rates, self._count]
            self._calls[kind] = self._session.make_callable(self._built[kind], feeds)
        arrays = part.input.arrays(count) if count else []
        rates = [part.schedule(step + later) for later in range(count)]
        self._taken += count
        self._pending += count
        losses, done, *_ = self._calls[kind](*arrays, rates, self._pending)
        if push:
            self._pending = 0
        return losses, int(done)

    def _build(self, count: int, push: bool, fetch: bool) -> list[Any]:
        part, shared = self._part, self._part.parameters
        losses: list[Any] = []
        last: list[Any] = []
        done: Any = tf.constant(0, tf.int64)
        for number in range(count):
            with tf.device(part.cpu):
                weights = self._read(self._local, last)
                batches = cut(part.input.batch(number), part.devices)
                found, towers = shared.towers(part.devices, weights, batches, part.options.l2)
                losses.append(mean(found))
                last = [
                    subtract(one, self._rates[number], mean(list(column)))
                    for one, *column in zip(self._local, *towers, strict=True)
                ]
        if push:
            with tf.device(part.cpu):
                local, base = self._read(self._local, last), self._read(self._base, last)
                changes = [
                    tf.cast(old - new, self._wire) for old, new in zip(base, local, strict=True)
                ]
            pushed = shared.descend(self._sent(changes), tf.constant(1.0))
            done = shared.count(pushed, self._count)
            averaged = shared.average(done) if part.role.is_chief else []
            last = [done, *pushed, *averaged, *base, *local]
        with tf.device(part.cpu):
            if fetch and push:
                fetched = self._fetched(last)
                last = self._assign(fetched, fetched, [*fetched, *last])
            elif fetch:
                fetched = self._fetched(last)
                local, base = self._read(self._local, last), self._read(self._base, last)
                moved = [w + new - old for w, new, old in zip(fetched, local, base, strict=True)]
                last = self._assign(moved, fetched, [*moved, *local, *base])
            elif push:
                last = self._assign([], local, last)
        with tf.device(part.cpu):
            return [tf.stack(losses) if losses else tf.zeros(0), done, *last]

    def _assign(self, local: list[Any], base: list[Any], after: list[Any]) -> list[Any]:
        """Sets the local weights, where there are new ones, and the base."""
        with tf.control_dependencies(after):
            return [
                variable.assign(value, read_value=False)
                for variables, values in ((self._local, local), (self._base, base))
                for variable, value in zip(variables, values, strict=False)
            ]

    def _read(self, variables: list[Any], after: list[Any]) -> list[Any]:
        with tf.control_dependencies(after):
            return [one.read_value() for one in variables]

    def _fetched(self, after: list[Any]) -> list[Any]:
        """The shared weights as they are after `after`."""
        fetched = []
        for flat in self._part.parameters.flats:
            with tf.device(flat.device), tf.control_dependencies(after):
                fetched.append(tf.cast(flat.read_value(), self._wire))
        return [tf.cast(weights, tf.float32) for weights in fetched]

    def _sent(self, changes: list[Any]) -> list[Any]:
        sent = []
        for flat, change in zip(self._part.parameters.flats, changes, strict=True):
            with tf.device(flat.device):
                sent.append(tf.cast(change, tf.float32))
        return sent
