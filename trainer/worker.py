"""A between-graph worker: a client with its own graph, and the loop around its steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import tensorflow as tf

from trainer import data, model, server, shared_session
from trainer.checkpoint import Checkpoints
from trainer.errors import reason
from trainer.keeper import Keeper
from trainer.network import LocalData, Network, on_ps
from trainer.progress import Progress, Summaries
from trainer.schedule import Schedule
from trainer.towers import local_devices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from trainer.flags import Options
    from trainer.role import Role
    from trainer.stop import Stop


class Part:
    """What a kind of steps builds its operations from: one worker's part of the training.

    Args:
        devices: Where this worker computes; each gets a batch of its own.
        gradients: How many workers' gradients one global step has.
    """

    def __init__(
        self,
        role: Role,
        options: Options,
        dataset: data.Dataset,
        devices: list[str],
        gradients: int,
    ) -> None:
        self.role = role
        self.options = options
        self.devices = devices
        self.examples = options.batch * len(devices)
        self.network = Network(model.MLP, on_ps(role))
        self.data = LocalData(f"{role.device}/cpu:0", dataset.train)
        self.schedule = Schedule(
            options.learning_rate,
            options.learning_rate_decay,
            len(dataset.train) / (self.examples * gradients),
        )
        self.batches: Iterator[NDArray[Any]] = data.batches(
            len(dataset.train), self.examples, options.seed + role.trainer_number
        )
        with tf.device(f"{role.device}/cpu:0"):
            self.indices = tf.compat.v1.placeholder(tf.int32, (self.examples,))

    def device_batches(self, indices: Any = None) -> list[tuple[Any, Any]]:
        """The images and labels at `indices` (None: those that a step is fed), cut into one batch
        a device."""
        images, labels = self.data.batch(self.indices if indices is None else indices)
        count = len(self.devices)
        return list(zip(tf.split(images, count), tf.split(labels, count), strict=True))


class Steps(Protocol):
    """A way to train: what happens in one step of a worker."""

    def begin(self, session: Any, step: int, stop: Stop) -> None:
        """Called once a session, when all shared variables have values."""

    def take(self, step: int) -> tuple[float, int] | None:
        """One local step from global step `step`: its loss and the new global step.

        None when the training is over for a reason that only the steps know.
        """

    def flush(self) -> None:
        """Called when this worker takes no more steps: hands over what it still holds."""

    def end(self) -> None:
        """Called after that and the last checkpoint when the training is complete."""


class Worker:
    """Trains until the global step reaches the limit; the chief also initialises and saves.

    Args:
        kind: Builds the steps into the current graph.
        everywhere: The devices of this worker's graph are those of all workers.
        gradients: How many workers' gradients one global step has.

    Raises:
        CheckpointError: The chief's directory belongs to another run.
    """

    def __init__(
        self,
        role: Role,
        options: Options,
        dataset: data.Dataset,
        kind: Callable[[Part], Steps],
        everywhere: bool = False,
        gradients: int = 1,
    ) -> None:
        self._role = role
        self._options = options
        self._dataset = dataset
        self._kind = kind
        self._gradients = gradients
        self._filters = None if everywhere else ["/job:ps", role.device]
        workers = range(len(role.cluster["worker"]))
        tasks = [f"/job:worker/task:{index}" for index in workers] if everywhere else [role.device]
        self._devices = [name for task in tasks for name in local_devices(options.devices, task)]
        self._checkpoints = Checkpoints.of(options)
        if role.is_chief:
            self._checkpoints.find()  # a stale directory is refused before anything starts
        self._summaries = Summaries(self._checkpoints.directory if role.is_chief else None)
        self._progress = Progress(
            options.log_every, options.batch * len(self._devices) * gradients, self._summaries
        )

    def train(self, stop: Stop) -> None:
        """Trains; after the loss of a ps it waits for it to come back, and goes on.

        Raises:
            TrainerError: A port, a checkpoint or a ps that stays away; says which.
        """
        target = server.start(self._role, self._options).target
        print(
            f"{self._role} trains {self._options.steps} global steps of "
            f"{self._options.batch} on {self._dataset.name}",
            flush=True,
        )
        with tf.Graph().as_default():
            part = Part(self._role, self._options, self._dataset, self._devices, self._gradients)
            steps = self._kind(part)
            keeper = self._keeper(part.network) if self._role.is_chief else None
            while True:
                # Not closed at the end: that would ask tasks which may have left already.
                session = shared_session.open_session(target, self._filters)
                try:
                    shared_session.prepare(session, self._role, part.network, keeper, stop)
                    self._train(session, part, steps, keeper, stop)
                    return
                except shared_session.LOSS as error:
                    stop.worth_waiting = False
                    print(f"{self._role} lost its ps: {reason(error)}", flush=True)
                    session.close()
                    shared_session.wait_for(self._role, ("ps",), stop, shared_session.LOST_FOR)

    def _keeper(self, network: Network) -> Keeper:
        return Keeper(
            network,
            f"{self._role.device}/cpu:0",
            self._options,
            self._checkpoints,
            self._dataset.test,
            self._summaries,
        )

    def _train(
        self, session: Any, part: Part, steps: Steps, keeper: Keeper | None, stop: Stop
    ) -> None:
        part.data.load(session)
        step = int(session.run(part.network.step))
        print(f"{self._role} starts at global step {step}", flush=True)
        self._progress.begin(step)
        if keeper:
            keeper.begin(session, step)
        steps.begin(session, step, stop)
        stop.worth_waiting = keeper is not None
        while step < self._options.steps and not stop.requested:
            taken = steps.take(step)
            if taken is None:
                break
            loss, step = taken
            self._progress.step(step, loss, part.schedule(step))
            if keeper:
                keeper.keep(session, step)
        steps.flush()
        if keeper:
            step = int(session.run(part.network.step))
            keeper.finish(session, step)
        if not stop.requested:
            self._progress.finish(keeper.accuracy(session) if keeper else None)
            steps.end()
