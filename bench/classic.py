# ruff: noqa: T201
"""A plain ps/worker script of the classic kind: what the trainer's `async` mode is measured beside.

Images go through `feed_dict`, the chief updates the moving average at every step, and sessions are
managed as TensorFlow does by default, so a worker that comes before the chief sleeps for 30 s.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

import tensorflow as tf

from trainer import data

tf1 = tf.compat.v1


def main() -> None:
    """One task of the classic script."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--job_name")
    parser.add_argument("--task_index", type=int)
    parser.add_argument("--ps_hosts")
    parser.add_argument("--worker_hosts")
    parser.add_argument("--data")
    parser.add_argument("--steps", type=int, default=1000)
    flags = parser.parse_args()
    cluster = tf.train.ClusterSpec(
        {"ps": flags.ps_hosts.split(","), "worker": flags.worker_hosts.split(",")}
    )
    server = tf.distribute.Server(cluster, job_name=flags.job_name, task_index=flags.task_index)
    if flags.job_name == "ps":
        server.join()
    is_chief = flags.task_index == 0
    train = data.load(flags.data).train
    images, labels = train.images.astype("float32") / 255, train.labels.astype("int64")
    batches = data.batches(len(train), 100, flags.task_index)
    with tf.Graph().as_default():
        setter = tf1.train.replica_device_setter(
            worker_device=f"/job:worker/task:{flags.task_index}", cluster=cluster
        )
        with tf1.device(setter):
            step = tf1.train.get_or_create_global_step()
            x = tf1.placeholder(tf.float32, (None, 784))
            y = tf1.placeholder(tf.int64, (None,))
            normal = tf1.truncated_normal_initializer(stddev=0.1)
            w1 = tf1.get_variable("w1", (784, 500), initializer=normal)
            b1 = tf1.get_variable("b1", (500,), initializer=tf1.zeros_initializer())
            w2 = tf1.get_variable("w2", (500, 10), initializer=normal)
            b2 = tf1.get_variable("b2", (10,), initializer=tf1.zeros_initializer())
            logits = tf.matmul(tf.nn.relu(tf.matmul(x, w1) + b1), w2) + b2
            entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits)
            l2 = 0.0001 * (tf.nn.l2_loss(w1) + tf.nn.l2_loss(w2))
            loss = tf.reduce_mean(entropy) + l2
            rate = tf1.train.exponential_decay(0.2, step, len(train) // 100, 0.99)
            train_op = tf1.train.GradientDescentOptimizer(rate).minimize(loss, global_step=step)
            if is_chief:
                averages = tf1.train.ExponentialMovingAverage(0.99, step)
                averaged = averages.apply(tf1.trainable_variables())
                train_op = tf.group(train_op, averaged)
        with tf1.train.MonitoredTrainingSession(
            master=server.target,
            is_chief=is_chief,
            hooks=[tf1.train.StopAtStepHook(last_step=flags.steps)],
        ) as session:
            local, started = 0, time.time()
            while not session.should_stop():
                indices = next(batches)
                feed = {x: images[indices], y: labels[indices]}
                _, value, global_step = session.run([train_op, loss, step], feed_dict=feed)
                local += 1
                if local % 50 == 0:
                    print(
                        f"After {local} training steps ({global_step} global steps), "
                        f"loss on training batch is {value:.4f}.  "
                        f"({(time.time() - started) / local:.3f} sec/batch)",
                        flush=True,
                    )
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
