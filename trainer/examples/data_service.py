"""`tour data-service`: an input pipeline on other tasks: a tf.data dispatcher and its workers."""

from __future__ import annotations

from trainer import stop
from trainer.errors import UsageError
from trainer.flags import Options
from trainer.stop import Stop

BATCHES = 20


def run(options: Options) -> int:
    """Serves as the dispatcher or as one of its workers until TERM, or reads as the client."""
    if options.part != "client" and not options.address:
        raise UsageError(f"--part={options.part} needs its --address")

    def work(stop: Stop) -> None:
        if options.part == "client":
            _read(options.dispatcher)
            return
        server = _serve(options)
        print(f"{options.part} listens on {options.address}", flush=True)
        stop.expected = True
        stop.wait()
        del server

    return stop.run(work, options.grace)


def _serve(options: Options) -> object:
    import tensorflow as tf

    service = tf.data.experimental.service
    port = int(options.address.rpartition(":")[2])
    if options.part == "dispatcher":
        return service.DispatchServer(service.DispatcherConfig(port=port))
    return service.WorkerServer(
        service.WorkerConfig(options.dispatcher, worker_address=options.address, port=port)
    )


def _read(dispatcher: str) -> None:
    """Reads the batches that the workers have made."""
    import tensorflow as tf

    numbers = tf.data.Dataset.range(10 * BATCHES).batch(10)
    sharing = tf.data.experimental.service.ShardingPolicy.DYNAMIC  # whoever is free takes the next
    service = tf.data.experimental.service.distribute(sharing, f"grpc://{dispatcher}")
    seen = 0
    for batch in numbers.map(lambda values: values * values).apply(service):
        seen += 1
        if seen % 5 == 0:
            print(f"batch {seen} of {BATCHES}: {batch.numpy().min()} to {batch.numpy().max()}")
    print(f"read {seen} batches, each once: the workers shared the work", flush=True)
