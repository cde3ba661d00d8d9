"""The shared variables of a training: one flat variable a ps task, and what is done to it.

A network has a variable for each weight; sent one by one, each would be a transfer of its own at
every step, and each update an operation of its own. So all weights of a ps task are one variable
here, in rows of 16 numbers: pieces that begin at a row are cut off without being copied.
Checkpoints have the weights under their own names and shapes, see `trainer.chief`.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from trainer.errors import TrainerError
from trainer.model import average_share

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trainer.model import Model

ROW = 16


class Layout:
    """Where each weight of `model` is: on which of `tasks` flat variables, and in which rows.

    A weight goes to the task with the fewest rows so far. Round robin, TensorFlow's default, would
    put both weight matrices of a network on the same of two tasks.
    """

    def __init__(self, model: Model, tasks: int) -> None:
        totals = [0] * tasks
        self._places = []  # of each weight: task, first row, rows, numbers, shape
        for shape in model.shapes:
            size = int(np.prod(shape))
            rows = -(-size // ROW)
            task = totals.index(min(totals))
            self._places.append((task, totals[task], rows, size, shape))
            totals[task] += rows
        self.shapes = [(max(total, 1), ROW) for total in totals]

    def split(self, flats: list[Any], reshape: Any = tf.reshape) -> list[Any]:
        """The weights, in their own shapes, out of the flat tensors; for arrays, `np.reshape`."""
        return [
            reshape(reshape(flats[task][first : first + rows], [-1])[:size], shape)
            for task, first, rows, size, shape in self._places
        ]

    def join(self, weights: list[Any]) -> list[Any]:
        """The flat tensors of weights, or of their gradients."""
        pieces: list[list[Any]] = [[] for _ in self.shapes]
        for weight, (task, _, rows, size, _) in zip(weights, self._places, strict=True):
            numbers = tf.reshape(weight, [-1])
            if rows * ROW > size:
                numbers = tf.pad(numbers, [[0, rows * ROW - size]])
            pieces[task].append(tf.reshape(numbers, (rows, ROW)))
        return [tf.concat(many, 0) if many else tf.zeros((1, ROW)) for many in pieces]

    def join_arrays(self, weights: list[NDArray[Any]]) -> list[NDArray[Any]]:
        """`join` for arrays."""
        flats = [np.zeros(shape, np.float32) for shape in self.shapes]
        for weight, (task, first, rows, size, _) in zip(weights, self._places, strict=True):
            flats[task][first : first + rows].reshape(-1)[:size] = weight.ravel()
        return flats

    def split_arrays(self, flats: list[NDArray[Any]]) -> list[NDArray[Any]]:
        """`split` for arrays."""
        return self.split(flats, np.reshape)


@dataclasses.dataclass
class Values:
    """What a training is at one moment; `weights`, `averages` and `momenta` in their own shapes."""

    step: int
    weights: list[NDArray[Any]]
    averages: list[NDArray[Any]]
    momenta: list[NDArray[Any]] = dataclasses.field(default_factory=list)


class Parameters:
    """The flat variables of `model` in a graph, one a device; `step` is on the first of them."""

    def __init__(
        self,
        model: Model,
        devices: list[str],
        decay: float,
        momentum: float = 0,
        program: str = "",
    ) -> None:
        self.model = model
        self.devices = devices
        self.layout = Layout(model, len(devices))
        self._decay = decay
        self._momentum = momentum
        self._program_name = program
        with tf.device(devices[0]):
            self.step = variable("global_step", dtype=tf.int64)
            self._averaged_at = variable("averaged_at", dtype=tf.int64)
            self._program = variable("program", dtype=tf.string)
        self.flats = self._beside("weights")
        self._averages = self._beside("average")
        self._momenta = self._beside("momentum") if momentum else []
        everything = [*self.flats, *self._averages, *self._momenta]
        everything += [self.step, self._averaged_at, self._program]
        self.missing = tf.compat.v1.report_uninitialized_variables(everything)
        self._set = Setter(everything)

    def read(self, after: list[Any]) -> list[Any]:
        """The flat weights, each read where it is and when its operation in `after` is done."""
        values = []
        for number, flat in enumerate(self.flats):
            with tf.device(flat.device), tf.control_dependencies(after[number : number + 1]):
                values.append(flat.read_value())
        return values

    def descend(self, gradients: list[Any], rate: Any) -> list[Any]:
        """Takes `rate` times the flat gradients off; an operation a variable, where it is."""
        updates = []
        for number, (flat, gradient) in enumerate(zip(self.flats, gradients, strict=True)):
            with tf.device(flat.device):
                if self._momentum:
                    updates.append(
                        tf.raw_ops.ResourceApplyMomentum(
                            var=flat.handle,
                            accum=self._momenta[number].handle,
                            lr=rate,
                            grad=gradient,
                            momentum=self._momentum,
                            use_nesterov=True,
                        )
                    )
                else:
                    updates.append(subtract(flat, rate, gradient))
        return updates

    def count(self, after: list[Any], steps: Any = 1) -> Any:
        """Counts global steps when `after` is done; returns the new global step."""
        with tf.device(self.step.device), tf.control_dependencies(after):
            return tf.identity(self.step.assign_add(tf.cast(steps, tf.int64)))

    def average(self, step: Any) -> list[Any]:
        """Brings the moving averages up to global step `step`, where they are."""
        with tf.device(self.step.device), tf.control_dependencies([step]):
            share = average_share(self._decay, step, self._averaged_at)
        updates = []
        for flat, average in zip(self.flats, self._averages, strict=True):
            with tf.device(flat.device), tf.control_dependencies([share]):
                distance = average.read_value() - flat.read_value()
                updates.append(subtract(average, share, distance))
        with tf.device(self.step.device), tf.control_dependencies([share]):
            updates[0] = tf.group(updates[0], self._averaged_at.assign(step, read_value=False))
        return updates

    def towers(
        self, devices: list[str], flats: list[Any], batches: list[tuple[Any, Any]], l2: float
    ) -> tuple[list[Any], list[list[Any]]]:
        """Each device's loss on its own batch, and its flat gradients, for weights `flats`."""
        return tower_gradients(self.model, self.layout, devices, flats, batches, l2)

    def fetch(self, session: Any) -> Values:
        """The current values."""
        step, *flats = session.run([self.step, *self.flats, *self._averages, *self._momenta])
        count = len(self.flats)
        parts = [flats[at : at + count] for at in range(0, len(flats), count)]
        return Values(int(step), *map(self.layout.split_arrays, parts))

    def assign(self, session: Any, values: Values) -> None:
        """Sets all variables."""
        momenta = values.momenta or [np.zeros(shape) for shape in self.model.shapes]
        parts = [values.weights, values.averages, *([momenta] if self._momenta else [])]
        flats = [flat for part in parts for flat in self.layout.join_arrays(part)]
        self._set(session, [*flats, values.step, values.step, self._program_name])

    def check_program(self, session: Any, task: str) -> None:
        """Raises TrainerError when the variables are those of another mode."""
        theirs = session.run(self._program).decode()
        if theirs != self._program_name:
            raise TrainerError(
                f"{task} runs {self._program_name}, but the variables on the ps are of {theirs}: "
                "start all tasks with the same mode"
            )

    def _beside(self, what: str) -> list[Any]:
        """A flat variable a device."""
        flats = []
        for number, device in enumerate(self.devices):
            with tf.device(device):
                flats.append(variable(f"flat_{number}/{what}", self.layout.shapes[number]))
        return flats


