"""Training on several devices of one machine."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from trainer import data, towers
from trainer.checkpoint import Checkpoints
from trainer.keeper import Keeper
from trainer.model import MODELS
from trainer.network import LocalData, Network
from trainer.progress import Summaries
from trainer.schedule import Schedule

if TYPE_CHECKING:
    from trainer.flags import Options
    from trainer.stop import Stop

CPU = "/device:CPU:0"
# Lines between two histograms: they are 400,000 numbers through the session and NumPy.
HISTOGRAMS_EVERY = 10
# Results of towers that run one by one; so many may be ahead of the report.
QUEUED = 8


class Graph:
    """Variables on the CPU, a tower a device, and the two ways to use the towers' gradients."""

    def __init__(self, options: Options, dataset: data.Dataset) -> None:
        model = MODELS[options.model]
        self.devices = towers.local_devices(options.devices)
        self._momentum = options.momentum if options.model == "cnn" else 0.0
        self.network = Network(model, CPU, momentum=bool(self._momentum))
        self.data = LocalData(CPU, dataset.train)
        with tf.device(CPU):
            self.rate = tf.compat.v1.placeholder(tf.float32, ())
            self.indices = [
                tf.compat.v1.placeholder(tf.int32, (options.batch,)) for _ in self.devices
            ]
        batches = [self.data.batch(indices) for indices in self.indices]
        self.losses, tower_gradients = towers.gradients(
            model, self.devices, self.network.weights, batches, options.l2
        )
        with tf.device(CPU):
            self.loss = towers.mean(self.losses)
            self.gradients = [
                towers.mean(list(column)) for column in zip(*tower_gradients, strict=True)
            ]
            self.together = self._apply(self.gradients)
            self.one_by_one = [self._apply(gradients) for gradients in tower_gradients]

    def _apply(self, gradients: list[Any]) -> Any:
        """One update, and the global step after it; Nesterov's momentum where there are momenta."""
        updates = []
        for number, (weight, gradient) in enumerate(
            zip(self.network.weights, gradients, strict=True)
        ):
            change = gradient
            if self.network.momenta:
                momentum = self.network.momenta[number].assign(
                    self._momentum * self.network.momenta[number] + gradient
                )
                change = gradient + self._momentum * momentum
            updates.append(weight.assign_sub(self.rate * change, read_value=False))
        with tf.control_dependencies(updates):
            return tf.identity(self.network.step.assign_add(1))


