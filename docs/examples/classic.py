"""A program as TensorFlow 1's tutorials have it: classic flags, one server for each task."""

import argparse

import numpy as np
import tensorflow.compat.v1 as tf

STEPS = 200


def main():
    """Serves variables as `ps`, trains as `worker`."""
    parser = argparse.ArgumentParser()
    for name in ("--job_name", "--ps_hosts", "--worker_hosts", "--logdir"):
        parser.add_argument(name, required=True)
    parser.add_argument("--task_index", "--task_id", type=int, required=True)
    flags = parser.parse_args()
    tf.disable_v2_behavior()
    jobs = {"ps": flags.ps_hosts.split(","), "worker": flags.worker_hosts.split(",")}
    cluster = tf.train.ClusterSpec(jobs)
    server = tf.train.Server(cluster, flags.job_name, flags.task_index)
    if flags.job_name == "ps":
        server.join()
    with tf.device(tf.train.replica_device_setter(cluster=cluster)):
        inputs, targets = tf.placeholder(tf.float32, (None, 3)), tf.placeholder(tf.float32, (None,))
        weights = tf.get_variable("weights", (3,))
        loss = tf.reduce_mean((tf.linalg.matvec(inputs, weights) - targets) ** 2)
        step = tf.train.get_or_create_global_step()
        train = tf.train.GradientDescentOptimizer(0.05).minimize(loss, global_step=step)
        # One file, which this task writes; the default has a part of each ps, on the ps's disk.
        saver = tf.train.Saver()
    # Without filters a worker would wait for all others, also for one that has ended.
    known = ["/job:ps", f"/job:worker/task:{flags.task_index}"]
    random, plane = np.random.default_rng(flags.task_index), np.array([2.0, -3.0, 0.5])
    with tf.train.MonitoredTrainingSession(
        server.target,
        is_chief=flags.task_index == 0,
        scaffold=tf.train.Scaffold(saver=saver),
        checkpoint_dir=flags.logdir,
        config=tf.ConfigProto(device_filters=known),
        hooks=[tf.train.StopAtStepHook(last_step=STEPS)],
    ) as session:
        while not session.should_stop():
            batch = random.normal(size=(64, 3))
            fed = {inputs: batch, targets: batch @ plane}
            _, value, number = session.run([train, loss, step], fed)
            if number % 20 == 0:
                print(f"step {number} loss {value:.6f}", flush=True)
    print("done", flush=True)


if __name__ == "__main__":
    main()
