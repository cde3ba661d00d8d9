"""`all-reduce`: `MultiWorkerMirroredStrategy`: no ps, every worker has all weights.

Each worker computes the gradients of its own batch; they average them among themselves and all make
the same update.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from trainer import inputs, server
from trainer.data import Dataset
from trainer.errors import TrainerError
from trainer.flags import Options
from trainer.model import MLP
from trainer.parameters import Parameters, Values, local_devices, mean
from trainer.progress import Step
from trainer.role import Role
from trainer.stop import Stop
from trainer.worker import Training

ADVICE = "a worker cannot rejoin alone: restart all workers together"


def train(role: Role, options: Options, dataset: Dataset, stop: Stop) -> None:
    """Trains in step with the other workers until the step limit; the chief saves and tests."""
    gpus = set_devices(role, options)
    training = Training(role, options, dataset, options.batch * options.devices * role.trainers)
    others = role.others(role.clients)

    def waits() -> str:
        return f"{server.waiting_text(role, others)}; {ADVICE}"

    server.meet(role, others, stop, ADVICE)
    if stop.requested:
        return
    with server.naming_lost(role, others, others):
        with stop.waiting(waits):
            # One replica a worker, on the first of its GPUs; its towers take the others.
            resolver = server.resolver(role, min(gpus, 1))
            strategy = tf.distribute.MultiWorkerMirroredStrategy(resolver)
        print(f"{role} is one of {role.trainers}", flush=True)
        first = MLP.initial(options.seed)
        values = training.chief.first_values() if training.chief else Values(0, first, first)
        with strategy.scope(), stop.waiting(waits):
            # Made everywhere with the chief's values: creation broadcasts the first worker's.
            shared = Parameters(MLP, [""], options, first=values)
        call = _call(strategy, shared, options, training)
        batch, seed = options.batch * options.devices, options.seed + role.trainer_number
        batches = iter(inputs.pipeline(dataset, batch, seed))
        ending = False

        def run(step: int) -> list[Step]:
            nonlocal ending
            asked = tf.constant(1.0 if stop.requested else 0.0)
            with stop.waiting(waits):
                loss, asking = call(*next(batches), asked)
                # All stop at the same step: who left earlier would leave the others waiting.
                ending = float(asking) > 0
            return [Step(float(loss), step + 1)]

        def fetch() -> Values:
            return shared.values([one.numpy() for one in shared.variables])

        stop.worth_waiting = True
        training.loop(int(shared.step.numpy()), run, fetch, lambda: ending)
        if ending and not stop.requested:
            step = int(shared.step.numpy())
            raise TrainerError(f"{role}: another worker was told to end at step {step}")


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


def _call(strategy: Any, shared: Parameters, options: Options, training: Training) -> Any:
    """One step: the gradients of this worker's devices, and their mean over all workers."""
    devices = local_devices(options.devices) if options.devices > 1 else [""]

    def replica(images: Any, labels: Any, asked: Any) -> Any:
        rate = training.schedule.tensor(shared.step.read_value())
        loss, (column,) = shared.gradients(devices, shared.fetch(), (images, labels))
        context = tf.distribute.get_replica_context()
        # An argument has no device of its own, and all_reduce wants one: hence the identity.
        gradient, asking = context.all_reduce(
            tf.distribute.ReduceOp.MEAN, [mean(column), tf.identity(asked)]
        )
        shared.average(shared.count(shared.descend([gradient], rate)))
        return loss, asking

    # Without AutoGraph, whose generated files a killed task would leave behind in /tmp.
    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def call(images: Any, labels: Any, asked: Any) -> Any:
        return strategy.run(replica, args=(images, labels, asked))

    return call
