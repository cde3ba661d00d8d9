"""tf.data's service: a dispatcher and workers that make batches, and a program that trains on them.

    data_service.py dispatcher PORT | worker ADDRESS PORT DISPATCHER | train DISPATCHER

The servers `join()`: they serve until they get TERM. The weights of the trained line are 2 and -3.
"""

import sys

import tensorflow as tf

service = tf.data.experimental.service


def serve_as_dispatcher(port: str) -> None:
    service.DispatchServer(service.DispatcherConfig(port=int(port))).join()


def serve_as_worker(address: str, port: str, dispatcher: str) -> None:
    config = service.WorkerConfig(dispatcher, worker_address=f"{address}:{port}", port=int(port))
    service.WorkerServer(config).join()


def train(dispatcher: str) -> None:
    numbers = tf.data.Dataset.range(2000).map(lambda i: tf.cast(i % 200, tf.float32) / 100 - 1)
    pairs = numbers.map(lambda x: (tf.stack([x, x * x]), 2 * x - 3 * x * x)).batch(20)
    shared = service.ShardingPolicy.DYNAMIC  # whichever worker is free makes the next batch
    batches = pairs.apply(service.distribute(shared, f"grpc://{dispatcher}"))
    weights = tf.Variable(tf.zeros(2))
    step = 0
    for epoch in range(6):
        for inputs, wanted in batches:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((tf.linalg.matvec(inputs, weights) - wanted) ** 2)
            weights.assign_sub(0.1 * tape.gradient(loss, weights))
            step += 1
        print(f"epoch {epoch} step {step} loss {loss:.4f}")
    print(f"done {weights.numpy().round(1)}")


if __name__ == "__main__":
    {"dispatcher": serve_as_dispatcher, "worker": serve_as_worker, "train": train}[sys.argv[1]](
        *sys.argv[2:]
    )
