"""`towers`: one machine, a tower on each of its devices, variables on the CPU.

    --update=sync:   repeat
                         each tower: g ← ∇loss(w, its part of the batch)
                         w ← w − η(step) · mean of all g;  step ← step + 1
    --update=async:  each tower by itself, repeat
                         w' ← w;  g ← ∇loss(w', batch)
                         w ← w − η(step) · g;  step ← step + 1

In `sync` a step waits for its slowest tower; in `async` no tower waits.
"""

from argparse import Namespace
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Any

import tensorflow as tf

from trainer import data, stop
from trainer.convolution import MODELS
from trainer.modes import Context
from trainer.parameters import average_gradients, mean, subtract
from trainer.progress import Step
from trainer.role import LOCAL
from trainer.stop import Stop
from trainer.worker import Worker

# Lines between two histograms: they are 400,000 numbers each.
HISTOGRAMS_EVERY = 10


def run(options: Namespace) -> int:
    """Trains `--model` on `--devices` in this process; returns the exit status."""
    dataset = data.load(options.data)
    model = MODELS[options.model]
    if model.momentum:
        model = replace(model, momentum=options.momentum)
    worker = OneByOneWorker if options.update == "async" else TowerWorker
    if options.epochs:
        batch = options.batch * (1 if worker.one_by_one else options.devices)
        steps = max(1, round(options.epochs * len(dataset.train) / batch))
        options = Namespace(**{**vars(options), "steps": steps})

    def work(stop: Stop) -> None:
        worker(Context(LOCAL, options, dataset, stop), model=model).train()

    return stop.run(work, options.grace)


class TowerWorker(Worker):
    """Averages the towers' gradients; TensorBoard gets histograms of them and of the weights."""

    def build_graph(self) -> None:
        ((_, parts),) = self.input.batches(1)
        self._step, flat, gradient = self._one_step(self.devices, parts)
        layout, names = self.shared.layout, self.model.names
        with tf.device(self.cpu):
            histograms = [
                tf.compat.v1.summary.histogram(f"{name}{what}", tensor)
                for what, numbers in (("", flat), ("/gradient", gradient))
                for name, tensor in zip(names, layout.split([numbers]), strict=True)
            ]
            self._histograms = tf.compat.v1.summary.merge(histograms)
        self._taken = 0

    def take_steps(self, step: int) -> list[Step]:
        taken = self._run(self._step)
        self._taken += 1
        if self.options.logdir and self._taken % (HISTOGRAMS_EVERY * self.options.log_every) == 0:
            self.summaries.add(taken[-1].global_step, self.session.run(self._histograms))
        return taken

    def _one_step(
        self, towers: list[str], parts: list[tuple[Any, Any]]
    ) -> tuple[list[Any], Any, Any]:
        """The operations of one step of `towers`, each with a part of the batch; its weights and
        their gradient."""
        shared = self.shared
        (variable,) = shared.flats
        with tf.device(self.cpu):
            step_at_fetch = shared.step.read_value()
            rate = self.schedule(tf.cast(step_at_fetch, tf.float32))  # η(step)
            flat = variable.read_value()  # w' ← w: (all numbers,)

        # g ← ∇loss(w', part): of each tower (all numbers,)
        losses, tower_gradients = self.tower_gradients([flat], parts, towers=towers)

        with tf.device(self.cpu):
            loss, (gradient,) = mean(losses), average_gradients(tower_gradients)
            if not shared.momenta:  # w ← w − η(step) · g
                pushed = subtract(variable, rate, gradient)
            else:  # m ← μ · m + g;  w ← w − η(step) · (g + μ · m)
                pushed = tf.raw_ops.ResourceApplyMomentum(
                    var=variable.handle,
                    accum=shared.momenta[0].handle,
                    lr=rate,
                    grad=gradient,
                    momentum=self.model.momentum,
                    use_nesterov=True,
                )
            with tf.control_dependencies([pushed]):
                step_after = tf.identity(shared.step.assign_add(1))  # step ← step + 1
                averaged = shared.average(step_after)
        return [loss, step_at_fetch, step_after, *averaged], flat, gradient

    def _run(self, operations: list[Any]) -> list[Step]:
        """Takes the step that `_one_step` has made."""
        loss, step_at_fetch, step_after, *_ = self.session.run(operations)
        staleness = int(step_after - step_at_fetch) - 1
        return [Step(float(loss), int(step_after), staleness)]


class OneByOneWorker(TowerWorker):
    """Applies each tower's gradients as they come, on weights that others change meanwhile."""

    one_by_one = True

    def build_graph(self) -> None:
        self._towers = [
            self._one_step([device], parts)[0]
            for device in self.devices
            for _, parts in self.input.batches(1)
        ]
        self._pool = ThreadPoolExecutor(len(self._towers))
        self._running: dict[Future[list[Step]], list[Any]] = {}

    def begin(self, step: int, joined: bool) -> None:
        for tower in self._towers:
            self._running[self._pool.submit(self._run, tower)] = tower

    def take_steps(self, step: int) -> list[Step]:
        """The steps that have ended; their towers take the next."""
        taken = []
        for ended in wait(self._running, return_when=FIRST_COMPLETED).done:
            tower = self._running.pop(ended)
            taken += ended.result()
            self._running[self._pool.submit(self._run, tower)] = tower
        return taken

    def flush(self) -> None:
        wait(self._running)
        super().flush()
