"""`tour keras-fit`: a Keras model on several workers, by `fit` where it can, else by a loop.

`fit` as the tutorials of `MultiWorkerMirroredStrategy` have it runs with legacy Keras (the package
`tf_keras`) alone: that of Keras 3 hands a batch of several workers to what takes one tensor only.
The model itself is trained by Keras 3 as well.
"""

import os
from argparse import Namespace
from typing import Any

import tensorflow as tf

from trainer import data
from trainer.devices import local_gpus, why_no_gpu
from trainer.exceptions import UsageError

EPOCHS = 3
STEPS = 100
HINT = (
    "Keras 3's fit cannot train on several workers ({error} …).\n"
    "To use fit: pip install tf_keras, and set TF_USE_LEGACY_KERAS=1 in all tasks.\n"
    "This program continues with a training loop for Keras 3."
)


def run(options: Namespace) -> int:
    """Trains as one worker of the cluster in TF_CONFIG; all make the same updates."""
    if "TF_CONFIG" not in os.environ:
        raise UsageError("TF_CONFIG is not set: it names the workers, and which of them this is")
    dataset = data.load(options.data, in_memory=True)
    keras: Any = tf.keras
    strategy = tf.distribute.MultiWorkerMirroredStrategy()  # first of all: it starts the server
    batches = _batches(dataset.train, options.batch * strategy.num_replicas_in_sync)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    with strategy.scope():
        hidden, output = keras.layers.Dense(500, activation="relu"), keras.layers.Dense(10)
        model = keras.Sequential([keras.layers.Input((data.PIXELS,)), hidden, output])
        model.compile(keras.optimizers.SGD(0.2), loss)
    package = keras.Sequential.__module__.partition(".")[0]
    here = " and ".join(name.rpartition("device:")[2] for name in strategy.extended.worker_devices)
    why = "" if local_gpus() else f": {why_no_gpu()}"
    print(f"{package} on {strategy.num_replicas_in_sync} replicas, here on {here}{why}")
    try:
        model.fit(batches, epochs=EPOCHS, steps_per_epoch=STEPS, verbose=2)
        print("trained by fit")
    except ValueError as error:
        if "PerReplica" not in str(error):
            raise
        print(HINT.format(error=str(error).partition("PerReplica")[0] + "PerReplica"))
        _fit(strategy, model, loss, batches)
    chosen = model(dataset.test.images.astype("float32") / 255).numpy().argmax(axis=1)
    print(f"Done: test accuracy {(chosen == dataset.test.labels).mean():.4f}")
    return 0


def _batches(examples: data.Split, size: int) -> Any:
    """Batches of all workers together; the strategy gives each of them its share."""
    images, labels = examples.images.astype("float32") / 255, examples.labels.astype("int64")
    endless = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(len(labels)).repeat()
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return endless.batch(size, drop_remainder=True).with_options(options)


def _fit(strategy: Any, model: Any, loss: Any, batches: Any) -> None:
    """Trains as `fit` would: in each step, every worker's gradients are added up in all of them."""
    weights = model.trainable_variables
    with strategy.scope():
        model.optimizer.build(weights)

    def replica(images: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            value = loss(labels, model(images, training=True)) / strategy.num_replicas_in_sync
        model.optimizer.apply(tape.gradient(value, weights), weights)
        return value

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def step(batch: Any) -> Any:
        return strategy.reduce("SUM", strategy.run(replica, args=batch), axis=None)

    shares = iter(strategy.experimental_distribute_dataset(batches))
    for epoch in range(1, EPOCHS + 1):
        values = [float(step(next(shares))) for _ in range(STEPS)]
        print(f"Epoch {epoch}/{EPOCHS} - loss: {sum(values) / STEPS:.4f}")
