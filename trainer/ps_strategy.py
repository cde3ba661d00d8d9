"""`ps-strategy`: ps/worker training the TensorFlow 2 way, by a `ClusterCoordinator`.

    ps:      w (all weights), step
    chief:   repeat: schedule a step; wait for the oldest one that runs
    worker:  for each step that the coordinator gives it
                 w' ← w                      fetch, from every ps
                 g ← ∇loss(w', batch)        on the worker
                 w ← w − η(step) · g         push: the ps subtracts
                 step ← step + 1

Whichever worker is free runs the next step; no worker waits for another. A worker that dies is left
out until it is back, and another one runs its step again. To read a loss is a message of its own:
only steps whose line is printed return theirs.
"""

import math
from collections import deque
from typing import Any

import tensorflow as tf

from trainer import inputs, peers, server
from trainer.devices import common_devices, described, gpus_of
from trainer.model import MLP
from trainer.modes import Context
from trainer.parameters import Parameters, Values, average_gradients, mean, subtract
from trainer.progress import Step
from trainer.worker import Training

# Steps scheduled but not yet known to be done, for each worker: enough that none is ever idle.
AHEAD = 8
LOST = (tf.errors.AbortedError, tf.errors.UnavailableError)


def train(context: Context) -> None:
    """Trains as the chief: schedules steps on the workers until the last one is done."""
    Coordinator(context).train()


class Coordinator(Training):
    """Schedules steps on the workers and reads their losses in order."""

    def __init__(self, context: Context) -> None:
        role, options, *_ = context
        self._examples = options.batch * options.devices
        super().__init__(context, self._examples)
        self._ps = role.tasks("ps")
        self._others = [*self._ps, *role.others(role.clients)]
        self._running: deque[Any] = deque()
        self._last_loss = 0.0

    def train(self) -> None:
        role, stop = self.role, self.stop
        with peers.naming_lost(role, self._ps, self._others):
            # Listens at once, as a launcher expects, and waits for workers that come later.
            with stop.waiting(lambda: peers.waiting_text(role, self._others)):
                strategy = tf.distribute.ParameterServerStrategy(server.resolver(role))
            self._prepare(strategy)
            stop.worth_waiting = True
            self.loop(self._first)

    def _prepare(self, strategy: Any) -> None:
        assert self.checkpoints
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        with strategy.scope():  # round robin: the first of each kind is on the first ps
            first = self.checkpoints.first_values()
            self._shared = Parameters(MLP, [""] * len(self._ps), self.options, first)
        towers = self._towers()
        self._steps = {
            with_loss: self._step_function(strategy, towers, with_loss)
            for with_loss in (True, False)
        }
        make = tf.autograph.experimental.do_not_convert(
            lambda: inputs.pipeline(self.dataset, self._examples, None)
        )
        self._batches = iter(self._coordinator.create_per_worker_dataset(make))
        self._first = self._scheduled = self._present_step()

    def _present_step(self) -> int:
        return int(self._shared.step.numpy())

    def take_steps(self, step: int) -> list[Step]:
        """The step that was scheduled first; before that every worker gets enough to do."""
        most = AHEAD * len(self.role.cluster["worker"])
        while len(self._running) < most and self._scheduled < self.options.steps:
            self._scheduled += 1
            with_loss = self.progress.has_line(self._scheduled - self._first)
            step_function = self._steps[with_loss]
            self._running.append(self._coordinator.schedule(step_function, args=(self._batches,)))
        result = self._running.popleft()
        # TensorFlow's coordinator can die of a lost ps in a thread of its own, and never says so.
        with self.stop.waiting(lambda: peers.waiting_text(self.role, self._others), self._lost_ps):
            return [Step(self._loss(result), step + 1)]

    def fetch(self) -> Values:
        return self._shared.values([one.numpy() for one in self._shared.variables])

    def flush(self) -> None:
        if self.stop.requested:
            return  # the calls that still run are not waited for: the grace is for the checkpoint
        self._coordinator.join()
        if (lost := self._scheduled - self._present_step()) > 0:
            print(f"{lost} of {self._scheduled} scheduled steps were lost")

    def _loss(self, result: Any) -> float:
        """The loss of a step, when it is done, and not a number where it returns none; the last
        known one where the worker has left with it: its gradients are on the ps."""
        try:
            loss = result.fetch()
        except LOST:
            if self._lost_ps():
                raise
            print("a worker was lost before its loss was read; the next line repeats the last one")
        else:
            if loss is None:
                return math.nan
            self._last_loss = float(loss)
        return self._last_loss

    def _lost_ps(self) -> str:
        """Which ps accepts no connection, and why; empty when all do."""
        lost = peers.refusing(self.role, self._ps)
        return f"{self.role}: lost {lost}" if lost else ""

    def _towers(self) -> list[str]:
        """The devices of a step on whichever worker is free: GPUs that every worker has.

        The chief, which computes nothing, has connected to all tasks and knows their devices.
        """
        count, role = self.options.devices, self.role
        names = [device.name for device in tf.config.list_logical_devices()]
        workers = [role.device_of(task) for task in role.tasks("worker")]
        devices = common_devices(workers, count, names)
        gpus = min(gpus_of(worker, names) for worker in workers)
        why = "there is a worker without a GPU"
        print(f"each worker computes on {described(devices, gpus, why)}")
        return devices if count > 1 else [""]

    def _step_function(self, strategy: Any, towers: list[str], with_loss: bool) -> Any:
        """One step, as a function that the coordinator runs on a worker's `towers`; it returns the
        loss or nothing."""
        shared, layout = self._shared, self._shared.layout

        def replica(iterator: Any) -> Any:
            with tf.device(shared.step.device):  # left alone it would travel to the worker and back
                rate = self.schedule(tf.cast(shared.step.read_value(), tf.float32))
            fetched = []  # w' ← w; of each ps: (numbers there,)
            for flat in shared.flats:
                with tf.device(flat.device):
                    fetched.append(flat.read_value())

            losses, gradients = [], []  # g ← ∇loss(w', batch); of each tower, of each ps the same
            parts = inputs.parts(iterator.get_next(), len(towers))
            for tower, (images, labels) in zip(towers, parts, strict=True):
                with tf.device(tower):
                    weights = layout.split([tf.identity(flat) for flat in fetched])
                    losses.append(self.loss(weights, images, labels))
                    gradients.append(layout.join(tf.gradients(losses[-1], weights)))
            means = average_gradients(gradients)

            pushed = []  # w ← w − η(step) · g
            for flat, gradient in zip(shared.flats, means, strict=True):
                with tf.device(flat.device):
                    pushed.append(subtract(flat, rate, gradient))
            with tf.device(shared.step.device), tf.control_dependencies(pushed):
                step_after = tf.identity(shared.step.assign_add(1))  # step ← step + 1
                step_before = step_after - 1
            shared.average(step_after, step_before)  # its own step: others average theirs
            return mean(losses)

        # Without AutoGraph, whose generated files a killed task would leave behind in /tmp.
        @tf.function(autograph=False)  # type: ignore[untyped-decorator]
        def step(iterator: Any) -> Any:
            loss = strategy.run(replica, args=(iterator,))
            return loss if with_loss else None

        return step
