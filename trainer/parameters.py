"""Shared variables of a training: one flat variable a ps task, and the operations on them.

Sent one by one, each weight of a network would be a transfer of its own at every step, and each
update an operation of its own. Checkpoints have the weights under their own names and shapes.
"""

import dataclasses
from argparse import Namespace
from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from trainer.model import Model, average_share

ROW = 16  # numbers in a row of a flat variable


@dataclasses.dataclass
class Values:
    """State of a training; `weights`, `averages` and `momenta` in their own shapes."""

    step: int
    weights: list[NDArray[Any]]
    averages: list[NDArray[Any]]
    momenta: list[NDArray[Any]] = dataclasses.field(default_factory=list)


class Layout:
    """Place of each weight of `model`: on which of `tasks` flat variables, and in which rows.

    A weight goes to the task with the fewest rows so far. Round robin, TensorFlow's default, would
    put both weight matrices of a network on the same of two tasks. Pieces that begin at a row are
    cut off without being copied.
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
        """The weights out of the flat tensors, or arrays with `np.reshape`."""
        return [
            reshape(reshape(flats[task][first : first + rows], [-1])[:size], shape)
            for task, first, rows, size, shape in self._places
        ]

    def join(self, weights: list[Any], reshape: Any = tf.reshape, concat: Any = tf.concat) -> Any:
        """The flat tensors of weights or of their gradients; arrays with NumPy's functions."""
        pieces: list[list[Any]] = [[] for _ in self.shapes]
        for weight, (task, _, rows, size, _) in zip(weights, self._places, strict=True):
            padding = np.zeros(rows * ROW - size, np.float32)
            pieces[task] += [reshape(weight, [-1]), *([padding] if padding.size else [])]
        return [
            reshape(concat(many or [np.zeros(ROW, np.float32)], 0), shape)
            for many, shape in zip(pieces, self.shapes, strict=True)
        ]


class Parameters:
    """Flat variables of `model`, one of each kind a device; the global step is on the first.

    They start from the values `first`, or are assigned in a session.
    """

    def __init__(
        self, model: Model, devices: list[str], options: Namespace, first: Values | None = None
    ) -> None:
        self.model = model
        self.layout = Layout(model, len(devices))
        self._options = options
        self._wire = tf.as_dtype(getattr(options, "wire", "float32"))
        arrays = self.arrays(first) if first else None
        self.variables: list[Any] = []
        for kind in ("weights", "average", "momentum")[: 3 if model.momentum else 2]:
            for number, device in enumerate(devices):
                value = arrays[len(self.variables)] if arrays else None
                with tf.device(device):
                    name, shape = f"flat_{number}/{kind}", self.layout.shapes[number]
                    self.variables.append(variable(name, shape, value=value))
        count = len(devices)
        self.flats, self._averages = self.variables[:count], self.variables[count : 2 * count]
        self._momenta = self.variables[2 * count :]
        with tf.device(devices[0]):
            step = np.int64(first.step) if first else None
            self.step = variable("global_step", dtype=tf.int64, value=step)
            self._averaged_at = variable("averaged_at", dtype=tf.int64, value=step)
        self.variables += [self.step, self._averaged_at]

    def arrays(self, values: Values) -> list[Any]:
        """Arrays that `variables` hold for `values`."""
        kinds = [kind for kind in (values.weights, values.averages, values.momenta) if kind]
        flats = [
            flat for kind in kinds for flat in self.layout.join(kind, np.reshape, np.concatenate)
        ]
        return [*flats, values.step, values.step]

    def values(self, arrays: list[Any]) -> Values:
        """Values that `variables` stand for when they hold `arrays`."""
        *flats, step, _ = arrays
        count = len(self.flats)
        kinds = [
            self.layout.split(flats[at : at + count], np.reshape)
            for at in range(0, len(flats), count)
        ]
        return Values(int(step), *kinds)

    def fetch(self, after: list[Any] | None = None) -> list[Any]:
        """The flat weights on the present device, each read when its item of `after` is done."""
        fetched = []
        for flat, last in zip(self.flats, after or [None] * len(self.flats), strict=True):
            with tf.device(flat.device), tf.control_dependencies([] if last is None else [last]):
                fetched.append(tf.cast(flat.read_value(), self._wire))
        return [tf.cast(weights, tf.float32) for weights in fetched]

    def gradients(
        self, devices: list[str], flats: list[Any], batch: tuple[Any, Any]
    ) -> tuple[Any, list[list[Any]]]:
        """The loss of a batch, cut into one a device, and the devices' gradients for each flat."""
        losses, towers = [], []
        parts = [tf.split(tensor, len(devices)) for tensor in batch]
        for device, images, labels in zip(devices, *parts, strict=True):
            with tf.device(device):
                # One copy a device: otherwise each use of a weight would be transferred again.
                weights = self.layout.split([tf.identity(flat) for flat in flats])
                loss = self.model.loss(weights, images, labels, self._options.l2)
                losses.append(loss)
                towers.append(self.layout.join(tf.gradients(loss, weights)))
        return mean(losses), [list(column) for column in zip(*towers, strict=True)]

    def send(self, columns: list[list[Any]], devices: list[str]) -> list[Any]:
        """The mean of each flat's gradients, one of each of `devices`, where the flat is."""
        received = []
        for flat, column in zip(self.flats, columns, strict=True):
            sent = []
            for device, gradient in zip(devices, column, strict=True):
                with tf.device(device):
                    sent.append(tf.cast(gradient, self._wire))
            with tf.device(flat.device):
                received.append(mean([tf.cast(one, tf.float32) for one in sent]))
        return received

    def descend(self, gradients: list[Any], rate: Any) -> list[Any]:
        """Takes `rate` times the flat gradients off; an operation a variable, where it is."""
        updates = []
        for number, (flat, gradient) in enumerate(zip(self.flats, gradients, strict=True)):
            with tf.device(flat.device):
                if not self._momenta:
                    updates.append(subtract(flat, rate, gradient))
                    continue
                update = tf.raw_ops.ResourceApplyMomentum(
                    var=flat.handle,
                    accum=self._momenta[number].handle,
                    lr=rate,
                    grad=gradient,
                    momentum=self.model.momentum,
                    use_nesterov=True,
                )
                updates.append(update)
        return updates

    def count(self, after: list[Any], steps: Any = 1) -> Any:
        """Counts global steps when `after` is done; returns the new global step."""
        with tf.device(self.step.device), tf.control_dependencies(after):
            added = tf.raw_ops.AssignAddVariableOp(
                resource=self.step.handle, value=tf.cast(steps, tf.int64)
            )
            with tf.control_dependencies([added]):
                return self.step.read_value()

    def average(self, step: Any, since: Any = None) -> list[Any]:
        """Brings the moving averages from step `since`, or the last time, up to global `step`."""
        with tf.device(self.step.device), tf.control_dependencies([step]):
            last = self._averaged_at.read_value() if since is None else since
            share = average_share(self._options.average_decay, step, last)
        updates = []
        for flat, average in zip(self.flats, self._averages, strict=True):
            with tf.device(flat.device), tf.control_dependencies([share]):
                distance = average.read_value() - flat.read_value()
                updates.append(subtract(average, share, distance))
        with tf.device(self.step.device), tf.control_dependencies([share]):
            at = tf.raw_ops.AssignVariableOp(resource=self._averaged_at.handle, value=step)
            updates[0] = tf.group(updates[0], at)
        return updates