class Setter:
    """Gives many variables their values in one `session.run`, through placeholders."""

    def __init__(self, variables: list[Any]) -> None:
        self._feeds = []
        updates = []
        for one in variables:
            with tf.device(one.device):
                feed = tf.compat.v1.placeholder(one.dtype, one.shape)
                updates.append(one.assign(feed, read_value=False))
            self._feeds.append(feed)
        self._update = tf.group(*updates)

    def __call__(self, session: Any, values: list[Any]) -> None:
        """Sets the variables to `values`, in their order."""
        session.run(self._update, dict(zip(self._feeds, values, strict=True)))


def variable(name: str, shape: tuple[int, ...] = (), dtype: Any = tf.float32) -> Any:
    """A variable that has no initial value of its own: somebody feeds or restores one."""
    return tf.compat.v1.get_variable(
        name,
        shape,
        dtype,
        initializer=tf.compat.v1.zeros_initializer(),
        trainable=False,
        collections=[],
        use_resource=True,
    )


def subtract(flat: Any, factor: Any, tensor: Any) -> Any:
    """Takes `factor` times `tensor` off a variable in one pass over it."""
    return tf.raw_ops.ResourceApplyGradientDescent(var=flat.handle, alpha=factor, delta=tensor)


def local_devices(count: int, task: str = "") -> list[str]:
    """Names of `count` devices of `task`: its GPUs where there are as many, else CPU devices.

    Logical CPU devices exist only where the session or server was configured for them.
    """
    gpus = len(tf.config.list_physical_devices("GPU"))
    kind = "GPU" if gpus >= count else "CPU"
    return [f"{task}/device:{kind}:{number}" for number in range(count)]


def mean(values: list[Any]) -> Any:
    """The mean of tensors of one shape; the tensor itself when there is only one."""
    return values[0] if len(values) == 1 else tf.add_n(values) / len(values)


def tower_gradients(
    model: Model,
    layout: Layout,
    devices: list[str],
    flats: list[Any],
    batches: list[tuple[Any, Any]],
    l2: float,
) -> tuple[list[Any], list[list[Any]]]:
    """Each device's loss on its own batch, and its flat gradients, in the order of `devices`."""
    losses, towers = [], []
    for device, (images, labels) in zip(devices, batches, strict=True):
        with tf.device(device):
            # One copy a device: otherwise each use of a weight would be transferred again.
            weights = layout.split([tf.identity(flat) for flat in flats])
            loss = model.loss(weights, images, labels, l2)
            losses.append(loss)
            towers.append(layout.join(tf.gradients(loss, weights)))
    return losses, towers
