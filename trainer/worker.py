"""A between-graph worker: a client with its own graph, and the loop around its steps.

The modes `async`, `sync` and `in-graph` differ in their steps alone: what one call of the session
computes, and whom it waits for.
"""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any, Protocol

import tensorflow as tf

from trainer import inputs, server
from trainer.checkpoint import Checkpoints
from trainer.chief import Chief
from trainer.errors import TrainerError
from trainer.model import MLP, Schedule
from trainer.parameters import Parameters, local_devices
from trainer.progress import Progress, Step, Summaries

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer.data import Dataset
    from trainer.flags import Options
    from trainer.role import Role
    from trainer.stop import Stop

_POLL = 0.1
LOSS = (tf.errors.AbortedError, tf.errors.UnavailableError, tf.errors.FailedPreconditionError)


@dataclasses.dataclass(frozen=True)
class WorkerGraph:
    """What the steps of a worker build their operations from.

    `devices` are where it computes, each with a batch of its own; `cpu` is this task's.
    """

    role: Role
    options: Options
    parameters: Parameters
    devices: list[str]
    input: inputs.MemoryInput | inputs.RecordInput
    schedule: Schedule

    @property
    def cpu(self) -> str:
        """The device of what is not computed on `devices`."""
        return f"{self.role.device}/device:CPU:0"


class Steps(Protocol):
    """A way to train: what one call of the session does for a worker."""

    def begin(self, session: Any, step: int, stop: Stop, joined: bool) -> None:
        """Called once a session, when all shared variables have values.

        `joined`: they had them before this session, which the chief of it has not initialised.
        """

    def run(self, step: int) -> list[Step]:
        """Some local steps from global step `step`; none when the training is over."""

    def flush(self) -> None:
        """Called when this worker takes no more steps: hands over what it still holds."""


