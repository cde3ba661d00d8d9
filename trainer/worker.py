"""Training loop of every mode, and a worker: a client with a graph and a session of its own.

A mode is a subclass of one of the two: `async`, `sync`, `in-graph` and `towers` are workers, which
differ in what one call of the session computes and whom it waits for.
"""

from typing import Any

import tensorflow as tf

from trainer import peers, server
from trainer.checkpoint import Checkpoints, read
from trainer.devices import described, devices_of, gpus_of, local_devices, local_gpus, why_no_gpu
from trainer.exceptions import TrainerError
from trainer.inputs import Input
from trainer.model import MLP, Model, Schedule
from trainer.modes import Context
from trainer.parameters import Parameters, Values, assign, variable
from trainer.progress import Progress, Step, Summaries
from trainer.role import ALONE, Task

_POLL = 0.1
LOST = (tf.errors.AbortedError, tf.errors.UnavailableError, tf.errors.FailedPreconditionError)


class Training:
    """The loop around a task's steps: progress lines and, by the chief, checkpoints and the test.

    A global step has so many `examples`.
    """

    def __init__(self, context: Context, examples: int, model: Model = MLP) -> None:
        role, options, dataset, _ = context
        self.role, self.options, self.dataset, self.stop = context
        self.model = model
        epoch = len(dataset.train) / examples
        rate = options.learning_rate or model.learning_rate
        self.schedule = Schedule(rate, options.learning_rate_decay, epoch)
        self.checkpoints = Checkpoints(model, options) if role.is_chief else None
        if self.checkpoints:
            self.checkpoints.find()  # a stale directory is refused before anything starts
        self.summaries = Summaries(self.checkpoints.directory if self.checkpoints else None)
        self.progress = Progress(
            options.log_every, examples, self.summaries, epoch if role.job == ALONE else None
        )
        print(
            f"{role} trains the {model.name} for {options.steps} global steps of {examples} "
            f"examples from {dataset.name}"
        )

    def loss(self, weights: list[Any], images: Any, labels: Any) -> Any:
        """The loss of a batch: images, shape (batch, 784), and labels, shape (batch,)."""
        return self.model.loss(weights, images, labels, self.options.l2)

    def take_steps(self, step: int) -> list[Step]:
        """Takes some local steps from global step `step`; none when the training is over."""
        raise NotImplementedError

    def next_steps(self, step: int) -> list[Step]:
        """`take_steps`, and what a kind of training does around it."""
        return self.take_steps(step)

    def fetch(self) -> Values:
        """The shared values as they are now, copied to this task."""
        raise NotImplementedError

    def flush(self) -> None:
        """Hands over what this task still holds; called after its last step."""

    @property
    def ending(self) -> bool:
        """Whether the training ends before its last step."""
        return self.stop.requested

    def loop(self, first: int) -> None:
        """Takes steps from global step `first` to the limit."""
        checkpoints, progress = self.checkpoints, self.progress
        step = first
        print(f"{self.role} starts at global step {first}")
        progress.begin(first)
        if checkpoints:
            checkpoints.save(self.fetch())
        while step < self.options.steps and not self.ending:
            taken = self.next_steps(step)
            if not taken:
                break
            step = max(step, *(one.global_step for one in taken))
            progress.add(taken, self.schedule(step))
            if checkpoints and checkpoints.due() and checkpoints.save(values := self.fetch()):
                accuracy = checkpoints.accuracy(values, self.dataset.test)
                self.summaries.write(values.step, test_accuracy=accuracy)
        self.flush()
        if checkpoints:
            checkpoints.save(values := self.fetch())
        if not self.ending:
            test = self.dataset.test
            progress.finish(checkpoints.accuracy(values, test) if checkpoints else None)