class TowerTraining:
    """Trains `--model` on `--devices` until the step limit.

    Raises:
        CheckpointError: The log directory belongs to another run.
    """

    def __init__(self, options: Options, dataset: data.Dataset) -> None:
        self._options = options
        self._dataset = dataset
        # A step takes one batch a device; one by one, each device's batch is a step.
        self._examples = options.batch * (1 if options.update == "async" else options.devices)
        self._steps = options.steps
        if options.epochs:
            self._steps = round(options.epochs * len(dataset.train) / self._examples)
        self._schedule = Schedule(
            options.learning_rate,
            options.learning_rate_decay,
            len(dataset.train) / self._examples,
        )
        self._batches = data.batches(
            len(dataset.train), options.batch * options.devices, options.seed
        )
        self._checkpoints = Checkpoints.of(options)
        self._checkpoints.find()
        self._summaries = Summaries(self._checkpoints.directory)
        self._step = self._last_step = self._first_step = 0
        self._started = self._last_time = 0.0

    def train(self, stop: Stop) -> None:
        """Trains, saves, and prints a last line with the test accuracy."""
        config = tf.compat.v1.ConfigProto(
            allow_soft_placement=True,
            device_count={"CPU": max(self._options.devices, 1)},
            intra_op_parallelism_threads=self._options.threads,
        )
        with tf.Graph().as_default(), tf.compat.v1.Session(config=config) as session:
            graph = Graph(self._options, self._dataset)
            keeper = Keeper(
                graph.network,
                CPU,
                self._options,
                self._checkpoints,
                self._dataset.test,
                self._summaries,
            )
            keeper.start(session)
            graph.data.load(session)
            self._step = self._last_step = self._first_step = int(session.run(graph.network.step))
            print(
                f"trains the {self._options.model} for {self._steps} steps of {self._examples} "
                f"on {', '.join(graph.devices)}, data: {self._dataset.name}",
                flush=True,
            )
            keeper.begin(session, self._step)
            stop.worth_waiting = True
            self._started = self._last_time = time.monotonic()
            if self._options.update == "async":
                self._one_by_one(session, graph, keeper, stop)
            else:
                self._together(session, graph, keeper, stop)
            keeper.finish(session, self._step)
            if not stop.requested:
                self._finish(keeper.accuracy(session))

    def _together(self, session: Any, graph: Graph, keeper: Keeper, stop: Stop) -> None:
        run = session.make_callable([graph.loss, graph.together], [*graph.indices, graph.rate])
        while self._step < self._steps and not stop.requested:
            indices = next(self._batches).reshape(len(graph.devices), -1)
            loss, step = run(*indices, self._schedule(self._step))
            self._report(session, graph, indices, int(step), float(loss))
            keeper.keep(session, self._step)

    def _one_by_one(self, session: Any, graph: Graph, keeper: Keeper, stop: Stop) -> None:
        """Each tower in a thread of its own, on weights that the others change meanwhile."""
        results: queue.Queue[tuple[Any, float, int] | Exception] = queue.Queue(QUEUED)
        over = threading.Event()

        def tower(number: int) -> None:
            fetches = [graph.losses[number], graph.one_by_one[number]]
            run = session.make_callable(fetches, [graph.indices[number], graph.rate])
            source = data.batches(
                len(self._dataset.train), self._options.batch, self._options.seed + number
            )
            try:
                while not over.is_set():
                    indices = next(source)
                    loss, step = run(indices, self._schedule(self._step))
                    results.put((indices, float(loss), int(step)))
            except Exception as error:
                results.put(error)

        threads = [
            threading.Thread(target=tower, args=(number,), daemon=True)
            for number in range(len(graph.devices))
        ]
        for thread in threads:
            thread.start()
        while self._step < self._steps and not stop.requested:
            result = results.get()
            if isinstance(result, Exception):
                raise result
            indices, loss, step = result
            self._report(session, graph, [indices] * len(graph.devices), step, loss)
            keeper.keep(session, self._step)
        over.set()
        while any(thread.is_alive() for thread in threads):
            with contextlib.suppress(queue.Empty):  # a tower may wait to put its last result
                results.get(timeout=0.05)
        self._step = int(session.run(graph.network.step))

    def _report(self, session: Any, graph: Graph, indices: Any, step: int, loss: float) -> None:
        before = self._step // self._options.log_every
        self._step = max(step, self._step)
        if self._step // self._options.log_every == before:
            return
        now = time.monotonic()
        seconds = (now - self._last_time) / (self._step - self._last_step)
        print(
            f"step {self._step}, loss = {loss:.4f} ({self._examples / seconds:.0f} examples/sec; "
            f"{seconds:.4f} sec/batch)",
            flush=True,
        )
        self._summaries.write(
            self._step,
            loss=loss,
            learning_rate=self._schedule(self._step),
            steps_per_second=1 / seconds,
        )
        if self._checkpoints.directory and (before + 1) % HISTOGRAMS_EVERY == 0:
            self._histograms(session, graph, indices)
        self._last_time, self._last_step = now, self._step

    def _histograms(self, session: Any, graph: Graph, indices: Any) -> None:
        feed = dict(zip(graph.indices, indices, strict=True))
        gradients, weights = session.run([graph.gradients, graph.network.weights], feed)
        names = graph.network.model.names
        values = {f"{name}/gradient": one for name, one in zip(names, gradients, strict=True)}
        self._summaries.histograms(self._step, values | dict(zip(names, weights, strict=True)))

    def _finish(self, accuracy: float) -> None:
        seconds = max(time.monotonic() - self._started, 1e-9)
        rate = (self._step - self._first_step) * self._examples / seconds
        print(
            f"Done: {self._step} steps in {seconds:.1f} s, {rate:.0f} examples/s, "
            f"test accuracy {accuracy:.4f} (moving averages)",
            flush=True,
        )
        self._summaries.write(self._step, test_accuracy=accuracy)
