"""`all-reduce`: `MultiWorkerMirroredStrategy`: no ps, every worker has all weights.

    worker:  repeat
                 g ← ∇loss(w, batch)
                 g ← all-reduce mean of every worker's g
                 w ← w − η(step) · g;  step ← step + 1

Every worker waits for every other one at each step, and all make the same update.
"""

import contextlib
import functools
from argparse import Namespace
from typing import Any

import tensorflow as tf

from trainer import inputs, peers, server
from trainer.devices import described, local_devices, local_gpus, why_no_gpu
from trainer.exceptions import TrainerError
from trainer.model import MLP
from trainer.modes import Context
from trainer.parameters import Parameters, Values, mean, subtract
from trainer.progress import Step
from trainer.role import Role
from trainer.worker import Training

ADVICE = "a worker cannot rejoin alone: restart all workers together"
# Seconds for which a worker may stand still. One that ends closes its connections, which all see.
_STILL_SECONDS = 300


def train(context: Context) -> None:
    """Trains in step with the other workers."""
    MirroredWorker(context).train()


class MirroredWorker(Training):
    """One replica of the strategy, on the first of its GPUs; its towers take the others."""

    def __init__(self, context: Context) -> None:
        role, options, *_ = context
        gpus = local_gpus()
        self._gpus = set_devices(role, options)
        self._towers = local_devices(options.devices)
        print(f"{role} computes on {described(self._towers, gpus, why_no_gpu())}")
        self._batch = options.batch * options.devices
        super().__init__(context, self._batch * len(role.clients))
        self._others = role.others(role.clients)
        self._told_to_end = False

    @property
    def ending(self) -> bool:
        """Whether a worker was told to end: all stop at the same step, as nobody could go on."""
        return self._told_to_end

    def _waiting(self) -> Any:
        return self.stop.waiting(lambda: f"{peers.waiting_text(self.role, self._others)}; {ADVICE}")

    def train(self) -> None:
        role, stop = self.role, self.stop
        peers.meet(role, self._others, stop, ADVICE)
        if stop.requested:
            return
        with peers.naming_lost(role, self._others, self._others):
            with self._waiting():
                _let_workers_stand_still()
                resolver = server.resolver(role, min(self._gpus, 1))
                strategy = tf.distribute.MultiWorkerMirroredStrategy(resolver)
            print(f"{role} is one of {len(role.clients)}")
            weights = MLP.initial(self.options.seed)
            first = Values(0, weights, weights)
            first = self.checkpoints.first_values() if self.checkpoints else first
            with strategy.scope(), self._waiting():
                # Made everywhere with the chief's values: creation broadcasts the first worker's.
                self._shared = Parameters(MLP, [""], self.options, first)
            self._step_of_all = self._step_function(strategy)
            seed = self.options.seed + role.number
            self._batches = iter(inputs.pipeline(self.dataset, self._batch, seed))
            stop.worth_waiting = True
            self.loop(int(self._shared.step.numpy()))
            if self.ending and not stop.requested:
                step = int(self._shared.step.numpy())
                raise TrainerError(f"{role}: another worker was told to end at step {step}")

    def take_steps(self, step: int) -> list[Step]:
        """One step; what all learn with it is whether one of them was told to end."""
        asked = tf.constant(1.0 if self.stop.requested else 0.0)
        with self._waiting():
            loss, asking = self._step_of_all(*next(self._batches), asked)
            self._told_to_end = float(asking) > 0
        return [Step(float(loss), step + 1)]

    def fetch(self) -> Values:
        return self._shared.values([one.numpy() for one in self._shared.variables])

    def _step_function(self, strategy: Any) -> Any:
        """One step: the gradients of this worker's devices, and their mean over all workers."""
        shared, layout, count = self._shared, self._shared.layout, self.options.devices
        (flat,) = shared.flats
        devices = self._towers if count > 1 else [""]

        def replica(images: Any, labels: Any, asked: Any) -> Any:
            rate = self.schedule(tf.cast(shared.step.read_value(), tf.float32))
            numbers = flat.read_value()  # w: (all numbers,)
            losses, gradients = [], []  # g ← ∇loss(w, batch); of each device: (all numbers,)
            parts = inputs.parts((images, labels), count)  # (batch, 784) and (batch,) a device
            for device, part in zip(devices, parts, strict=True):
                with tf.device(device):
                    weights = layout.split([tf.identity(numbers)])
                    losses.append(self.loss(weights, *part))
                    gradients += layout.join(tf.gradients(losses[-1], weights))

            context = tf.distribute.get_replica_context()
            # An argument has no device of its own, and all_reduce wants one: hence the identity.
            gradient, asking = context.all_reduce(
                tf.distribute.ReduceOp.MEAN, [mean(gradients), tf.identity(asked)]
            )
            pushed = subtract(flat, rate, gradient)  # w ← w − η(step) · g
            with tf.control_dependencies([pushed]):  # step ← step + 1
                tf.raw_ops.AssignAddVariableOp(
                    resource=shared.step.handle, value=tf.constant(1, tf.int64)
                )
            shared.average(shared.step.read_value())
            return mean(losses), asking

        # Without AutoGraph, whose generated files a killed task would leave behind in /tmp.
        @tf.function(autograph=False)  # type: ignore[untyped-decorator]
        def step(images: Any, labels: Any, asked: Any) -> Any:
            return strategy.run(replica, args=(images, labels, asked))

        return step


def _let_workers_stand_still() -> None:
    """Has TensorFlow wait for a worker that is stopped, or gets no processor: after ten seconds
    without its heartbeat it ends the training on all of them. Its settings have no name for that.
    """
    with contextlib.suppress(ImportError, AttributeError):  # of another release
        from tensorflow.python.eager import context

        present = context.context()
        present.configure_coordination_service = functools.partial(
            present.configure_coordination_service, heartbeat_timeout_in_ms=_STILL_SECONDS * 1000
        )


def set_devices(role: Role, options: Namespace) -> int:
    """One batch a device: GPUs, in turn where there are fewer, or logical CPU devices.

    Returns how many GPUs it uses.
    """
    tf.config.threading.set_intra_op_parallelism_threads(server.threads(role, options))
    count: int = options.devices
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices(gpus[:count], "GPU")
    elif count > 1:
        cpu = tf.config.list_physical_devices("CPU")[0]
        parts = [tf.config.LogicalDeviceConfiguration() for _ in range(count)]
        tf.config.set_logical_device_configuration(cpu, parts)
    return min(count, len(gpus))