class Worker:
    """Trains until the global step reaches the limit; the chief also initialises and saves.

    Args:
        mode: Whose variables these are; tasks of another mode are refused.
        build: Makes the steps in the current graph.
        everywhere: This worker computes on the devices of all workers.
        gradients: How many workers' gradients one global step has.

    Raises:
        CheckpointError: The chief's directory belongs to another run.
    """

    def __init__(
        self,
        role: Role,
        options: Options,
        dataset: Dataset,
        mode: str,
        build: Callable[[WorkerGraph], Steps],
        everywhere: bool = False,
        gradients: int = 1,
    ) -> None:
        self._role = role
        self._options = options
        self._dataset = dataset
        self._build = build
        ps = [("ps", index) for index in range(len(role.cluster["ps"]))]
        workers = [("worker", index) for index in range(len(role.cluster["worker"]))]
        # A between-graph worker leaves the other workers out of its session, which otherwise
        # waits for workers that may start late or have already left.
        own = (role.job, role.index)
        others = [task for task in workers if task != own] if everywhere else []
        self._peers = [*ps, *others]
        self._filters = [f"/job:{job}/task:{index}" for job, index in [*self._peers, own]]
        tasks = [f"/job:worker/task:{i}" for _, i in workers] if everywhere else [role.device]
        devices = [name for task in tasks for name in local_devices(options.devices, task)]
        self._slow = getattr(options, "slow_worker", None) == role.index and role.job == "worker"
        if self._slow:
            options.steps_per_call = 1
        self._checkpoints = Checkpoints.of(options)
        if role.is_chief:
            self._checkpoints.find()  # a stale directory is refused before anything starts
        self._target = server.start(role, options).target
        self._summaries = Summaries(self._checkpoints.directory if role.is_chief else None)
        examples = options.batch * len(devices)
        self._progress = Progress(options.log_every, examples * gradients, self._summaries)
        self._chief: Chief | None = None
        if role.is_chief:
            self._chief = Chief(MLP, options, self._checkpoints, dataset.test, self._summaries)
        self._graph = tf.Graph()
        with self._graph.as_default():
            self._part = WorkerGraph(
                role,
                options,
                Parameters(
                    MLP,
                    [f"/job:{job}/task:{index}/device:CPU:0" for job, index in ps],
                    options.average_decay,
                    program=mode,
                ),
                devices,
                inputs.make(
                    f"{role.device}/device:CPU:0",
                    dataset,
                    examples,
                    options.seed + role.trainer_number,
                ),
                Schedule(
                    options.learning_rate or MLP.learning_rate,
                    options.learning_rate_decay,
                    len(dataset.train) / (examples * gradients),
                ),
            )
            self._steps = build(self._part)
            self._catch_up = self._part.parameters.average(self._part.parameters.step.read_value())

    def train(self, stop: Stop) -> None:
        """Trains; after the loss of a task it needs, waits for it to come back, and goes on.

        Raises:
            TrainerError: A port, a checkpoint or a task that stays away; says which.
        """
        print(
            f"{self._role} trains {self._options.steps} global steps of "
            f"{self._options.batch} on {self._dataset.name}",
            flush=True,
        )
        seconds = float("inf")
        with self._graph.as_default():
            while not stop.requested:
                try:
                    session = self._open(stop, seconds)
                    self._train(session, stop, self._prepare(session, stop))
                    return
                except LOSS as error:
                    stop.worth_waiting = False
                    seconds = self._options.reconnect_secs
                    lost = server.lost_task(self._role, self._peers, error)
                    print(f"{self._role} lost {lost}", flush=True)
                    stop.wait(_POLL)

    def _open(self, stop: Stop, seconds: float) -> Any:
        """A session with this worker's peers, when all of them answer.

        Raises:
            TrainerError: One did not for `seconds`; names it with the reason.
        """
        deadline = time.monotonic() + seconds
        for job, index in self._peers:
            address = self._role.cluster[job][index]
            task = self._role.address_of(job, index)
            why = server.refusal(address)
            with stop.waiting(lambda: f"{self._role} waits for {task}: {why}"):  # noqa: B023
                while why and not stop.requested:
                    if time.monotonic() > deadline:
                        raise TrainerError(f"{self._role}: lost {task}: {why} for {seconds:.0f} s")
                    stop.wait(_POLL)
                    why = server.refusal(address)
        config = tf.compat.v1.ConfigProto(allow_soft_placement=True, device_filters=self._filters)
        session = tf.compat.v1.Session(self._target, config=config)
        server.abandon(session)
        names = ", ".join(self._role.address_of(*peer) for peer in self._peers)
        with stop.waiting(
            lambda: (
                f"{self._role} waits for a session with {names}: connected, but no answer; "
                "has every task the same cluster spec, and is none stopped?"
            )
        ):
            session.run(self._part.parameters.missing)
        return session

    def _prepare(self, session: Any, stop: Stop) -> bool:
        """Returns when all shared variables have values: the chief sees to it, others wait.

        Whether they had them without this task.

        TensorFlow's own session manager looks every 30 seconds; this one ten times a second.
        """
        shared = self._part.parameters
        chief = self._role.address_of(*self._role.chief)
        address = self._role.cluster[self._role.chief[0]][0]

        def text() -> str:
            why = server.refusal(address) or "it answers"
            return f"{self._role} waits for {chief} to initialise the variables: {why}"

        with stop.waiting(text):
            while session.run(shared.missing).size and not stop.requested:
                if self._chief:
                    shared.assign(session, self._chief.start())
                    return False
                stop.wait(_POLL)
        if not stop.requested:
            shared.check_program(session, str(self._role))
            if self._chief:
                self._chief.join(int(session.run(shared.step)))
        return True

    def _train(self, session: Any, stop: Stop, joined: bool) -> None:
        if stop.requested:
            return
        part, chief = self._part, self._chief
        part.input.load(session)
        step = int(session.run(part.parameters.step))
        print(f"{self._role} starts at global step {step}", flush=True)
        self._progress.begin(step)
        if chief:
            self._summaries.graph(self._graph)
            session.run(self._catch_up)
            chief.save(part.parameters.fetch(session), test=False)
        self._steps.begin(session, step, stop, joined)
        stop.worth_waiting = chief is not None
        while step < self._options.steps and not stop.requested:
            with stop.waiting(self._slow_call):
                taken = self._steps.run(step)
            if not taken:
                break
            step = max(step, *(one.global_step for one in taken))
            self._progress.add(taken, part.schedule(step))
            if chief and chief.due():
                chief.save(part.parameters.fetch(session))
            if self._slow:
                time.sleep(self._options.slow_secs)
        self._steps.flush()
        if chief:
            session.run(self._catch_up)
            values = part.parameters.fetch(session)
            chief.save(values, test=False)
        if not stop.requested:
            self._progress.finish(chief.accuracy(values) if chief else None)

    def _slow_call(self) -> str:
        others = [*self._peers, *self._role.clients]
        return server.waiting_text(
            self._role, [task for task in others if task != (self._role.job, self._role.index)]
        )
