"""The chief of a `ParameterServerStrategy`: schedules steps, and whichever worker is free runs one.

A worker that dies is left out until it is back; its step is run again by another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from trainer import data, over
from trainer.checkpoint import Checkpoints
from trainer.mirror import Mirror
from trainer.model import MLP
from trainer.progress import Progress, Summaries
from trainer.schedule import Schedule

if TYPE_CHECKING:
    from trainer.flags import Options
    from trainer.role import Role
    from trainer.stop import Stop

# Steps scheduled but not yet known to be done, for each worker: enough that none is ever idle.
AHEAD = 20


class Coordinator:
    """Trains until the global step limit.

    Raises:
        CheckpointError: The log directory belongs to another run.
    """

    def __init__(self, role: Role, options: Options, dataset: data.Dataset) -> None:
        self._role = role
        self._options = options
        self._dataset = dataset
        self._checkpoints = Checkpoints.of(options)
        self._checkpoints.find()
        self._schedule = Schedule(
            options.learning_rate,
            options.learning_rate_decay,
            len(dataset.train) / options.batch,
        )

    def train(self, stop: Stop) -> None:
        """Trains, saves, and prints a last line with the test accuracy."""
        # Listens at once, as a launcher expects of a chief, and waits for workers that come later.
        strategy = tf.distribute.ParameterServerStrategy(_resolver(self._role))
        coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        summaries = Summaries(self._checkpoints.directory)
        mirror = Mirror(MLP, self._options, self._checkpoints, self._dataset, summaries)
        with strategy.scope():
            weights = [tf.Variable(value, trainable=False) for value in mirror.weights]
        take, take_silently = self._step(strategy, weights)
        batches = coordinator.create_per_worker_dataset(
            tf.autograph.experimental.do_not_convert(self._batches)
        )
        progress = Progress(self._options.log_every, self._options.batch, summaries)
        print(f"coordinates {len(self._role.cluster['worker'])} workers, ", end="")
        print(f"starts at global step {mirror.step}", flush=True)
        progress.begin(mirror.step)
        stop.worth_waiting = True
        iterator = iter(batches)
        ahead = AHEAD * len(self._role.cluster["worker"])
        waiting: list[Any] = []
        step = mirror.step
        while step < self._options.steps and not stop.requested:
            while len(waiting) < ahead and step + len(waiting) < self._options.steps:
                rate = tf.constant(self._schedule(step + len(waiting)), tf.float32)
                function = take if progress.prints(len(waiting)) else take_silently
                waiting.append(coordinator.schedule(function, args=(iterator, rate)))
            loss = waiting.pop(0).fetch()
            step += 1
            progress.step(step, 0.0 if loss is None else float(loss), self._schedule(step))
            if mirror.due(step):
                mirror.update(step, [weight.numpy() for weight in weights])
        coordinator.join()
        step += len(waiting)
        mirror.update(step, [weight.numpy() for weight in weights], last=True)
        if not stop.requested:
            progress.finish(mirror.accuracy())
            for index in range(len(self._role.cluster["worker"])):
                over.tell(f"/job:worker/replica:0/task:{index}")

    def _step(self, strategy: Any, weights: list[Any]) -> tuple[Any, Any]:
        """One step, with the batch's loss and without: every value that a step returns is fetched
        from its worker, which is a call of its own. Nothing in it needs AutoGraph, whose generated
        files a killed task would leave behind in /tmp."""

        def replica(batch: Any, rate: Any) -> Any:
            images, labels = batch
            # One read a variable: each use of a variable would fetch it from its ps again.
            values = [weight.read_value() for weight in weights]
            with tf.GradientTape() as tape:
                tape.watch(values)
                loss = MLP.loss(values, images, labels, self._options.l2)
            for weight, gradient in zip(weights, tape.gradient(loss, values), strict=True):
                weight.assign_sub(rate * gradient, read_value=False)
            return loss

        @tf.function(autograph=False)  # type: ignore[untyped-decorator]
        def take(iterator: Any, rate: Any) -> Any:
            return strategy.run(replica, args=(iterator.get_next(), rate))

        @tf.function(autograph=False)  # type: ignore[untyped-decorator]
        def take_silently(iterator: Any, rate: Any) -> None:
            strategy.run(replica, args=(iterator.get_next(), rate))

        return take, take_silently

    def _batches(self) -> Any:
        """The input of one worker; each shuffles for itself."""
        train = self._dataset.train
        count = len(train)
        indices = tf.data.Dataset.range(count).shuffle(count).repeat().batch(self._options.batch)
        images, labels = tf.constant(train.images), tf.constant(train.labels)
        return indices.map(lambda at: (tf.gather(images, at), tf.gather(labels, at))).prefetch(2)


def _resolver(role: Role) -> Any:
    cluster = tf.train.ClusterSpec({job: list(tasks) for job, tasks in role.cluster.items()})
    return tf.distribute.cluster_resolver.SimpleClusterResolver(
        cluster, task_type=role.job, task_id=role.index, rpc_layer="grpc"
    )
