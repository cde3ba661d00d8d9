"""`async` and `in-graph`: gradients are applied as they come, whatever others did meanwhile.

    ps:      w (all weights), step
    worker:  repeat
                 w' ← w                      fetch, from every ps
                 g ← ∇loss(w', batch)        on the worker
                 w ← w − η(step) · g         push: the ps subtracts
                 step ← step + 1

Nobody waits for anybody. Between a worker's fetch and its push other workers may have pushed; how
many did is the step's staleness. In `in-graph` one client computes on the devices of all workers,
and pushes the mean of their gradients.

`async` builds several steps one after the other into the graph, each fetch after the push before
it: what lies between them does not wait for Python.
"""

from typing import Any

import tensorflow as tf

from trainer.modes import Context
from trainer.parameters import mean
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
        several = 1 if self.slow else getattr(self.options, "steps_per_call", 1)
        self._several = several
        self._calls = {count: self.build_steps(count, self.devices) for count in {several, 1}}

    def take_steps(self, step: int) -> list[Step]:
        left = self.options.steps - step
        # Near the end steps are taken one by one, so that not every worker adds a whole call.
        alone = left <= 4 * self._several * len(self.role.clients)
        return self.run_steps(self._calls[1 if alone else self._several])

    def run_steps(self, operations: list[Any]) -> list[Step]:
        """Runs what `build_steps` has built, in one call of the session."""
        losses, (at_fetch, after), *_ = self.session.run(operations)  # (count,) each
        return [
            Step(float(loss), int(step_after), staleness=int(step_after - step_at_fetch) - 1)
            for loss, step_at_fetch, step_after in zip(losses, at_fetch, after, strict=True)
        ]

    def build_steps(self, count: int, devices: list[str]) -> list[Any]:
        """The operations of `count` steps on `devices`: their losses, shape (count,), the global
        steps at their fetches and after their pushes, shape (2, count), and the last pushes."""
        losses, at_fetch, after = [], [], []
        pushed: list[Any] | None = None
        for _, batch in self.input.batches(count):
            loss, step_at_fetch, step_after, pushed = self._build_step(devices, batch, pushed)
            losses.append(loss)  # a number, as are the steps
            at_fetch.append(step_at_fetch)
            after.append(step_after)
        with tf.device(self.cpu):
            all_losses = tf.stack(losses)
        with tf.device(self.shared.step.device):
            return [all_losses, tf.stack([at_fetch, after]), *(pushed or [])]

    def _build_step(
        self, devices: list[str], batch: tuple[Any, Any], before: list[Any] | None
    ) -> tuple[Any, Any, Any, list[Any]]:
        """One step after the pushes `before`, one a flat variable, as the next step needs them."""
        shared = self.shared
        with tf.device(shared.step.device), tf.control_dependencies((before or [])[:1]):
            step_at_fetch = shared.step.read_value()
            rate = self.schedule(tf.cast(step_at_fetch, tf.float32))
        with tf.device(devices[0] if self.everywhere else self.cpu):
            weights = shared.fetch(before)  # of each ps: (numbers there,)
            # batch: images (batch, 784), labels (batch,); gradients: of each ps, one a device
            loss, gradients = shared.gradients(devices, weights, batch)
            if not self.everywhere:  # one transfer a worker; else the ps takes the mean
                gradients = [[mean(several)] for several in gradients]
        pushed = shared.descend(gradients, rate)
        step_after = shared.count(pushed[:1])
        if self.role.is_chief:
            with tf.control_dependencies(pushed):
                averaged = shared.average(step_after)
            pushed = [tf.group(*pair) for pair in zip(pushed, averaged, strict=True)]
        return loss, step_at_fetch, step_after, [tf.group(pushed[0], step_after), *pushed[1:]]


class InGraphWorker(AsyncWorker):
    """The same on the devices of all workers, whose gradients are averaged on the ps."""

    everywhere = True
