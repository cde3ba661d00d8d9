"""`towers`: one machine, a tower on each of its devices, variables on the CPU."""

from __future__ import annotations

import queue
import threading
import time
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from trainer import data, inputs, stop
from trainer.checkpoint import Checkpoints
from trainer.chief import Chief
from trainer.model import MODELS, Schedule
from trainer.parameters import Parameters, local_devices, mean
from trainer.progress import Progress, Step, Summaries

if TYPE_CHECKING:
    from trainer.flags import Options
    from trainer.stop import Stop

CPU = "/device:CPU:0"
# Lines between two histograms: they are 400,000 numbers through the session and NumPy.
HISTOGRAMS_EVERY = 10
# Results of towers that run one by one; so many may be ahead of the report.
QUEUED = 8


def run(options: Options) -> int:
    """Trains in this process; returns the exit status."""
    dataset = data.load(options.data)
    return stop.run(Towers(options, dataset).train, options.grace)


class Towers:
    """Trains `--model` on `--devices` until the step limit.

    Raises:
        CheckpointError: The log directory belongs to another run.
    """

    def __init__(self, options: Options, dataset: data.Dataset) -> None:
        self._options = options
        model = MODELS[options.model]
        self._devices = local_devices(options.devices)
        momentum = 0 if options.model == "mlp" else options.momentum
        # A step takes one batch a device; one by one, each device's batch is a step.
        self._one_by_one = options.update == "async"
        self._examples = options.batch * (1 if self._one_by_one else options.devices)
        self._epoch = len(dataset.train) / self._examples
        self._steps = round(options.epochs * self._epoch) if options.epochs else options.steps
        rate = options.learning_rate or model.learning_rate
        self._schedule = Schedule(rate, options.learning_rate_decay, self._epoch)
        checkpoints = Checkpoints.of(options)
        checkpoints.find()
        self._keeps = checkpoints.directory is not None
        self._summaries = Summaries(checkpoints.directory)
        self._progress = Progress(options.log_every, self._examples, self._summaries, self._epoch)
        self._chief = Chief(
            model, options, checkpoints, dataset.test, self._summaries, momentum=bool(momentum)
        )
        self._name = f"{options.model} for {self._steps} steps of {self._examples}"
        self._data = dataset.name
        self._graph = tf.Graph()
        with self._graph.as_default():
            self._parameters = Parameters(model, [CPU], options.average_decay, momentum)
            self._inputs = [
                inputs.make(CPU, dataset, options.batch, options.seed + number, str(number))
                for number in range(options.devices if self._one_by_one else 1)
            ]
            if not self._one_by_one:
                size = options.batch * options.devices
                self._inputs = [inputs.make(CPU, dataset, size, options.seed)]
            self._build(options.l2)

    def _build(self, l2: float) -> None:
        """The losses, the mean gradients, and the two ways to use them."""
        shared, devices = self._parameters, self._devices
        if self._one_by_one:
            batches = [one.batch(0) for one in self._inputs]
        else:
            batches = inputs.cut(self._inputs[0].batch(0), devices)
        with tf.device(CPU):
            flats = shared.read([])
        self._losses, towers = shared.towers(devices, flats, batches, l2)
        with tf.device(CPU):
            self._loss = mean(self._losses)
            self._gradients = [mean(list(column)) for column in zip(*towers, strict=True)]
            if self._one_by_one:
                self._updates = [self._apply(gradients) for gradients in towers]
            else:
                self._updates = [self._apply(self._gradients)]

    def _apply(self, gradients: list[Any]) -> Any:
        """One update, and the global step after it."""
        shared = self._parameters
        rate = self._schedule.tensor(shared.step.read_value())
        step = shared.count(shared.descend(gradients, rate))
        with tf.control_dependencies(shared.average(step)):
            return tf.identity(step)

    def train(self, stop: Stop) -> None:
        """Trains, saves, and prints a last line with the test accuracy."""
        config = tf.compat.v1.ConfigProto(
            allow_soft_placement=True,
            device_count={"CPU": max(self._options.devices, 1)},
            intra_op_parallelism_threads=self._options.threads,
        )
        shared, chief = self._parameters, self._chief
        with self._graph.as_default(), tf.compat.v1.Session(config=config) as session:
            shared.assign(session, chief.start())
            for one in self._inputs:
                one.load(session)
            step = int(session.run(shared.step))
            print(f"trains the {self._name} on {', '.join(self._devices)}, data: {self._data}")
            self._progress.begin(step)
            self._summaries.graph(self._graph)
            chief.save(shared.fetch(session), test=False)
            stop.worth_waiting = True
            if self._one_by_one:
                self._train_one_by_one(session, step, stop)
            else:
                self._train_together(session, step, stop)
            values = shared.fetch(session)
            chief.save(values, test=False)
            if not stop.requested:
                self._progress.finish(chief.accuracy(values))

    def _train_together(self, session: Any, step: int, stop: Stop) -> None:
        (source,) = self._inputs
        run = session.make_callable([self._loss, *self._updates], source.feeds)
        while step < self._steps and not stop.requested:
            arrays = source.arrays(1)
            loss, counted = run(*arrays)
            step = int(counted)
            self._report(session, Step(float(loss), step))

    def _train_one_by_one(self, session: Any, step: int, stop: Stop) -> None:
        """Each tower in a thread of its own, on weights that the others change meanwhile."""
        results: queue.Queue[Step | Exception] = queue.Queue(QUEUED)
        over = threading.Event()

        def tower(number: int) -> None:
            source = self._inputs[number]
            fetches = [self._losses[number], self._updates[number]]
            run = session.make_callable(fetches, source.feeds)
            try:
                while not over.is_set():
                    loss, counted = run(*source.arrays(1))
                    results.put(Step(float(loss), int(counted)))
            except Exception as error:
                results.put(error)

        threads = [
            threading.Thread(target=tower, args=(number,), daemon=True)
            for number in range(len(self._devices))
        ]
        for thread in threads:
            thread.start()
        while step < self._steps and not stop.requested:
            result = results.get()
            if isinstance(result, Exception):
                raise result
            step = max(step, result.global_step)
            self._report(session, result)
        over.set()
        while any(thread.is_alive() for thread in threads):
            if not results.empty():  # a tower may wait to put its last result
                results.get()
            time.sleep(0.01)

    def _report(self, session: Any, step: Step) -> None:
        printed = self._progress.add([step], self._schedule(step.global_step))
        if self._chief.due():
            self._chief.save(self._parameters.fetch(session))
        every = HISTOGRAMS_EVERY * self._options.log_every
        if printed and self._keeps and self._progress.local_step % every == 0:
            feeds = [(feed, one) for one in self._inputs for feed in one.feeds]
            feed = {name: array for name, one in feeds for array in one.arrays(1)}
            gradients, flats = session.run([self._gradients, self._parameters.flats], feed)
            values: dict[str, Any] = {}
            for what, arrays in (("", flats), ("/gradient", gradients)):
                weights = self._parameters.layout.split_arrays(arrays)
                names = [f"{name}{what}" for name in self._parameters.model.names]
                values.update(zip(names, weights, strict=True))
            self._summaries.histograms(step.global_step, values)
