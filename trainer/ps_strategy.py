"""`ps-strategy`: ps/worker training the TensorFlow 2 way, by a `ClusterCoordinator`.

The chief schedules steps, and whichever worker is free runs them. A worker that dies is left out
until it is back; its steps are run again by another.
"""

from typing import Any

import numpy as np
import tensorflow as tf

from trainer import inputs, server
from trainer.asynchronous import fetch_and_push
from trainer.model import MLP
from trainer.modes import Context
from trainer.parameters import Parameters, Values, common_devices
from trainer.progress import Step
from trainer.worker import Training

# Calls scheduled but not yet known to be done, for each worker: enough that none is ever idle.
AHEAD = 3
LOSS = (tf.errors.AbortedError, tf.errors.UnavailableError)


def train(context: Context) -> None:
    """Trains as the chief: schedules steps on the workers until the last one is done."""
    Coordinator(context).train()


class Coordinator(Training):
    """Schedules calls of several steps on the workers and reads their results in order."""

    def __init__(self, context: Context) -> None:
        role, options, *_ = context
        self._examples = options.batch * options.devices
        super().__init__(context, self._examples)
        self._ps = role.tasks("ps")
        self._others = [*self._ps, *role.others(role.clients)]
        self._running: list[tuple[int, Any]] = []
        self._known = 0.0

    def train(self) -> None:
        role, stop = self.role, self.stop
        with server.naming_lost(role, self._ps, self._others):
            # Listens at once, as a launcher expects, and waits for workers that come later.
            with stop.waiting(lambda: server.waiting_text(role, self._others)):
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
        self._calls = {
            (count, silent): self._build(strategy, count, silent)
            for count in {self.options.steps_per_call, 1}
            for silent in (False, True)
        }
        make = tf.autograph.experimental.do_not_convert(
            lambda: inputs.pipeline(self.dataset, self._examples, None)
        )
        self._batches = iter(self._coordinator.create_per_worker_dataset(make))
        self._first = self._scheduled = self._step

    @property
    def _step(self) -> int:
        return int(self._shared.step.numpy())

    def run(self, step: int) -> list[Step]:
        """The steps of the call that was scheduled first."""
        self._schedule()
        count, result = self._running.pop(0)
        # TensorFlow's coordinator can die of a lost ps in a thread of its own, and never says so.
        with self.stop.waiting(lambda: server.waiting_text(self.role, self._others), self._lost_ps):
            losses = self._losses(result, count)
        return [Step(float(loss), step + at) for at, loss in enumerate(losses, 1)]

    def fetch(self) -> Values:
        return self._shared.values([one.numpy() for one in self._shared.variables])

    def flush(self) -> None:
        if self.stop.requested:
            return  # the calls that still run are not waited for: the grace is for the checkpoint
        self._coordinator.join()
        if (lost := self._scheduled - self._step) > 0:
            print(f"{lost} of {self._scheduled} scheduled steps were lost")

    def _schedule(self) -> None:
        """Keeps every worker busy.

        Only those calls return losses whose lines will be printed: fetching is a call of its own.
        """
        every, limit = self.options.log_every, self.options.steps
        enough = AHEAD * len(self.role.cluster["worker"])
        while len(self._running) < enough and self._scheduled < limit:
            count = self.options.steps_per_call
            count = count if limit - self._scheduled >= count else 1
            before = (self._scheduled - self._first) // every
            self._scheduled += count
            silent = (self._scheduled - self._first) // every == before
            call = self._calls[count, silent]
            result = self._coordinator.schedule(call, args=(self._batches,))
            self._running.append((count, result))

    def _losses(self, result: Any, count: int) -> Any:
        """The losses of a call, not numbers where it returns none; the last known loss where the
        worker has left with them: the call is done, and its gradients are on the ps.
        """
        try:
            losses = result.fetch()
        except LOSS:
            if self._lost_ps():
                raise
            print("a worker was lost before its loss was read; the next line repeats the last one")
            return np.full(count, self._known)
        if losses is None:
            return np.full(count, np.nan)
        self._known = float(losses[-1])
        return losses

    def _lost_ps(self) -> str:
        """Which ps accepts no connection, and why; empty when all do."""
        lost = server.refusing(self.role, self._ps)
        return f"{self.role}: lost {lost}" if lost else ""

    def _towers(self) -> list[str]:
        """The devices of a step on whichever worker is free: GPUs where every worker has as many.

        The chief, which computes nothing, has connected to all tasks and knows their devices.
        """
        count, role = self.options.devices, self.role
        if count == 1:
            return [""]
        names = [device.name for device in tf.config.list_logical_devices()]
        return common_devices(map(role.device_of, role.tasks("worker")), count, names)

    def _build(self, strategy: Any, count: int, silent: bool) -> Any:
        """A call of `count` steps; the moving average counts them at once."""
        shared, towers = self._shared, self._towers()

        def replica(iterator: Any) -> Any:
            losses: list[Any] = []
            last = None
            for _ in range(count):
                loss, _, pushed = fetch_and_push(
                    shared, self.schedule, iterator.get_next(), towers, [""], last
                )
                done = shared.count(pushed)
                last = [done] * len(pushed)
                losses.append(loss)
            shared.average(done, done - count)
            return tf.stack(losses)

        # Without AutoGraph, whose generated files a killed task would leave behind in /tmp.
        @tf.function(autograph=False)  # type: ignore[untyped-decorator]
        def call(iterator: Any) -> Any:
            losses = strategy.run(replica, args=(iterator,))
            return None if silent else losses

        return call
