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
from trainer.asynchronous import AsyncWorker
from trainer.convolution import MODELS
from trainer.modes import Context
from trainer.parameters import mean
from trainer.progress import Step
from trainer.role import LOCAL
from trainer.stop import Stop

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


class TowerWorker(AsyncWorker):
    """Averages the towers' gradients; TensorBoard gets histograms of them and of the weights."""

    def build(self) -> None:
        super().build()
        shared = self.shared
        ((_, batch),) = self.input.batches(1)
        with tf.device(self.cpu):
            flats = shared.fetch()
            _, of_towers = shared.gradients(self.devices, flats, batch)
            gradients = [mean(several) for several in of_towers]
            histograms = [
                tf.compat.v1.summary.histogram(f"{name}{what}", tensor)
                for what, tensors in (("", flats), ("/gradient", gradients))
                for name, tensor in zip(
                    shared.model.names, shared.layout.split(tensors), strict=True
                )
            ]
            self._histograms = tf.compat.v1.summary.merge(histograms)
        self._taken = 0

    def take_steps(self, step: int) -> list[Step]:
        taken = super().take_steps(step)
        self._taken += 1
        if self.options.logdir and self._taken % (HISTOGRAMS_EVERY * self.options.log_every) == 0:
            self.summaries.add(taken[-1].global_step, self.session.run(self._histograms))
        return taken


class OneByOneWorker(AsyncWorker):
    """Applies each tower's gradients as they come, on weights that others change meanwhile."""

    one_by_one = True

    def build(self) -> None:
        self._towers = [self.build_steps(1, [device]) for device in self.devices]
        self._pool = ThreadPoolExecutor(len(self._towers))
        self._running: dict[Future[list[Step]], list[Any]] = {}

    def begin(self, step: int, joined: bool) -> None:
        for tower in self._towers:
            self._running[self._pool.submit(self.run_steps, tower)] = tower

    def take_steps(self, step: int) -> list[Step]:
        """The steps that have ended; their towers take the next."""
        taken = []
        for ended in wait(self._running, return_when=FIRST_COMPLETED).done:
            tower = self._running.pop(ended)
            taken += ended.result()
            self._running[self._pool.submit(self.run_steps, tower)] = tower
        return taken

    def flush(self) -> None:
        wait(self._running)
        super().flush()
