"""`classic`: the ps/worker program as the tutorials of TensorFlow 1 have it, in one file.

    ps:      w (each weight a variable), step
    worker:  repeat
                 batch ← feed_dict
                 w' ← w                      fetch, from the ps
                 g ← ∇loss(w', batch)        on the worker
                 w ← w − η(step) · g;  step ← step + 1    on the ps; --sync: the mean of all

Nobody waits for anybody; with `--sync` each step waits for a gradient of every worker.

Images go through `feed_dict`, the chief updates the moving average at every step,
`MonitoredTrainingSession` initialises, saves and waits. The other modes do the same faster and say
more, and are measured beside this one; `classic_report` has what is not the tutorials'.
"""

import os
import time
from argparse import Namespace
from typing import Any

import tensorflow.compat.v1 as tf

from trainer import data, role
from trainer.classic_report import Report, end_quietly, report_devices
from trainer.data.tutorial import DataSet
from trainer.exceptions import UsageError

BATCH = 100
HIDDEN = 500
L2 = 0.0001
LEARNING_RATE = 0.2
LEARNING_RATE_DECAY = 0.99
AVERAGE_DECAY = 0.99
LOG_EVERY = 50
STOP_GRACE_SECS = 2  # instead of two minutes for a queue runner that nobody serves any more


def run(options: Namespace) -> int:
    """One task of the cluster: a ps, or a worker, the first of which is the chief."""
    me = role.resolve(options, os.environ, ("ps", "worker"))
    if "chief" in me.cluster:
        raise UsageError("classic has no chief job, its chief is worker:0; leave it out")
    cluster = tf.train.ClusterSpec({job: list(tasks) for job, tasks in me.cluster.items()})
    server = tf.train.Server(cluster, job_name=me.job, task_index=me.index)
    if me.job == "ps":
        server.join()
    with tf.Graph().as_default():
        _train(options, server.target, cluster, me.index, len(me.cluster["worker"]))
    return 0


def _network(x: Any) -> tuple[Any, Any]:
    """Logits of a network of one hidden layer, and the L2 norm of its weights."""
    normal, zeros = tf.truncated_normal_initializer(stddev=0.1), tf.zeros_initializer()
    w1 = tf.get_variable("w1", (data.PIXELS, HIDDEN), initializer=normal)
    b1 = tf.get_variable("b1", (HIDDEN,), initializer=zeros)
    w2 = tf.get_variable("w2", (HIDDEN, 10), initializer=normal)
    b2 = tf.get_variable("b2", (10,), initializer=zeros)
    hidden = tf.nn.relu(tf.matmul(x, w1) + b1)
    return tf.matmul(hidden, w2) + b2, tf.nn.l2_loss(w1) + tf.nn.l2_loss(w2)


def _train(options: Namespace, target: str, cluster: Any, index: int, workers: int) -> None:
    is_chief = index == 0
    report_devices(f"worker:{index}")
    dataset = data.load(options.data, in_memory=True)
    train = DataSet(dataset.train, one_hot=False, dtype="float32", reshape=True, seed=index)
    task = f"/job:worker/task:{index}"
    hooks: list[Any] = [tf.train.StopAtStepHook(last_step=options.steps)]
    with tf.device(tf.train.replica_device_setter(worker_device=task, cluster=cluster)):
        step = tf.train.get_or_create_global_step()
        x = tf.placeholder(tf.float32, (None, data.PIXELS))
        y = tf.placeholder(tf.int64, (None,))
        logits, l2 = _network(x)
        entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits)
        loss = tf.reduce_mean(entropy) + L2 * l2
        accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), y), tf.float32))
        epoch = max(1, train.num_examples // BATCH)
        rate = tf.train.exponential_decay(LEARNING_RATE, step, epoch, LEARNING_RATE_DECAY)
        optimizer: Any = tf.train.GradientDescentOptimizer(rate)
        averages = tf.train.ExponentialMovingAverage(AVERAGE_DECAY, step)
        variables = tf.trainable_variables()
        if options.sync:
            optimizer = tf.train.SyncReplicasOptimizer(
                optimizer,
                replicas_to_aggregate=workers,
                total_num_replicas=workers,
                variable_averages=averages,
                variables_to_average=variables,
            )
            hooks.append(optimizer.make_session_run_hook(is_chief))
        train_op = optimizer.minimize(loss, global_step=step)
        if options.sync:
            end_quietly(optimizer)
        elif is_chief:
            train_op = tf.group(train_op, averages.apply(variables))
        # On this worker: TensorFlow's default lets each ps write its part, on the ps's own disk.
        saver = tf.train.Saver()
    if is_chief:
        test = {x: dataset.test.images / 255.0, y: dataset.test.labels}
        hooks.append(Report(loss, step, accuracy, test))
    started, local = time.time(), 0
    with tf.train.MonitoredTrainingSession(
        master=target,
        is_chief=is_chief,
        scaffold=tf.train.Scaffold(saver=saver),
        checkpoint_dir=options.logdir if is_chief else None,
        hooks=hooks,
        config=tf.ConfigProto(device_filters=["/job:ps", task]),
        stop_grace_period_secs=STOP_GRACE_SECS,
    ) as session:
        while not session.should_stop():
            images, labels = train.next_batch(BATCH)
            feed = {x: images, y: labels}
            _, value, global_step = session.run([train_op, loss, step], feed_dict=feed)
            local += 1
            if local % LOG_EVERY == 0:
                seconds = (time.time() - started) / local
                print(
                    f"After {local} training steps ({global_step} global steps), loss on training "
                    f"batch is {value:.4f}.  ({seconds:.3f} sec/batch)"
                )
