"""Keras `fit` on several workers, with `BackupAndRestore`, and an evaluator beside them.

Every task runs this program; `TF_CONFIG` says which one it is. Workers write each epoch's weights,
which the evaluator tests. When one worker dies all of them fail, are started again, and go on with
the epoch that was interrupted. On several hosts the log directory must be shared.
"""

import json
import os
import sys
import time

import numpy as np
import tensorflow as tf

TASK = json.loads(os.environ["TF_CONFIG"])["task"]
LOGDIR = sys.argv[1]
WEIGHTS = os.path.join(LOGDIR, "weights")
EPOCHS, STEPS, BATCH = 5, 50, 64


def examples(seed):
    """Random points on both sides of a plane."""
    inputs = np.random.default_rng(seed).normal(size=(4096, 20)).astype("float32")
    plane = np.random.default_rng(0).normal(size=20)
    return inputs, (inputs @ plane > 0).astype("float32")


def make_model():
    """A small network."""
    hidden = tf.keras.layers.Dense(32, activation="relu")
    layers = [tf.keras.layers.Input((20,)), hidden, tf.keras.layers.Dense(1)]
    model = tf.keras.Sequential(layers)
    loss = tf.keras.losses.BinaryCrossentropy(from_logits=True)
    metric = tf.keras.metrics.BinaryAccuracy(name="accuracy", threshold=0.0)
    model.compile(tf.keras.optimizers.SGD(0.1), loss, metrics=[metric])
    return model


def train():
    """Trains as one worker; all make the same updates."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = make_model()
    batches = tf.data.Dataset.from_tensor_slices(examples(1)).shuffle(4096).repeat()
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    batches = batches.batch(BATCH * strategy.num_replicas_in_sync).with_options(options)
    callbacks = [
        tf.keras.callbacks.BackupAndRestore(os.path.join(LOGDIR, "backup")),
        tf.keras.callbacks.ModelCheckpoint(
            os.path.join(WEIGHTS, "{epoch}"), save_weights_only=True
        ),
    ]
    model.fit(batches, epochs=EPOCHS, steps_per_epoch=STEPS, verbose=2, callbacks=callbacks)


def evaluate():
    """Tests the weights of each epoch as they come."""
    model, (inputs, labels) = make_model(), examples(2)
    tested = None
    while tested is None or not tested.endswith(f"/{EPOCHS}"):
        latest = tf.train.latest_checkpoint(WEIGHTS)
        if latest in (None, tested):
            time.sleep(0.2)
            continue
        tested = latest
        model.load_weights(tested).expect_partial()
        _, accuracy = model.evaluate(inputs, labels, verbose=0)
        print(f"epoch {os.path.basename(tested)}: test accuracy {accuracy:.3f}", flush=True)


if __name__ == "__main__":
    evaluate() if TASK["type"] == "evaluator" else train()
