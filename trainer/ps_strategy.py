"""`ps-strategy`: ps/worker training the TensorFlow 2 way, by a `ClusterCoordinator`.

The chief schedules steps, and whichever worker is free runs them. A worker that dies is left out
until it is back; its steps are run again by another.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from trainer import inputs, server
from trainer.asynchronous import fetch_and_push
from trainer.data import Dataset
from trainer.flags import Options
from trainer.model import MLP
from trainer.parameters import Parameters, Values, local_devices
from trainer.progress import Step
from trainer.role import Role
from trainer.stop import Stop
from trainer.worker import Training

# Calls scheduled but not yet known to be done, for each worker: enough that none is ever idle.
AHEAD = 3
LOSS = (tf.errors.AbortedError, tf.errors.UnavailableError)


def train(role: Role, options: Options, dataset: Dataset, stop: Stop) -> None:
    """Trains as the chief: saves, and prints a last line with the test accuracy."""
    training = Training(role, options, dataset, options.batch * options.devices)
    servers = role.tasks("ps")
    others = [*servers, *role.others(role.clients)]
    with server.naming_lost(role, servers, others):
        # Listens at once, as a launcher expects of a chief, and waits for workers that come later.
        with stop.waiting(lambda: server.waiting_text(role, others)):
            strategy = tf.distribute.ParameterServerStrategy(server.resolver(role))
        Coordinator(role, options, dataset, training, strategy).train(stop)


class Coordinator:
    """Schedules calls of several steps on the workers and reads their results in order."""

    def __init__(
        self, role: Role, options: Options, dataset: Dataset, training: Training, strategy: Any
    ) -> None:
        assert training.chief
        self._role = role
        self._options = options
        self._training = training
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        self._workers = len(role.cluster["worker"])
        with strategy.scope():  # round robin: the first of each kind is on the first ps
            ps = [""] * len(role.cluster["ps"])
            first = training.chief.first_values()
            self._shared = Parameters(MLP, ps, options, first=first)
        self._calls = {
            (count, silent): self._build(strategy, count, silent)
            for count in {options.steps_per_call, 1}
            for silent in (False, True)
        }
        examples = options.batch * options.devices
        make = tf.autograph.experimental.do_not_convert(
            lambda: inputs.pipeline(dataset, examples, None)
        )
        self._batches = iter(self._coordinator.create_per_worker_dataset(make))
        self._running: list[tuple[int, Any]] = []
        self._first = self._scheduled = self._step
        self._known = 0.0

    @property
    def _step(self) -> int:
        return int(self._shared.step.numpy())

    def train(self, stop: Stop) -> None:
        """Trains until the step limit."""
        others = self._role.others(self._role.tasks(*self._role.cluster))

        def run(step: int) -> list[Step]:
            self._schedule()
            count, result = self._running.pop(0)
            # TensorFlow's coordinator can die of a lost ps in a thread of its own, and never says
            # so.
            with stop.waiting(
                lambda: server.waiting_text(self._role, others), lambda: _lost_ps(self._role)
            ):
                losses = self._losses(result, count, stop)
            return [Step(float(loss), step + at) for at, loss in enumerate(losses, 1)]

        def fetch() -> Values:
            return self._shared.values([one.numpy() for one in self._shared.variables])

        def flush() -> None:
            self._coordinator.join()
            if not stop.requested and (lost := self._scheduled - self._step) > 0:
                print(f"{lost} of {self._scheduled} scheduled steps were lost", flush=True)

        stop.worth_waiting = True
        self._training.loop(self._first, run, fetch, lambda: stop.requested, flush)

    def _schedule(self) -> None:
        """Keeps every worker busy.

        Only those calls return losses whose lines will be printed: fetching is a call of its own.
        """
        every, limit = self._options.log_every, self._options.steps
        while len(self._running) < AHEAD * self._workers and self._scheduled < limit:
            count = self._options.steps_per_call
            count = count if limit - self._scheduled >= count else 1
            before = (self._scheduled - self._first) // every
            self._scheduled += count
            silent = (self._scheduled - self._first) // every == before
            call = self._calls[count, silent]
            result = self._coordinator.schedule(call, args=(self._batches,))
            self._running.append((count, result))

    def _losses(self, result: Any, count: int, stop: Stop) -> Any:
        """The losses of a call, not numbers where it returns none; the last known loss where the
        worker has left with them: the call is done, and its gradients are on the ps.
        """
        try:
            losses = result.fetch()
        except LOSS:
            if stop.requested or _lost_ps(self._role):
                raise
            print("a worker was lost before its loss was read; the next line repeats the last one")
            return np.full(count, self._known)
        if losses is None:
            return np.full(count, np.nan)
        self._known = float(losses[-1])
        return losses

    def _build(self, strategy: Any, count: int, silent: bool) -> Any:
        """A call of `count` steps; the moving average counts them at once."""
        options, shared = self._options, self._shared
        devices = local_devices(options.devices) if options.devices > 1 else [""]

        def replica(iterator: Any) -> Any:
            losses: list[Any] = []
            last = None
            for _ in range(count):
                loss, _, pushed = fetch_and_push(
                    shared, self._training.schedule, iterator.get_next(), devices, [""], last
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


def _lost_ps(role: Role) -> str:
    """Which ps accepts no connection, and why; empty when all do."""
    lost = server.refusing(role, role.tasks("ps"))
    return f"{role}: lost {lost}" if lost else ""
