"""`ps-strategy`: ps/worker training the TensorFlow 2 way, by a `ClusterCoordinator`.

The chief schedules steps, and whichever worker is free runs them. A worker that dies is left out
until it is back; its steps are run again by another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from trainer import inputs, server
from trainer.checkpoint import Checkpoints
from trainer.chief import Chief
from trainer.errors import TrainerError
from trainer.model import MLP, Schedule, average_share
from trainer.parameters import Layout, Values, local_devices, mean, subtract, tower_gradients
from trainer.progress import Progress, Step, Summaries

if TYPE_CHECKING:
    from trainer.data import Dataset
    from trainer.flags import Options
    from trainer.role import Role
    from trainer.stop import Stop

# Calls scheduled but not yet known to be done, for each worker: enough that none is ever idle.
AHEAD = 3


LOSS = (tf.errors.AbortedError, tf.errors.UnavailableError)


def train(role: Role, options: Options, dataset: Dataset, stop: Stop) -> None:
    """Trains as the chief: saves, and prints a last line with the test accuracy.

    Raises:
        CheckpointError: The log directory belongs to another run.
        TrainerError: A ps was lost.
    """
    checkpoints = Checkpoints.of(options)
    checkpoints.find()
    summaries = Summaries(checkpoints.directory)
    chief = Chief(MLP, options, checkpoints, dataset.test, summaries)
    # Listens at once, as a launcher expects of a chief, and waits for workers that come later.
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        server.cluster_spec(role), task_type=role.job, task_id=role.index, rpc_layer="grpc"
    )
    others = [task for task in _tasks(role) if task != (role.job, role.index)]
    try:
        with stop.waiting(lambda: server.waiting_text(role, others)):
            strategy = tf.distribute.ParameterServerStrategy(resolver)
        _train(role, options, dataset, stop, strategy, chief, summaries, others)
    except (tf.errors.OpError, RuntimeError) as error:
        servers = [task for task in others if task[0] == "ps"]
        if not isinstance(error, LOSS) and not server.any_refuses(role, servers):
            raise
        tasks = [*servers, *(task for task in others if task not in servers)]
        raise TrainerError(f"{role}: lost {server.lost_task(role, tasks, error)}") from None


def _train(
    role: Role,
    options: Options,
    dataset: Dataset,
    stop: Stop,
    strategy: Any,
    chief: Chief,
    summaries: Summaries,
    others: list[tuple[str, int]],
) -> None:
    examples = options.batch * options.devices
    schedule = Schedule(
        options.learning_rate or MLP.learning_rate,
        options.learning_rate_decay,
        len(dataset.train) / examples,
    )
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    shared = Shared(strategy, len(role.cluster["ps"]), chief.start())
    first = step = shared.value()
    count = options.steps_per_call
    # Only these steps' losses are fetched: what a step returns is a call of its own.
    run = {size: _calls(strategy, shared, options, schedule, size) for size in {count, 1}}
    batches = iter(
        coordinator.create_per_worker_dataset(
            tf.autograph.experimental.do_not_convert(lambda: inputs.pipeline(dataset, examples))
        )
    )
    progress = Progress(options.log_every, examples, summaries)
    print(f"coordinates {len(role.cluster['worker'])} workers, starts at global step {step}")
    progress.begin(step)
    chief.save(shared.fetch(), test=False)
    stop.worth_waiting = True
    waiting: list[tuple[int, Any]] = []
    scheduled = step
    known = 0.0
    while step < options.steps and not stop.requested:
        while len(waiting) < AHEAD * len(role.cluster["worker"]) and scheduled < options.steps:
            size = count if options.steps - scheduled >= count else 1
            before = (scheduled - first) // options.log_every
            scheduled += size
            silent = (scheduled - first) // options.log_every == before
            waiting.append((size, coordinator.schedule(run[size][silent], args=(batches,))))
        size, result = waiting.pop(0)
        # TensorFlow's coordinator can die of a lost ps in a thread of its own, and never says so.
        with stop.waiting(lambda: server.waiting_text(role, others), lambda: _lost_ps(role)):
            losses = _fetch(result, role, stop, np.full(size, known))
        losses = np.full(size, np.nan) if losses is None else losses
        known = float(losses[-1]) if np.isfinite(losses[-1]) else known
        steps = [Step(float(loss), step + at) for at, loss in enumerate(losses, 1)]
        step += size
        progress.add(steps, schedule(step))
        if chief.due():
            chief.save(shared.fetch())
    coordinator.join()
    values = shared.fetch()
    chief.save(values, test=False)
    if values.step < step:
        print(f"{step - values.step} of {step} scheduled steps were lost", flush=True)
    if not stop.requested:
        progress.finish(chief.accuracy(values))


class Shared:
    """The variables on the ps tasks: one of each kind a task."""

    def __init__(self, strategy: Any, tasks: int, values: Values) -> None:
        self.layout = Layout(MLP, tasks)
        with strategy.scope():  # round robin: the first of each kind is on the first task
            self.flats, self.averages = (
                [tf.Variable(flat, trainable=False) for flat in self.layout.join_arrays(arrays)]
                for arrays in (values.weights, values.averages)
            )
            self.step = tf.Variable(values.step, trainable=False, dtype=tf.int64)

    def value(self) -> int:
        """The global step."""
        return int(self.step.numpy())

    def fetch(self) -> Values:
        """The current values."""
        parts = [
            self.layout.split_arrays([one.numpy() for one in many])
            for many in (self.flats, self.averages)
        ]
        return Values(self.value(), *parts)


def _calls(
    strategy: Any, shared: Shared, options: Options, schedule: Schedule, count: int
) -> tuple[Any, Any]:
    """A call of `count` steps that returns their losses, and one that returns nothing.

    Each step fetches all weights and pushes all gradients; the moving average counts the steps of a
    call at once. Nothing in it needs AutoGraph, whose generated files a killed task would leave
    behind in /tmp.
    """
    wire = tf.as_dtype(options.wire)
    devices = local_devices(options.devices) if options.devices > 1 else [""]

    def step(batch: Any, after: list[Any]) -> tuple[Any, list[Any]]:
        with tf.device(shared.step.device), tf.control_dependencies(after):
            rate = schedule.tensor(shared.step.read_value())
        fetched = []
        for flat in shared.flats:
            with tf.device(flat.device), tf.control_dependencies(after):
                fetched.append(tf.cast(flat.read_value(), wire))
        local = [tf.cast(flat, tf.float32) for flat in fetched]
        batches = inputs.cut(batch, devices)
        losses, towers = tower_gradients(MLP, shared.layout, devices, local, batches, options.l2)
        pushed = []
        for flat, *column in zip(shared.flats, *towers, strict=True):
            sent = tf.cast(mean(column), wire)
            with tf.device(flat.device):
                pushed.append(subtract(flat, rate, tf.cast(sent, tf.float32)))
        with tf.device(shared.step.device), tf.control_dependencies(pushed):
            counted = shared.step.assign_add(1, read_value=False)
        return mean(losses), [counted]

    def replica(iterator: Any) -> Any:
        losses: list[Any] = []
        last: list[Any] = []
        for _ in range(count):
            loss, last = step(iterator.get_next(), last)
            losses.append(loss)
        with tf.device(shared.step.device), tf.control_dependencies(last):
            now = shared.step.read_value()
            share = average_share(options.average_decay, now, now - count)
        for flat, average in zip(shared.flats, shared.averages, strict=True):
            with tf.device(flat.device), tf.control_dependencies([share]):
                subtract(average, share, average.read_value() - flat.read_value())
        return tf.stack(losses)

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def call(iterator: Any) -> Any:
        return strategy.run(replica, args=(iterator,))

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def call_silently(iterator: Any) -> None:
        strategy.run(replica, args=(iterator,))

    return call, call_silently


def _fetch(result: Any, role: Role, stop: Stop, known: Any) -> Any:
    """The losses of a call, None of one that returns nothing; the `known` loss again where the
    worker has left with them: the call is done, and its gradients are on the ps.

    Raises:
        OpError: A ps was lost.
    """
    try:
        return result.fetch()
    except LOSS:
        if stop.requested or _lost_ps(role):
            raise
        print("a worker left before its loss was read; the next line shows the one before")
        return known


def _lost_ps(role: Role) -> str:
    """Which ps accepts no connection, and why; empty when all do."""
    for index, address in enumerate(role.cluster["ps"]):
        if why := server.refusal(address, 0.5):
            return f"{role}: lost {role.address_of('ps', index)}: {why}"
    return ""


def _tasks(role: Role) -> list[tuple[str, int]]:
    return [(job, index) for job, tasks in role.cluster.items() for index in range(len(tasks))]
