"""`MultiWorkerMirroredStrategy`: every worker has all weights, and all make the same updates."""

import tensorflow as tf

STEPS = 200


def main():
    """Trains as one worker; all end with the same weights."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        weights = tf.Variable(tf.zeros(3), aggregation=tf.VariableAggregation.MEAN)
    plane = tf.constant([2.0, -3.0, 0.5])
    print(f"{strategy.num_replicas_in_sync} replicas", flush=True)

    def replica():
        inputs = tf.random.normal((64, 3))
        with tf.GradientTape() as tape:
            error = tf.linalg.matvec(inputs, weights) - tf.linalg.matvec(inputs, plane)
            loss = tf.reduce_mean(error**2)
        weights.assign_sub(0.05 * tape.gradient(loss, weights))
        return loss

    @tf.function
    def step():
        return strategy.reduce("MEAN", strategy.run(replica), axis=None)

    for number in range(1, STEPS + 1):
        loss = step()
        if number % 20 == 0:
            print(f"step {number} loss {float(loss):.6f}", flush=True)
    print("done", weights.numpy().round(2), flush=True)


if __name__ == "__main__":
    main()
