"""Steps in a row in one call of the session: what lies between them does not wait for Python.

Each step of the graph begins after the pushes of the step before it. That is all about speed: one
step alone, in `asynchronous.py`, is the mode.
"""

from typing import Any, NamedTuple

import tensorflow as tf

from trainer.progress import Step
from trainer.worker import Worker


class StepTensors(NamedTuple):
    """A step in the graph: its loss, the global steps at its fetch and after its push, and its
    pushes, one a ps."""

    loss: Any
    at_fetch: Any
    after: Any
    pushed: list[Any]


class CallWorker(Worker):
    """A worker whose calls take several of the steps that `one_step` makes."""

    def one_step(self, parts: list[tuple[Any, Any]], before: list[Any]) -> StepTensors:
        """The operations of a step after the pushes `before`, one a ps.

        `parts` are a batch a device: images, shape (batch, 784), and labels, shape (batch,).
        """
        raise NotImplementedError

    def build_graph(self) -> None:
        self._several = 1 if self.slow else self.options.steps_per_call
        self._steps = {count: self._steps_in_a_row(count) for count in {self._several, 1}}

    def take_steps(self, step: int) -> list[Step]:
        left = self.options.steps - step
        # Near the end steps are taken one by one, so that not every worker adds `_several`.
        near = left <= 4 * self._several * len(self.role.clients)
        losses, (at_fetch, after), *_ = self.session.run(self._steps[1 if near else self._several])
        return [
            Step(float(loss), int(step_after), staleness=int(step_after - step_at_fetch) - 1)
            for loss, step_at_fetch, step_after in zip(losses, at_fetch, after, strict=True)
        ]

    def _steps_in_a_row(self, count: int) -> list[Any]:
        """The operations of `count` steps: their losses, shape (count,), the global steps at their
        fetches and after their pushes, shape (2, count), and the last pushes."""
        losses, at_fetch, after = [], [], []
        pushed: list[Any] = []
        for _, parts in self.input.batches(count):
            step = self.one_step(parts, pushed)
            losses.append(step.loss)  # a number, as are the steps
            at_fetch.append(step.at_fetch)
            after.append(step.after)
            pushed = self._ends_of(step)
        with tf.device(self.cpu):
            all_losses = tf.stack(losses)
        with tf.device(self.shared.step.device):
            return [all_losses, tf.stack([at_fetch, after]), *pushed]

    def _ends_of(self, step: StepTensors) -> list[Any]:
        """What the next step waits for on each ps; the chief's moving averages are a part of it."""
        pushed = step.pushed
        if self.role.is_chief:
            with tf.control_dependencies(pushed):
                averaged = self.shared.average(step.after)
            pushed = [tf.group(*pair) for pair in zip(pushed, averaged, strict=True)]
        return [tf.group(pushed[0], step.after), *pushed[1:]]
