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
from trainer.parameters import mean
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

    def build(self) -> None:
        self._calls: dict[int, list[Any]] = {}

    def take_steps(self, step: int) -> list[Step]:
        count = min(self._count, self.options.steps - step)
        if count not in self._calls:
            self._calls[count] = self._build_steps(count)
        losses, done, *_ = self.session.run(self._calls[count])
        return [Step(float(loss), int(done) - count + n) for n, loss in enumerate(losses, 1)]

    def _build_steps(self, count: int) -> list[Any]:
        """The operations of `count` steps: losses, the global step after them, the rest.

        `base` is the local weights less the changes that were not pushed yet.
        """
        shared, options = self.shared, self.options
        losses: list[Any] = []
        pushed: list[Any] = []
        counted = 0
        with tf.device(shared.step.device):
            first = tf.cast(shared.step.read_value(), tf.float32)
        with tf.device(self.cpu):
            local = base = shared.fetch()  # of each ps: (numbers there,)
            for number, (_, batch) in enumerate(self.input.batches(count), 1):
                # a number; of each ps one gradient a device: (numbers there,)
                loss, of_devices = shared.gradients(self.devices, local, batch)
                losses.append(loss)
                rate = self.schedule(first + (number - 1))
                gradients = [mean(several) for several in of_devices]
                local = [old - rate * one for old, one in zip(local, gradients, strict=True)]
                if number == count or number % options.push_every == 0:
                    with tf.control_dependencies(pushed):
                        changes = [[old - new] for old, new in zip(base, local, strict=True)]
                    pushed = shared.descend(changes, tf.constant(1.0))
                    done = shared.count(pushed, number - counted)
                    averaged = shared.average(done) if self.role.is_chief else []
                    pushed, base, counted = [done, *pushed, *averaged], local, number
                if number < count and number % options.fetch_every == 0:
                    with tf.control_dependencies([*pushed, *local]):
                        after = tf.no_op()
                    fetched = shared.fetch([after] * len(shared.flats))
                    if counted == number:
                        local = fetched
                    else:
                        changes = [new - old for new, old in zip(local, base, strict=True)]
                        local = [w + one for w, one in zip(fetched, changes, strict=True)]
                    base = fetched
            return [tf.stack(losses), done, *pushed]
