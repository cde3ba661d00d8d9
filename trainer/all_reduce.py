"""`all-reduce`: `MultiWorkerMirroredStrategy`: no ps, every worker has all weights.

Each worker computes the gradients of its own batch; they average them among themselves and all make
the same update.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from trainer import data, server
from trainer.checkpoint import Checkpoints
from trainer.chief import Chief
from trainer.errors import TrainerError
from trainer.inputs import cut
from trainer.model import MLP, Schedule, average_share
from trainer.parameters import Layout, Values, local_devices, mean, subtract, tower_gradients
from trainer.progress import Progress, Step, Summaries

if TYPE_CHECKING:
    from trainer.data import Dataset
    from trainer.flags import Options
    from trainer.role import Role
    from trainer.stop import Stop


ADVICE = "a worker cannot come back alone: all of them start together"
LOSS = (tf.errors.AbortedError, tf.errors.UnavailableError)


def train(role: Role, options: Options, dataset: Dataset, stop: Stop) -> None:
    """Trains in step with the other workers until the step limit; the chief saves and tests.

    Raises:
        CheckpointError: The chief's log directory belongs to another run.
        TrainerError: Another worker was lost, or was told to end: that ends the training of all.
    """
    checkpoints = Checkpoints.of(options)
    if role.is_chief:
        checkpoints.find()
    gpus = set_devices(role, options)
    others = [task for task in role.clients if task != (role.job, role.index)]
    # One replica a worker, on the first of its GPUs; its towers take the others.
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        server.cluster_spec(role),
        task_type=role.job,
        task_id=role.index,
        rpc_layer="grpc",
        num_accelerators={"GPU": min(gpus, 1)},
    )

    def waits() -> str:
        return f"{server.waiting_text(role, others)}; {ADVICE}"

    server.meet(role, others, stop, ADVICE)
    if stop.requested:
        return
    try:
        with stop.waiting(waits):
            strategy = tf.distribute.MultiWorkerMirroredStrategy(resolver)
        print(f"{role} is one of {role.trainers}", flush=True)
        _train(role, options, dataset, stop, strategy, checkpoints, waits)
    except (tf.errors.OpError, RuntimeError) as error:
        if not isinstance(error, LOSS) and not server.any_refuses(role, others):
            raise
        raise TrainerError(f"{role}: lost {server.lost_task(role, others, error)}") from None


def set_devices(role: Role, options: Options) -> int:
    """One batch a device: as many GPUs, or logical CPU devices where there are fewer.

    Returns how many GPUs it uses: `options.devices`, or none.
    """
    tf.config.threading.set_intra_op_parallelism_threads(server.threads(role, options))
    count: int = options.devices
    gpus = tf.config.list_physical_devices("GPU")
    if len(gpus) >= count:
        tf.config.set_visible_devices(gpus[:count], "GPU")
        return count
    if gpus:
        tf.config.set_visible_devices([], "GPU")
    if count > 1:
        cpu = tf.config.list_physical_devices("CPU")[0]
        parts = [tf.config.LogicalDeviceConfiguration() for _ in range(count)]
        tf.config.set_logical_device_configuration(cpu, parts)
    return 0


def _train(
    role: Role,
    options: Options,
    dataset: Dataset,
    stop: Stop,
    strategy: Any,
    checkpoints: Checkpoints,
    waits: Any,
) -> None:
    summaries = Summaries(checkpoints.directory if role.is_chief else None)
    chief = Chief(MLP, options, checkpoints, dataset.test, summaries) if role.is_chief else None
    first = MLP.initial(options.seed)
    values = chief.start() if chief else Values(0, first, first)
    layout = Layout(MLP, 1)
    with strategy.scope(), stop.waiting(waits):
        # Made everywhere with the chief's values: creation broadcasts the first worker's.
        flat, average = (
            tf.Variable(layout.join_arrays(arrays)[0], trainable=False)
            for arrays in (values.weights, values.averages)
        )
        start = tf.Variable(values.step, trainable=False, dtype=tf.int64)
    step = int(start.numpy())
    local = options.batch * options.devices
    examples = local * role.trainers
    schedule = Schedule(
        options.learning_rate or MLP.learning_rate,
        options.learning_rate_decay,
        len(dataset.train) / examples,
    )
    call = _step(strategy, layout, flat, average, options, dataset)
    batches = data.batches(len(dataset.train), local, options.seed + role.trainer_number)
    progress = Progress(options.log_every, examples, summaries)
    print(f"{role} starts at global step {step}", flush=True)
    progress.begin(step)

    def fetch() -> Values:
        parts = [layout.split_arrays([one.numpy()]) for one in (flat, average)]
        return Values(step, *parts)

    if chief:
        chief.save(values, test=False)
    stop.worth_waiting = True
    ending = False
    while step < options.steps and not ending:
        asked = tf.constant(1.0 if stop.requested else 0.0)
        rate = tf.constant(schedule(step), tf.float32)
        share = average_share(options.average_decay, step + 1, step)
        with stop.waiting(waits):
            loss, asking = call(tf.constant(next(batches)), rate, share, asked)
            # All stop at the same step: who left earlier would leave the others waiting for it.
            ending = float(asking) > 0
        step += 1
        progress.add([Step(float(loss), step)], schedule(step))
        if chief and chief.due():
            chief.save(fetch())
    if chief:
        chief.save(fetch(), test=False)
    if ending and not stop.requested:
        raise TrainerError(f"{role}: another worker was told to end at step {step}")
    if not ending:
        progress.finish(chief.accuracy(fetch()) if chief else None)


def _step(
    strategy: Any, layout: Layout, flat: Any, average: Any, options: Options, dataset: Dataset
) -> Any:
    """One step: the gradients of this worker's devices, and their mean over all workers."""
    images, labels = tf.constant(dataset.train.images), tf.constant(dataset.train.labels)
    devices = local_devices(options.devices) if options.devices > 1 else [""]

    def replica(indices: Any, rate: Any, share: Any, asked: Any) -> Any:
        batches = cut((tf.gather(images, indices), tf.gather(labels, indices)), devices)
        losses, towers = tower_gradients(
            MLP, layout, devices, [flat.read_value()], batches, options.l2
        )
        context = tf.distribute.get_replica_context()
        # An argument has no device of its own, and all_reduce wants one: hence the identity.
        gradient, asking = context.all_reduce(
            tf.distribute.ReduceOp.MEAN, [mean([one for (one,) in towers]), tf.identity(asked)]
        )
        with tf.control_dependencies([subtract(flat, rate, gradient)]):
            subtract(average, share, average.read_value() - flat.read_value())
        return mean(losses), asking

    # Without AutoGraph, whose generated files a killed task would leave behind in /tmp.
    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def call(indices: Any, rate: Any, share: Any, asked: Any) -> Any:
        return strategy.run(replica, args=(indices, rate, share, asked))

    return call
