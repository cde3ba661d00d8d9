"""A worker of a `MultiWorkerMirroredStrategy`: all weights here, the gradients averaged by all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from trainer import data
from trainer.checkpoint import Checkpoints
from trainer.errors import TrainerError
from trainer.mirror import Mirror
from trainer.model import MLP
from trainer.progress import Progress, Summaries
from trainer.schedule import Schedule
from trainer.server import threads

if TYPE_CHECKING:
    from trainer.flags import Options
    from trainer.role import Role
    from trainer.stop import Stop


class AllReduce:
    """Trains in step with the other workers until the step limit.

    Raises:
        CheckpointError: The chief's log directory belongs to another run.
    """

    def __init__(self, role: Role, options: Options, dataset: data.Dataset) -> None:
        self._role = role
        self._options = options
        self._dataset = dataset
        self._checkpoints = Checkpoints.of(options)
        if role.is_chief:
            self._checkpoints.find()
        self._examples = options.batch * role.trainers
        self._schedule = Schedule(
            options.learning_rate,
            options.learning_rate_decay,
            len(dataset.train) / self._examples,
        )
        self._batches = data.batches(
            len(dataset.train), options.batch, options.seed + role.trainer_number
        )

    def train(self, stop: Stop) -> None:
        """Trains; the chief saves, and prints a last line with the test accuracy.

        Raises:
            TrainerError: Another worker was told to end, which ends the training of all.
        """
        tf.config.threading.set_intra_op_parallelism_threads(threads(self._role, self._options))
        strategy = tf.distribute.MultiWorkerMirroredStrategy(self._resolver())
        print(f"{self._role} is one of {strategy.num_replicas_in_sync}", flush=True)
        summaries = Summaries(self._checkpoints.directory if self._role.is_chief else None)
        mirror = None
        if self._role.is_chief:
            mirror = Mirror(MLP, self._options, self._checkpoints, self._dataset, summaries)
        with strategy.scope():
            # Made everywhere with the chief's values: creation broadcasts the first worker's.
            values = mirror.weights if mirror else MLP.initial(self._options.seed)
            weights = [tf.Variable(value, trainable=False) for value in values]
            start = tf.Variable(mirror.step if mirror else 0, trainable=False, dtype=tf.int64)
        take = self._step(strategy, weights)
        step = int(start.numpy())
        progress = Progress(self._options.log_every, self._examples, summaries)
        print(f"{self._role} starts at global step {step}", flush=True)
        progress.begin(step)
        stop.worth_waiting = True
        ending = False
        while step < self._options.steps and not ending:
            rate = self._schedule(step)
            asked = 1.0 if stop.requested else 0.0
            loss, asking = take(
                tf.constant(next(self._batches)), tf.constant(rate, tf.float32), tf.constant(asked)
            )
            # All stop at the same step: who left earlier would leave the others waiting for it.
            ending = float(asking) > 0
            step += 1
            progress.step(step, float(loss), rate)
            if mirror and mirror.due(step):
                mirror.update(step, [weight.numpy() for weight in weights])
        if mirror:
            mirror.update(step, [weight.numpy() for weight in weights], last=True)
        if ending and not stop.requested:
            raise TrainerError(f"{self._role}: another worker was told to end at step {step}")
        if not ending:
            progress.finish(mirror.accuracy() if mirror else None)

    def _step(self, strategy: Any, weights: list[Any]) -> Any:
        train = self._dataset.train
        images, labels = tf.constant(train.images), tf.constant(train.labels)

        def replica(indices: Any, rate: Any, asked: Any) -> Any:
            values = [weight.read_value() for weight in weights]
            with tf.GradientTape() as tape:
                tape.watch(values)
                loss = MLP.loss(
                    values, tf.gather(images, indices), tf.gather(labels, indices), self._options.l2
                )
            context = tf.distribute.get_replica_context()
            # An argument has no device of its own, and all_reduce wants one: hence the identity.
            *gradients, asking = context.all_reduce(
                tf.distribute.ReduceOp.MEAN, [*tape.gradient(loss, values), tf.identity(asked)]
            )
            for weight, gradient in zip(weights, gradients, strict=True):
                weight.assign_sub(rate * gradient, read_value=False)
            return loss, asking

        # Without AutoGraph, whose generated files a killed task would leave behind in /tmp.
        @tf.function(autograph=False)  # type: ignore[untyped-decorator]
        def take(indices: Any, rate: Any, asked: Any) -> Any:
            return strategy.run(replica, args=(indices, rate, asked))

        return take

    def _resolver(self) -> Any:
        cluster = {job: list(tasks) for job, tasks in self._role.cluster.items()}
        return tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec(cluster),
            task_type=self._role.job,
            task_id=self._role.index,
            rpc_layer="grpc",
        )