def variable(
    name: str, shape: tuple[int, ...] = (), dtype: Any = tf.float32, value: Any = None
) -> Any:
    """A variable that holds `value`; without one, somebody assigns or restores it."""
    initial = tf.zeros(shape, dtype) if value is None else value
    return tf.Variable(initial, trainable=False, name=name, dtype=dtype)


def assign(session: Any, variables: list[Any], values: list[Any]) -> None:
    """Gives `variables` their values in one call: fed in place of their initial values."""
    with session.graph.as_default():  # a variable hides its initial value where code is eager
        feed = {one.initial_value: value for one, value in zip(variables, values, strict=True)}
        session.run([one.initializer for one in variables], feed)


def subtract(flat: Any, factor: Any, tensor: Any) -> Any:
    """Takes `factor` times `tensor` off a variable in one pass over it."""
    return tf.raw_ops.ResourceApplyGradientDescent(var=flat.handle, alpha=factor, delta=tensor)


def local_devices(count: int, task: str = "") -> list[str]:
    """Names of `count` devices of this process, which is `task`: GPUs where there are as many,
    else logical CPUs."""
    return _devices(count, task, len(tf.config.list_physical_devices("GPU")))


def devices_of(task: str, count: int, names: Iterable[str]) -> list[str]:
    """Names of `count` devices of any task, among the `names` of all: GPUs where that task has as
    many, else logical CPUs."""
    return _devices(count, task, _gpus(task, names))


def common_devices(tasks: Iterable[str], count: int, names: Iterable[str]) -> list[str]:
    """Names of `count` devices without a task, for a call that any of `tasks` may run: GPUs where
    each of them has as many, else logical CPUs."""
    known = list(names)
    return _devices(count, "", min(_gpus(task, known) for task in tasks))


def _gpus(task: str, names: Iterable[str]) -> int:
    own = f"{task}/device:GPU:"
    return sum(name.replace("/replica:0", "").startswith(own) for name in names)


def _devices(count: int, task: str, gpus: int) -> list[str]:
    kind = "GPU" if gpus >= count else "CPU"
    return [f"{task}/device:{kind}:{number}" for number in range(count)]


def mean(values: list[Any]) -> Any:
    """The mean of tensors of one shape; the tensor itself when there is only one."""
    return values[0] if len(values) == 1 else tf.add_n(values) / len(values)
