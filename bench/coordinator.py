# ruff: noqa: T201
"""A minimal `ParameterServerStrategy` loop: what `ps-strategy` is measured beside."""

from __future__ import annotations

import argparse
import os
import time

import tensorflow as tf

from trainer import data
from trainer.model import MLP


def main() -> None:
    """One task: chief, worker or ps."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--job_name")
    parser.add_argument("--task_index", type=int)
    for job in ("ps", "worker", "chief"):
        parser.add_argument(f"--{job}_hosts")
    parser.add_argument("--data")
    parser.add_argument("--steps", type=int, default=1000)
    flags = parser.parse_args()
    cluster = tf.train.ClusterSpec(
        {job: getattr(flags, f"{job}_hosts").split(",") for job in ("ps", "worker", "chief")}
    )
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        cluster, task_type=flags.job_name, task_id=flags.task_index, rpc_layer="grpc"
    )
    if flags.job_name != "chief":
        tf.distribute.Server(cluster, job_name=flags.job_name, task_index=flags.task_index).join()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    train = data.load(flags.data, in_memory=True).train
    with strategy.scope():
        weights = [tf.Variable(value) for value in MLP.initial(1)]

    def batches() -> object:
        examples = tf.data.Dataset.from_tensor_slices((train.images, train.labels))
        return examples.shuffle(len(train)).repeat().batch(100).prefetch(2)

    @tf.function  # type: ignore[untyped-decorator]
    def take(iterator: object) -> object:
        def replica(batch: tuple[object, object]) -> object:
            with tf.GradientTape() as tape:
                loss = MLP.loss(weights, *batch, 0.0001)
            for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
                weight.assign_sub(0.2 * gradient)
            return loss

        return strategy.run(replica, args=(next(iterator),))  # type: ignore[call-overload]

    iterator = iter(coordinator.create_per_worker_dataset(batches))
    step = 0
    while step < flags.steps:
        started = time.time()
        for _ in range(100):
            loss = coordinator.schedule(take, args=(iterator,))
        coordinator.join()
        step += 100
        print(
            f"After {step} training steps ({step} global steps), "
            f"loss on training batch is {float(loss.fetch()):.4f}.  "
            f"({(time.time() - started) / 100:.3f} sec/batch)",
            flush=True,
        )
    os._exit(0)


if __name__ == "__main__":
    main()
