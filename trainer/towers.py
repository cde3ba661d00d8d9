"""`towers`: one machine, a tower on each of its devices, variables on the CPU."""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Any

import tensorflow as tf

from trainer import data, stop
from trainer.asynchronous import AsyncStep
from trainer.convolution import MODELS
from trainer.flags import Options
from trainer.parameters import mean
from trainer.progress import Step
from trainer.role import LOCAL
from trainer.stop import Stop
from trainer.worker import TrainStep, Worker, WorkerGraph

# Lines between two histograms: they are 400,000 numbers each.
HISTOGRAMS_EVERY = 10


def run(options: Options) -> int:
    """Trains `--model` on `--devices` in this process; returns the exit status."""
    dataset = data.load(options.data)
    model = MODELS[options.model]
    one_by_one = options.update == "async"
    options.steps_per_call = 1
    if options.epochs:
        batch = options.batch * (1 if one_by_one else options.devices)
        options.steps = round(options.epochs * len(dataset.train) / batch)
    steps = OneByOneStep if one_by_one else TowerStep
    momentum = 0 if options.model == "mlp" else options.momentum
    worker = Worker(LOCAL, options, dataset, steps, model=model, momentum=momentum)
    return stop.run(worker.train, options.grace)


class TowerStep(AsyncStep):
    """Averages the towers' gradients; TensorBoard gets histograms of them and of the weights."""

    def __init__(self, graph: WorkerGraph) -> None:
        super().__init__(graph)
        shared = graph.parameters
        ((_, batch),) = graph.input.batches(1)
        with tf.device(graph.cpu):
            flats = shared.fetch()
            _, columns = shared.gradients(graph.devices, flats, batch)
            gradients = [mean(column) for column in columns]
            histograms = [
                tf.compat.v1.summary.histogram(f"{name}{what}", tensor)
                for what, tensors in (("", flats), ("/gradient", gradients))
                for name, tensor in zip(
                    shared.model.names, shared.layout.split(tensors), strict=True
                )
            ]
            self._histograms = tf.compat.v1.summary.merge(histograms)
        self._taken = 0

    def run(self, step: int) -> list[Step]:
        """Runs one step."""
        taken = super().run(step)
        options = self.graph.options
        self._taken += 1
        if options.logdir and self._taken % (HISTOGRAMS_EVERY * options.log_every) == 0:
            found = self.session.run(self._histograms)
            self.graph.training.summaries.add(taken[-1].global_step, found)
        return taken


class OneByOneStep(TrainStep):
    """Applies each tower's gradients as they come, on weights that others change meanwhile."""

    one_by_one = True

    def __init__(self, graph: WorkerGraph) -> None:
        super().__init__(graph)
        self._towers = [AsyncStep(replace(graph, devices=[device])) for device in graph.devices]
        self._pool = ThreadPoolExecutor(len(self._towers))
        self._running: dict[Future[list[Step]], AsyncStep] = {}

    def begin(self, session: Any, step: int, stop: Stop, joined: bool) -> None:
        """Starts a step of each tower."""
        for tower in self._towers:
            tower.begin(session, step, stop, joined)
            self._running[self._pool.submit(tower.run, step)] = tower

    def run(self, step: int) -> list[Step]:
        """The steps that have ended; their towers take the next."""
        taken = []
        for ended in wait(self._running, return_when=FIRST_COMPLETED).done:
            tower = self._running.pop(ended)
            taken += ended.result()
            self._running[self._pool.submit(tower.run, step)] = tower
        return taken

    def flush(self) -> None:
        """Waits for the steps that were begun."""
        wait(self._running)
