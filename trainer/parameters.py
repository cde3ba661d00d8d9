"""Shared variables of a training: one flat variable a ps task, and where each weight stands in it.

Sent one by one, each weight of a network would be a transfer of its own at every step, and each
update an operation of its own: a step of `async` took a third more processor time. Checkpoints
have the weights under their own names and shapes.
"""

import dataclasses
from argparse import Namespace
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from trainer.model import Model, average_share


@dataclasses.dataclass
class Values:
    """State of a training; `weights`, `averages` and `momenta` in their own shapes."""

    step: int
    weights: list[NDArray[Any]]
    averages: list[NDArray[Any]]
    momenta: list[NDArray[Any]] = dataclasses.field(default_factory=list)


class Layout:
    """Where each weight of `model` stands: in which of the flat variables, one a ps task, and from
    which number on.

    A weight goes to the task with the fewest numbers so far. Round robin, TensorFlow's default,
    would put both weight matrices of a network on the same of two tasks.
    """

    def __init__(self, model: Model, tasks: int) -> None:
        self.sizes = [0] * tasks
        """Numbers in each flat variable."""
        self._names = model.names
        self._places = []  # of each weight: its flat variable, first number, numbers, shape
        for shape in model.shapes:
            size = int(np.prod(shape))
            task = self.sizes.index(min(self.sizes))
            self._places.append((task, self.sizes[task], size, shape))
            self.sizes[task] += size

    def described(self) -> str:
        """Says on which ps task each weight is."""
        on: dict[int, list[str]] = {}
        for name, (task, *_) in zip(self._names, self._places, strict=True):
            on.setdefault(task, []).append(name)
        return "; ".join(f"{', '.join(names)} on ps:{task}" for task, names in sorted(on.items()))

    def split(self, flats: list[Any], reshape: Any = tf.reshape) -> list[Any]:
        """The weights out of the flat tensors, or arrays with `np.reshape`."""
        return [
            reshape(flats[task][first : first + size], shape)
            for task, first, size, shape in self._places
        ]

    def join(self, weights: list[Any], reshape: Any = tf.reshape, concat: Any = tf.concat) -> Any:
        """The flat tensors of weights or of their gradients; arrays with NumPy's functions."""
        nothing = [np.zeros(0, np.float32)]
        return [concat(several or nothing, 0) for several in self.pieces(weights, reshape)]

    def pieces(self, weights: list[Any], reshape: Any = tf.reshape) -> list[list[Any]]:
        """The pieces of each flat tensor that `join` would make it of, one a weight."""
        pieces: list[list[Any]] = [[] for _ in self.sizes]
        for weight, (task, *_) in zip(weights, self._places, strict=True):
            pieces[task].append(reshape(weight, [-1]))
        return pieces


class Parameters:
    """Flat variables of `model`, one of each kind a device; the global step is on the first.

    They start from the values `first`, or are assigned in a session.
    """

    def __init__(
        self, model: Model, devices: list[str], options: Namespace, first: Values | None = None
    ) -> None:
        self.layout = Layout(model, len(devices))
        self._options = options
        arrays = self.arrays(first) if first else None
        self.variables: list[Any] = []
        for kind in ("weights", "average", "momentum")[: 3 if model.momentum else 2]:
            for number, device in enumerate(devices):
                value = arrays[len(self.variables)] if arrays else None
                with tf.device(device):
                    name, shape = f"flat_{number}/{kind}", (self.layout.sizes[number],)
                    self.variables.append(variable(name, shape, value=value))
        count = len(devices)
        self.flats, self._averages = self.variables[:count], self.variables[count : 2 * count]
        self.momenta = self.variables[2 * count :]
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


def average_gradients(tower_gradients: list[list[Any]]) -> list[Any]:
    """The mean of each gradient over all towers, which have the same gradients in the same order.

    To take it, all towers have to be done: here a synchronous step waits for the slowest.
    """
    return [mean(list(of_towers)) for of_towers in zip(*tower_gradients, strict=True)]


def mean(values: list[Any]) -> Any:
    """The mean of tensors of one shape; the tensor itself when there is only one."""
    return values[0] if len(values) == 1 else tf.add_n(values) / len(values)
