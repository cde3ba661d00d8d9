"""`tour data-service`: an input pipeline on other tasks: a tf.data dispatcher and its workers."""

from argparse import Namespace

import tensorflow as tf

from trainer import stop
from trainer.exceptions import UsageError
from trainer.stop import Stop

BATCHES = 20
service = tf.data.experimental.service


def run(options: Namespace) -> int:
    """Serves as the dispatcher or as one of its workers until TERM, or reads as the client."""
    if options.part == "client":
        return stop.run(lambda _: _read(options.dispatcher), options.grace)
    if not options.address:
        raise UsageError(f"--part={options.part} needs its --address")
    return stop.run(lambda stop: _serve(options, stop), options.grace)


def _serve(options: Namespace, stop: Stop) -> None:
    port = int(options.address.rpartition(":")[2])
    if options.part == "dispatcher":
        server = service.DispatchServer(service.DispatcherConfig(port=port))
    else:
        where = {"worker_address": options.address, "port": port}
        server = service.WorkerServer(service.WorkerConfig(options.dispatcher, **where))
    print(f"{options.part} listens on {options.address}")
    stop.expected = True
    stop.wait()
    del server  # it serves as long as it is there


def _read(dispatcher: str) -> None:
    """Reads the batches that the workers have made."""
    numbers = tf.data.Dataset.range(10 * BATCHES).batch(10)
    sharing = service.ShardingPolicy.DYNAMIC  # whoever is free takes the next
    distribution = service.distribute(sharing, f"grpc://{dispatcher}")
    seen = 0
    for batch in numbers.map(lambda values: values * values).apply(distribution):
        seen += 1
        if seen % 5 == 0:
            print(f"batch {seen} of {BATCHES}: {batch.numpy().min()} to {batch.numpy().max()}")
    print(f"read {seen} batches, each once: the workers shared the work")
