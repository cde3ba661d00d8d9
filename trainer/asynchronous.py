"""A worker of the asynchronous training: its graph and its loop."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from trainer import data, model, server, shared_session
from trainer.checkpoint import RUN_ID, Checkpoints, Saver
from trainer.progress import Progress, Summaries
from trainer.replica import LocalData, SharedNetwork, variable

if TYPE_CHECKING:
    from trainer.flags import Options
    from trainer.role import Role
    from trainer.stop import Stop

# Local steps of the chief between two updates of the moving averages.
AVERAGE_EVERY = 10


class Graph:
    """One worker's graph: a step is one batch's gradient, taken and applied."""

    def __init__(self, role: Role, options: Options, dataset: data.Dataset) -> None:
        self.network = SharedNetwork(role)
        self.data = LocalData(role, dataset.train)
        with tf.device(role.device):
            self.indices = tf.compat.v1.placeholder(tf.int32, (options.batch,))
            self.rate = tf.compat.v1.placeholder(tf.float32, ())
            images, labels = self.data.batch(self.indices)
            # One read a variable: each use of a variable would fetch it from its ps again.
            weights = [tf.identity(weight) for weight in self.network.weights]
            self.loss = model.loss(weights, images, labels, options.l2)
            # The rate scales the loss instead of the gradients: the same numbers, without another
            # pass over all weights, and no rate to send to the ps.
            changes = tf.gradients(self.rate * self.loss, weights)
        applied = []
        for weight, change in zip(self.network.weights, changes, strict=True):
            with tf.device(weight.device):
                applied.append(weight.assign_sub(change, read_value=False))
        with tf.device(self.network.step.device):
            counted = self.network.step.assign_add(1)
        self.train = [self.loss, counted, *applied]
        with tf.device(role.device):
            self.test_images = tf.compat.v1.placeholder(tf.uint8, dataset.test.images.shape)
            self.test_labels = tf.compat.v1.placeholder(tf.uint8, dataset.test.labels.shape)
            averages = [tf.identity(average) for average in self.network.averages]
            self.accuracy = model.accuracy(averages, self.test_images, self.test_labels)
            self.run_id = variable(RUN_ID, dtype=tf.string)
            self.run_id_feed = tf.compat.v1.placeholder(tf.string, ())
            self.set_run_id = self.run_id.assign(self.run_id_feed, read_value=False)


class Worker:
    """Trains until the global step reaches the limit; the chief also initialises and saves."""

    def __init__(self, role: Role, options: Options, dataset: data.Dataset) -> None:
        self._role = role
        self._options = options
        self._checkpoints = Checkpoints.of(options)
        if role.is_chief:
            self._checkpoints.find()  # a stale directory is refused before anything starts
        summaries = Summaries(self._checkpoints.directory if role.is_chief else None)
        self._dataset = dataset
        self._batches = data.batches(
            len(dataset.train), options.batch, options.seed + role.trainer_number
        )
        self._schedule = model.Schedule(
            options.learning_rate,
            options.learning_rate_decay,
            len(dataset.train) / options.batch,
        )
        self._averaging = model.Averaging(options.average_decay)
        self._summaries = summaries
        self._progress = Progress(options.log_every, options.batch, summaries)
        self._averaged_at = self._saved_at = 0
        self._save_time = 0.0

    def train(self, stop: Stop) -> None:
        """Trains; after the loss of a ps it waits for it to come back, and goes on.

        Raises:
            TrainerError: A port, a checkpoint or a ps that stays away; says which.
        """
        target = server.start(self._role, self._options.threads).target
        print(
            f"{self._role} trains {self._options.steps} global steps of "
            f"{self._options.batch} on {self._dataset.name}",
            flush=True,
        )
        with tf.Graph().as_default():
            graph = Graph(self._role, self._options, self._dataset)
            variables = {**graph.network.by_name(), RUN_ID: graph.run_id}
            saver = Saver(self._checkpoints, variables, f"{self._role.device}/cpu:0")
            while True:
                try:
                    with shared_session.open_session(self._role, target) as session:
                        self._train(session, graph, saver, stop)
                    return
                except shared_session.LOSS as error:
                    stop.worth_waiting = False
                    reason = (error.message or str(error)).splitlines()[0]
                    print(f"{self._role} lost its ps: {reason}", flush=True)
                    shared_session.wait_for_ps(self._role, stop)

    def _train(self, session: Any, graph: Graph, saver: Saver, stop: Stop) -> None:
        self._prepare(session, graph, saver, stop)
        stop.worth_waiting = True
        run = session.make_callable(graph.train, [graph.indices, graph.rate])
        step = self._progress.global_step
        while step < self._options.steps and not stop.requested:
            rate = self._schedule(step)
            loss, step, *_ = run(next(self._batches), rate)
            self._progress.step(int(step), float(loss), rate)
            if self._role.is_chief:
                self._keep(session, graph, saver)
        if not self._role.is_chief:
            if not stop.requested:
                self._progress.finish()
            return
        self._average(session, graph)
        self._save(session, graph, saver)
        if not stop.requested:
            self._progress.finish(self._accuracy(session, graph))

    def _prepare(self, session: Any, graph: Graph, saver: Saver, stop: Stop) -> None:
        def start() -> None:
            shared_session.start_or_restore(
                session, graph.network, saver, self._checkpoints, self._options.seed
            )

        shared_session.prepare(session, self._role, graph.network, start, stop)
        graph.data.load(session)
        session.run(graph.set_run_id, {graph.run_id_feed: self._checkpoints.run_id})
        step = int(session.run(graph.network.step))
        print(f"{self._role} starts at global step {step}", flush=True)
        self._progress.begin(step)
        self._averaged_at, self._saved_at = step, -1
        if self._role.is_chief:
            self._save(session, graph, saver)

    def _keep(self, session: Any, graph: Graph, saver: Saver) -> None:
        if self._progress.local_step % AVERAGE_EVERY == 0:
            self._average(session, graph)
        if time.monotonic() - self._save_time >= self._options.save_secs:
            self._average(session, graph)
            self._save(session, graph, saver)
            self._summaries.write(
                self._progress.global_step, test_accuracy=self._accuracy(session, graph)
            )

    def _average(self, session: Any, graph: Graph) -> None:
        step = self._progress.global_step
        graph.network.average(session, self._averaging.weight(step, self._averaged_at))
        self._averaged_at = step

    def _save(self, session: Any, graph: Graph, saver: Saver) -> None:
        step = int(session.run(graph.network.step))
        if step != self._saved_at:
            saver.save(session, step)
        self._save_time, self._saved_at = time.monotonic(), step

    def _accuracy(self, session: Any, graph: Graph) -> float:
        test = self._dataset.test
        feed = {graph.test_images: test.images, graph.test_labels: test.labels}
        return float(session.run(graph.accuracy, feed))