class Worker(Training):
    """A client of the ps tasks, which trains; a global step has `gradients` workers' gradients.

    It computes on `devices`, each with a batch of its own, and all else on `cpu`.

    Attributes:
        slow: It sleeps at each step, as an example of a straggler.
        everywhere: It computes on the devices of all workers.
        one_by_one: Each device's batch is a step of its own.
    """

    everywhere = False
    one_by_one = False

    def __init__(self, context: Context, gradients: int = 1, model: Model = MLP) -> None:
        role, options, dataset, _ = context
        ps, workers = role.tasks("ps"), role.tasks("worker")
        # A between-graph worker leaves the other workers out of its session, which otherwise
        # waits for workers that may start late or have already left.
        self._peers = [*ps, *(role.others(workers) if self.everywhere else [])]
        self.gradients = gradients
        self.slow = getattr(options, "slow_worker", None) == role.index and role.job == "worker"
        count = options.devices * (len(workers) if self.everywhere else 1)
        batch = options.batch * (1 if self.one_by_one else count)
        super().__init__(context, batch * gradients, model)
        self._target = server.start(role, options) if ps else ""
        self.devices = self._all_devices(workers) if self.everywhere else self._own_devices()
        self.cpu = f"{role.device}/device:CPU:0"
        shared_devices = [f"{role.device_of(task)}/device:CPU:0" for task in ps or [role.task]]
        self.session: Any = None
        with tf.Graph().as_default() as self._graph:
            self.shared = Parameters(model, shared_devices, options)
            if role.is_chief and len(ps) > 1:
                print(f"weights: {self.shared.layout.described()}")
            with tf.device(shared_devices[0]):
                self._mode = variable("mode", dtype=tf.string)
            self._variables = [*self.shared.variables, self._mode]
            self._missing = tf.compat.v1.report_uninitialized_variables(self._variables)
            parts = 1 if self.one_by_one else count
            self.input = Input(self.cpu, dataset, batch, options.seed + role.number, parts)
            self.build_graph()
            self._update_average = self.shared.average(self.shared.step.read_value())

    def build_graph(self) -> None:
        """Makes the operations of the mode's steps."""
        raise NotImplementedError

    def tower_gradients(
        self,
        fetched: list[Any],
        parts: list[tuple[Any, Any]],
        *,
        towers: list[str] | None = None,
        joined: bool = True,
    ) -> tuple[list[Any], list[list[Any]]]:
        """The loss of each tower, a device with a batch of its own, and its gradients: of each ps,
        shape (numbers there,), or not `joined`, of each weight.

        `fetched` are the weights, one tensor a ps; `parts` the batches: images, shape (batch, 784),
        and labels, shape (batch,).
        """
        layout = self.shared.layout
        losses, gradients = [], []
        for tower, (images, labels) in zip(towers or self.devices, parts, strict=True):
            with tf.device(tower):
                weights = layout.split([tf.identity(flat) for flat in fetched])
                losses.append(self.loss(weights, images, labels))
                of_weights = tf.gradients(losses[-1], weights)
                gradients.append(layout.join(of_weights) if joined else of_weights)
        return losses, gradients

    def forget(self) -> None:
        """Called once a session, before its first step is read: forgets what was left for an
        earlier attempt of this task."""

    def begin(self, step: int, joined: bool) -> None:
        """Called once a session, when all shared variables have values.

        `joined`: they had them before this session, which the chief of it has not initialised.
        """

    def train(self) -> None:
        """Trains; after the loss of a task it needs, waits for it to come back, and goes on."""
        seconds = float("inf")
        with self._graph.as_default():
            while not self.stop.requested:
                try:
                    self.session = self._open(seconds)
                    joined = self._prepare()
                    if not self.stop.requested:
                        self._train(joined)
                    return
                except LOST as error:
                    if not self._peers:
                        raise
                    self.stop.worth_waiting = False
                    seconds = self.options.reconnect_secs
                    lost = peers.lost_task(self.role, self._peers, error)
                    print(f"{self.role} lost {lost}")
                    self.stop.wait(_POLL)

    def _own_devices(self) -> list[str]:
        devices = local_devices(self.options.devices, self.role.device)
        print(f"{self.role} computes on {described(devices, local_gpus(), why_no_gpu())}")
        return devices

    def _all_devices(self, workers: list[Task]) -> list[str]:
        """The devices of all workers."""
        names, devices, texts = self._names_of_all(), [], []
        for task in workers:
            place = self.role.device_of(task)
            devices += (own := devices_of(place, self.options.devices, names))
            texts.append(f"{self.role.label(task)}: {described(own, gpus_of(place, names))}")
        print(f"{self.role} computes on {'; '.join(texts)}")
        return devices

    def _names_of_all(self) -> list[str]:
        """Names of the devices of all tasks, which say themselves what they have."""
        with tf.Graph().as_default():
            while not self.stop.requested:
                session = self._connect(float("inf"))
                try:
                    with self.stop.waiting(self._no_answer):
                        return [device.name for device in session.list_devices()]
                except LOST:  # one that was there a moment ago
                    self.stop.wait(_POLL)
        return []

    def _open(self, seconds: float) -> Any:
        """A session with this worker's peers, when all of them answer within `seconds`."""
        session = self._connect(seconds)
        with self.stop.waiting(self._no_answer):
            session.run(self._missing)
        return session

    def _connect(self, seconds: float) -> Any:
        """A session for this worker's peers, when all of them accept connections."""
        role, options = self.role, self.options
        for task in self._peers:
            peers.wait_for(role, task, self.stop, seconds)
        return server.open_session(
            self._target,
            *map(role.device_of, [*self._peers, role.task]),
            allow_soft_placement=True,
            device_count={"CPU": options.devices},
            intra_op_parallelism_threads=server.threads(role, options),
        )

    def _no_answer(self) -> str:
        if not self._peers:
            return ""
        return (
            f"{self.role} waits for a session with {self.role.label(*self._peers)}: connected, but "
            "no answer; check that all tasks have the same cluster spec and that none is stopped"
        )

    def _prepare(self) -> bool:
        """Waits until the chief has given the variables values; false if this task gave them.

        TensorFlow's own session manager looks every 30 seconds; this one ten times a second.
        """
        role, mode, session = self.role, self.options.mode, self.session
        checkpoints = self.checkpoints

        def text() -> str:
            if checkpoints:
                return peers.waiting_text(role, self._peers)
            why = peers.refusal(role.address_of(role.chief)) or "it answers"
            return f"{role} waits for {role.label(role.chief)} to initialise the variables: {why}"

        with self.stop.waiting(text):
            while session.run(self._missing).size and not self.stop.requested:
                if checkpoints:
                    arrays = self.shared.arrays(checkpoints.first_values())
                    assign(session, self._variables, [*arrays, mode])
                    return False
                self.stop.wait(_POLL)
        if not self.stop.requested:
            if (theirs := session.run(self._mode).decode()) != mode:
                raise TrainerError(
                    f"{role} runs {mode}, but the variables on the ps are of {theirs}: "
                    "start all tasks with the same mode"
                )
            if checkpoints:  # the ps has outlived the chief: its values are newer than any saved
                path, step = checkpoints.find(), int(session.run(self.shared.step))
                saved = f"the last checkpoint is of step {read(path)[1]}" if path else ""
                saved = saved or "there is no checkpoint"
                print(f"continues from the variables on the ps at step {step}; {saved}")
        return True

    def _train(self, joined: bool) -> None:
        self.input.load(self.session)
        self.forget()
        step = int(self.session.run(self.shared.step))
        if self.checkpoints:
            self.summaries.graph(self._graph)
            self.session.run(self._update_average)
        self.begin(step, joined)
        self.stop.worth_waiting = self.role.is_chief
        self.loop(step)

    def next_steps(self, step: int) -> list[Step]:
        """Takes steps, and says meanwhile whom they wait for."""
        others = dict.fromkeys([*self._peers, *self.role.others(self.role.clients)])
        with self.stop.waiting(lambda: peers.waiting_text(self.role, list(others))):
            taken = self.take_steps(step)
        if self.slow:
            self.stop.wait(self.options.slow_secs * len(taken))
        return taken

    def fetch(self) -> Values:
        return self.shared.values(self.session.run(self.shared.variables))

    def flush(self) -> None:
        if self.role.is_chief:
            self.session.run(self._update_average)
