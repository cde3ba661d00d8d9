"""Shared variables of a training: one flat variable a ps task, and the operations on them.

Sent one by one, each weight of a network would be a transfer of its own at every step, and each
update an operation of its own. Checkpoints have the weights under their own names and shapes.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from trainer.flags import Options
from trainer.layout import Layout
from trainer.model import Model, average_share


@dataclasses.dataclass
class Values:
    """State of a training; `weights`, `averages` and `momenta` in their own shapes."""

    step: int
    weights: list[NDArray[Any]]
    averages: list[NDArray[Any]]
    momenta: list[NDArray[Any]] = dataclasses.field(default_factory=list)


class Parameters:
    """Flat variables of `model`, one of each kind a device; the global step is on the first.

    They start from the values `first`, or are assigned in a session.
    """

    def __init__(
        self,
        model: Model,
        devices: list[str],
        options: Options,
        momentum: float = 0,
        first: Values | None = None,
    ) -> None:
        self.model = model
        self.layout = Layout(model, len(devices))
        self._devices = devices
        self._options = options
        self._wire = tf.as_dtype(getattr(options, "wire", "float32"))
        self._momentum = momentum
        self.flats = self._make("weights", first.weights if first else None)
        self._averages = self._make("average", first.averages if first else None)
        self._momenta = self._make("momentum") if momentum else []
        with tf.device(devices[0]):
            step = np.int64(first.step) if first else None
            self.step = variable("global_step", dtype=tf.int64, value=step)
            self._averaged_at = variable("averaged_at", dtype=tf.int64, value=step)
        flats = [*self.flats, *self._averages, *self._momenta]
        self.variables = [*flats, self.step, self._averaged_at]

    def arrays(self, values: Values) -> list[Any]:
        """What `variables` hold for `values`."""
        kinds = [values.weights, values.averages, values.momenta][: 3 if self._momentum else 2]
        flats = [flat for kind in kinds for flat in self._join_arrays(kind)]
        return [*flats, values.step, values.step]

    def values(self, arrays: list[Any]) -> Values:
        """What `variables` mean when they hold `arrays`."""
        *flats, step, _ = arrays
        count = len(self.flats)
        kinds = [flats[at : at + count] for at in range(0, len(flats), count)]
        return Values(int(step), *(self.layout.split(kind, np.reshape) for kind in kinds))

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
                if not self._momentum:
                    updates.append(subtract(flat, rate, gradient))
                    continue
                common = {"var": flat.handle, "accum": self._momenta[number].handle, "lr": rate}
                factor = {"momentum": self._momentum, "use_nesterov": True}
                update = tf.raw_ops.ResourceApplyMomentum(**common, grad=gradient, **factor)
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

    def _make(self, what: str, weights: list[Any] | None = None) -> list[Any]:
        """A flat variable a device."""
        values = self._join_arrays(weights) if weights else [None] * len(self._devices)
        flats = []
        for number, device in enumerate(self._devices):
            shape = self.layout.shapes[number]
            with tf.device(device):
                flats.append(variable(f"flat_{number}/{what}", shape, value=values[number]))
        return flats

    def _join_arrays(self, weights: list[Any]) -> list[Any]:
        arrays: list[Any] = self.layout.join(weights, np.reshape, np.concatenate)
        return arrays


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


def variable(
    name: str, shape: tuple[int, ...] = (), dtype: Any = tf.float32, value: Any = None
) -> Any:
    """A variable that holds `value`; without one, somebody assigns or restores it."""
    initial = tf.zeros(shape, dtype) if value is None else value
    return tf.Variable(initial, trainable=False, name=name, dtype=dtype)


def subtract(flat: Any, factor: Any, tensor: Any) -> Any:
    """Takes `factor` times `tensor` off a variable in one pass over it."""
    return tf.raw_ops.ResourceApplyGradientDescent(var=flat.handle, alpha=factor, delta=tensor)


def local_devices(count: int, task: str = "") -> list[str]:
    """Names of `count` devices of `task`: GPUs where there are as many, else logical CPUs."""
    kind = "GPU" if len(tf.config.list_physical_devices("GPU")) >= count else "CPU"
    return [f"{task}/device:{kind}:{number}" for number in range(count)]


def mean(values: list[Any]) -> Any:
    """The mean of tensors of one shape; the tensor itself when there is only one."""
    return values[0] if len(values) == 1 else tf.add_n(values) / len(values)
