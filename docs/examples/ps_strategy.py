"""`ParameterServerStrategy`: the chief schedules steps on the workers, variables are on the ps."""

import json
import os

import tensorflow as tf

STEPS = 200


def serve(resolver):
    """Serves as a ps or a worker, until it is ended."""
    tf.distribute.Server(
        resolver.cluster_spec(),
        job_name=resolver.task_type,
        task_index=resolver.task_id,
        protocol="grpc",
    ).join()


def coordinate(resolver):
    """Trains as the chief."""
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        weights = tf.Variable(tf.zeros(3))
    plane = tf.constant([2.0, -3.0, 0.5])

    def replica():
        inputs = tf.random.normal((64, 3))
        with tf.GradientTape() as tape:
            error = tf.linalg.matvec(inputs, weights) - tf.linalg.matvec(inputs, plane)
            loss = tf.reduce_mean(error**2)
        weights.assign_sub(0.05 * tape.gradient(loss, weights))
        return loss

    @tf.function
    def step():
        return strategy.run(replica)

    for number in range(20, STEPS + 1, 20):
        losses = [coordinator.schedule(step) for _ in range(20)]
        coordinator.join()
        print(f"step {number} loss {float(losses[-1].fetch()):.6f}", flush=True)
    print("done", weights.numpy().round(2), flush=True)


if __name__ == "__main__":
    task = json.loads(os.environ["TF_CONFIG"])["task"]["type"]
    found = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    coordinate(found) if task == "chief" else serve(found)
