"""Training loop of every mode, and a worker: a client with a graph and a session of its own.

The modes `async`, `sync`, `in-graph` and `towers` differ in their `TrainStep` alone: what one call
of the session computes, and whom it waits for.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from trainer import server
from trainer.checkpoint import Checkpoints
from trainer.chief_duties import ChiefDuties
from trainer.data import Dataset
from trainer.errors import TrainerError
from trainer.flags import Options
from trainer.inputs import Input
from trainer.model import MLP, Model, Schedule
from trainer.parameters import Parameters, Setter, Values, local_devices, variable
from trainer.progress import Progress, Step, Summaries
from trainer.role import ALONE, Role
from trainer.stop import Stop

_POLL = 0.1
LOSS = (tf.errors.AbortedError, tf.errors.UnavailableError, tf.errors.FailedPreconditionError)


class Training:
    """The loop around a task's steps: progress lines and, by the chief, checkpoints and the test.

    A global step has so many `examples`.
    """

    def __init__(
        self,
        role: Role,
        options: Options,
        dataset: Dataset,
        examples: int,
        model: Model = MLP,
        momentum: bool = False,
    ) -> None:
        self._role, self._options = role, options
        epoch = len(dataset.train) / examples
        rate = options.learning_rate or model.learning_rate
        self.schedule = Schedule(rate, options.learning_rate_decay, epoch)
        checkpoints = Checkpoints(options)
        self.chief: ChiefDuties | None = None
        if role.is_chief:
            checkpoints.find()  # a stale directory is refused before anything starts
            self.chief = ChiefDuties(model, options, checkpoints, dataset.test, momentum)
        self.summaries = self.chief.summaries if self.chief else Summaries(None)
        self._progress = Progress(
            options.log_every, examples, self.summaries, epoch if role.job == ALONE else None
        )
        print(
            f"{role} trains the {model.name} for {options.steps} global steps of {examples} "
            f"examples from {dataset.name}",
            flush=True,
        )

    def loop(
        self,
        step: int,
        run: Callable[[int], list[Step]],
        fetch: Callable[[], Values],
        told_to_end: Callable[[], bool],
        flush: Callable[[], None] = lambda: None,
    ) -> None:
        """Calls `run`, which takes some local steps, from global step `step` to the limit.

        It takes none when the training is over. `fetch` returns the shared values.
        """
        chief, progress = self.chief, self._progress
        print(f"{self._role} starts at global step {step}", flush=True)
        progress.begin(step)
        if chief:
            chief.save(fetch(), test=False)
        while step < self._options.steps and not told_to_end():
            taken = run(step)
            if not taken:
                break
            step = max(step, *(one.global_step for one in taken))
            progress.add(taken, self.schedule(step))
            if chief and chief.due():
                chief.save(fetch())
        flush()
        if chief:
            values = fetch()
            chief.save(values, test=False)
        if not told_to_end():
            progress.finish(chief.accuracy(values.averages) if chief else None)


@dataclasses.dataclass(frozen=True)
class WorkerGraph:
    """What a worker's steps build their operations from.

    It computes on `devices`, each with a batch of its own, and all else on `cpu`.
    """

    role: Role
    options: Options
    training: Training
    parameters: Parameters
    input: Input
    devices: list[str]
    cpu: str


class TrainStep:
    """A way to train: builds a worker's operations, and runs some steps in one call.

    Attributes:
        everywhere: The worker computes on the devices of all workers.
        one_by_one: Each device's batch is a step of its own.
    """

    everywhere = False
    one_by_one = False

    def __init__(self, graph: WorkerGraph) -> None:
        self.graph = graph
        self.session: Any = None

    def begin(self, session: Any, step: int, stop: Stop, joined: bool) -> None:
        """Called once a session, when all shared variables have values.

        `joined`: they had them before this session, which the chief of it has not initialised.
        """
        self.session = session

    def run(self, step: int) -> list[Step]:
        """Takes some local steps from global step `step`; none when the training is over."""
        raise NotImplementedError

    def flush(self) -> None:
        """Hands over what this worker still holds; called after its last step."""


class Worker:
    """A client of the ps tasks, which trains; a global step has `gradients` workers' gradients."""

    def __init__(
        self,
        role: Role,
        options: Options,
        dataset: Dataset,
        steps: type[TrainStep],
        gradients: int = 1,
        model: Model = MLP,
        momentum: float = 0,
    ) -> None:
        self._role, self._options = role, options
        own, ps, workers = (role.job, role.index), role.tasks("ps"), role.tasks("worker")
        # A between-graph worker leaves the other workers out of its session, which otherwise
        # waits for workers that may start late or have already left.
        self._peers = [*ps, *(role.others(workers) if steps.everywhere else [])]
        devices = [
            device
            for task in (workers if steps.everywhere else [own])
            for device in local_devices(options.devices, role.device_of(*task))
        ]
        self._slow = getattr(options, "slow_worker", None) == role.index and role.job == "worker"
        if self._slow:
            options.steps_per_call = 1
        batch = options.batch * (1 if steps.one_by_one else len(devices))
        self._training = Training(role, options, dataset, batch * gradients, model, momentum > 0)
        self._target = server.start(role, options).target if ps else ""
        cpu = f"{role.device}/device:CPU:0"
        shared_devices = [f"{role.device_of(*task)}/device:CPU:0" for task in ps or [own]]
        with tf.Graph().as_default() as self._graph:
            self._shared = Parameters(model, shared_devices, options, momentum)
            with tf.device(shared_devices[0]):
                self._mode = variable("mode", dtype=tf.string)
            variables = [*self._shared.variables, self._mode]
            self._missing = tf.compat.v1.report_uninitialized_variables(variables)
            self._assign = Setter(variables)
            self._input = Input(cpu, dataset, batch, options.seed + role.trainer_number)
            self._steps = steps(
                WorkerGraph(role, options, self._training, self._shared, self._input, devices, cpu)
            )
            self._catch_up = self._shared.average(self._shared.step.read_value())

    def train(self, stop: Stop) -> None:
        """Trains; after the loss of a task it needs, waits for it to come back, and goes on."""
        seconds = float("inf")
        with self._graph.as_default():
            while not stop.requested:
                try:
                    session = self._open(stop, seconds)
                    self._train(session, stop, self._prepare(session, stop))
                    return
                except LOSS as error:
                    if not self._peers:
                        raise
                    stop.worth_waiting = False
                    seconds = self._options.reconnect_secs
                    lost = server.lost_task(self._role, self._peers, error)
                    print(f"{self._role} lost {lost}", flush=True)
                    stop.wait(_POLL)

    def _open(self, stop: Stop, seconds: float) -> Any:
        """A session with this worker's peers, when all of them answer within `seconds`."""
        role, options = self._role, self._options
        for task in self._peers:
            server.wait_for(role, task, stop, seconds)
        session = server.open_session(
            self._target,
            *(role.device_of(*task) for task in [*self._peers, (role.job, role.index)]),
            allow_soft_placement=True,
            device_count={"CPU": options.devices},
            intra_op_parallelism_threads=server.threads(role, options),
        )
        names = ", ".join(role.address_of(*peer) for peer in self._peers)
        text = (
            f"{role} waits for a session with {names}: connected, but no answer; "
            "check that all tasks have the same cluster spec and that none is stopped"
        )
        with stop.waiting(lambda: text if names else ""):
            session.run(self._missing)
        return session

    def _prepare(self, session: Any, stop: Stop) -> bool:
        """Waits until the chief has given the variables values; false if this task gave them.

        TensorFlow's own session manager looks every 30 seconds; this one ten times a second.
        """
        role, chief, mode = self._role, self._training.chief, self._options.mode

        def text() -> str:
            if chief:
                return server.waiting_text(role, self._peers)
            why = server.refusal(role.cluster[role.chief[0]][0]) or "it answers"
            name = role.address_of(*role.chief)
            return f"{role} waits for {name} to initialise the variables: {why}"

        with stop.waiting(text):
            while session.run(self._missing).size and not stop.requested:
                if chief:
                    arrays = self._shared.arrays(chief.first_values())
                    self._assign(session, [*arrays, mode])
                    return False
                stop.wait(_POLL)
        if not stop.requested:
            if (theirs := session.run(self._mode).decode()) != mode:
                raise TrainerError(
                    f"{role} runs {mode}, but the variables on the ps are of {theirs}: "
                    "start all tasks with the same mode"
                )
            if chief:
                chief.join(int(session.run(self._shared.step)))
        return True

    def _train(self, session: Any, stop: Stop, joined: bool) -> None:
        if stop.requested:
            return
        training, steps, role = self._training, self._steps, self._role
        others = list(dict.fromkeys([*self._peers, *role.others(role.clients)]))
        self._input.load(session)
        first = int(session.run(self._shared.step))
        if training.chief:
            training.summaries.graph(self._graph)
            session.run(self._catch_up)
        steps.begin(session, first, stop, joined)
        stop.worth_waiting = training.chief is not None

        def run(step: int) -> list[Step]:
            with stop.waiting(lambda: server.waiting_text(role, others)):
                taken = steps.run(step)
            if self._slow:
                time.sleep(self._options.slow_secs)
            return taken

        def fetch() -> Values:
            return self._shared.values(session.run(self._shared.variables))

        def flush() -> None:
            steps.flush()
            if training.chief:
                session.run(self._catch_up)

        training.loop(first, run, fetch, lambda: stop.requested, flush)
