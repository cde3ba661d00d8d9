"""Downpour SGD (Dean et al., 2012): asynchronous steps that fetch and push only now and then.

    ps:      w (all weights), step
    worker:  repeat
                 every K steps:  local ← w + what was not pushed yet
                 g ← ∇loss(local, batch)
                 local ← local − η(step) · g
                 every P steps:  w ← w + what has changed since the last push;  step ← step + P

Nobody waits for anybody. K is `--fetch-every`, P `--push-every`. All steps until nothing is left to
push, and the exchanges between them, are one call of the session.
"""

import math
from typing import Any

import tensorflow as tf

from trainer.exceptions import UsageError
from trainer.modes import Context
from trainer.parameters import average_gradients, mean
from trainer.progress import Step
from trainer.worker import Worker

LONGEST = 1000


class DownpourWorker(Worker):
    """Calls that begin with a fetch and end with a push."""

    def __init__(self, context: Context) -> None:
        fetch, push = context.options.fetch_every, context.options.push_every
        self._count = math.lcm(fetch, push)
        if self._count > max(LONGEST, fetch, push):
            raise UsageError(
                f"--fetch-every={fetch} and --push-every={push} come together only every "
                f"{self._count} steps; choose numbers with a common multiple up to {LONGEST}"
            )
        super().__init__(context)

    def build_graph(self) -> None:
        self._steps: dict[int, list[Any]] = {}

    def take_steps(self, step: int) -> list[Step]:
        count = min(self._count, self.options.steps - step)
        if count not in self._steps:
            self._steps[count] = self._steps_in_a_row(count)
        losses, done, *_ = self.session.run(self._steps[count])
        return [Step(float(loss), int(done) - count + n) for n, loss in enumerate(losses, 1)]

    def _steps_in_a_row(self, count: int) -> list[Any]:
        """The operations of `count` steps: losses, shape (count,), the global step after them, the
        last push.

        `base` is the local weights less the changes that were not pushed yet.
        """
        shared, options = self.shared, self.options
        with tf.device(shared.step.device):
            first = tf.cast(shared.step.read_value(), tf.float32)
        losses: list[Any] = []
        pushed: list[Any] = []
        counted = 0
        local = base = self._fetch([])  # of each ps: (numbers there,)
        for number, (_, parts) in enumerate(self.input.batches(count), 1):
            with tf.device(self.cpu):  # local ← local − η(step) · ∇loss(local, batch)
                loss, gradients = self._gradients(local, parts)
                losses.append(loss)
                rate = self.schedule(first + (number - 1))
                local = [old - rate * one for old, one in zip(local, gradients, strict=True)]

            if number == count or number % options.push_every == 0:
                with tf.device(self.cpu), tf.control_dependencies(pushed):
                    changes = [new - old for new, old in zip(local, base, strict=True)]
                done, pushed = self._push(changes, number - counted)
                base, counted = local, number

            if number < count and number % options.fetch_every == 0:
                fetched = self._fetch([*pushed, *local])
                with tf.device(self.cpu):  # local ← w + what was not pushed yet
                    if counted == number:
                        local = fetched
                    else:
                        changes = [new - old for new, old in zip(local, base, strict=True)]
                        local = [w + one for w, one in zip(fetched, changes, strict=True)]
                base = fetched
        with tf.device(self.cpu):
            return [tf.stack(losses), done, *pushed]

    def _fetch(self, after: list[Any]) -> list[Any]:
        """The weights of each ps, shape (numbers there,), read when `after` is done."""
        with tf.device(self.cpu), tf.control_dependencies(after):
            begin = [tf.no_op()] if after else []  # one message to each ps
        fetched = []
        for flat in self.shared.flats:
            with tf.device(flat.device), tf.control_dependencies(begin):
                fetched.append(flat.read_value())
        return fetched

    def _gradients(self, local: list[Any], parts: list[tuple[Any, Any]]) -> tuple[Any, list[Any]]:
        """The loss, and of each ps the gradient of its weights, shape (numbers there,).

        `parts` are a batch a device: images, shape (batch, 784), and labels, shape (batch,).
        """
        losses, tower_gradients = self.tower_gradients(local, parts)
        return mean(losses), average_gradients(tower_gradients)

    def _push(self, changes: list[Any], steps: int) -> tuple[Any, list[Any]]:
        """`w ← w + changes; step ← step + steps`: the global step after them, all operations."""
        shared = self.shared
        pushed = []
        for flat, change in zip(shared.flats, changes, strict=True):
            with tf.device(flat.device):
                pushed.append(flat.assign_add(change, read_value=False))
        with tf.device(shared.step.device), tf.control_dependencies(pushed):
            done = tf.identity(shared.step.assign_add(steps))
        averaged = shared.average(done) if self.role.is_chief else []
        return done, [done, *pushed, *averaged]
