"""The variables of a training and its data, as parts of a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

if TYPE_CHECKING:
    from trainer.data import Split
    from trainer.model import Model
    from trainer.role import Role


class Placement:
    """Chooses a ps task for each variable: the one with the fewest bytes so far.

    Round robin, TensorFlow's default, would put both weight matrices on the same of two ps tasks.
    """

    def __init__(self, tasks: int) -> None:
        self._bytes = [0] * tasks

    def __call__(self, operation: Any) -> int:
        """The ps task for a variable's operation."""
        task = self._bytes.index(min(self._bytes))
        shape = tf.TensorShape(operation.get_attr("shape"))
        self._bytes[task] += shape.num_elements() * operation.get_attr("dtype").size
        return task


def on_ps(role: Role) -> Any:
    """The device function of a between-graph worker: variables on the ps, the rest on itself."""
    return tf.compat.v1.train.replica_device_setter(
        worker_device=role.device,
        ps_device="/job:ps/cpu:0",
        cluster=tf.train.ClusterSpec({job: list(tasks) for job, tasks in role.cluster.items()}),
        ps_strategy=Placement(len(role.cluster["ps"])),
    )


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


class Network:
    """A model's variables: weights, their moving averages, and the global step.

    Args:
        model: Whose weights.
        device: A device name, or a device function such as `on_ps`; averages and momenta stand
            where their weights are.
        momentum: Whether the weights have momenta.
    """

    def __init__(self, model: Model, device: Any, momentum: bool = False) -> None:
        self.model = model
        with tf.compat.v1.device(device):
            self.step = variable("global_step", dtype=tf.int64)
            self.weights = [
                variable(name, shape) for name, shape in zip(model.names, model.shapes, strict=True)
            ]
        self.averages = self._beside("average")
        self.momenta = self._beside("momentum") if momentum else []
        self._all = [self.step, *self.weights, *self.averages, *self.momenta]
        self.missing = tf.compat.v1.report_uninitialized_variables(self._all)
        self._set = Setter(self._all)
        self._share = tf.compat.v1.placeholder(tf.float32, ())
        self._average = tf.group(*self._average_updates())

    def by_name(self) -> dict[str, Any]:
        """All variables under the names that a checkpoint has them by."""
        return {one.op.name: one for one in self._all}

    def initialise(self, session: Any, seed: int) -> None:
        """Sets the first weights, which are their own first averages, and global step 0."""
        weights = self.model.initial(seed)
        momenta = [np.zeros_like(weight) for weight in weights] if self.momenta else []
        self._set(session, [np.int64(0), *weights, *weights, *momenta])

    def average(self, session: Any, share: float) -> None:
        """Moves every average by `share` of its distance to the weight, where both are."""
        session.run(self._average, {self._share: share})

    def _beside(self, what: str) -> list[Any]:
        """A variable of the same shape and on the same device for each weight."""
        beside = []
        for weight, name, shape in zip(
            self.weights, self.model.names, self.model.shapes, strict=True
        ):
            with tf.device(weight.device):
                beside.append(variable(f"{name}/{what}", shape))
        return beside

    def _average_updates(self) -> list[Any]:
        updates = []
        for weight, average in zip(self.weights, self.averages, strict=True):
            with tf.device(weight.device):
                change = self._share * (weight - average)
                updates.append(average.assign_add(change, read_value=False))
        return updates


class LocalData:
    """Examples in the memory of the task on `device`, so that a step is fed indices, not images.

    A batch of images is 78 kB through Python and the session at every step; its indices are 400
    bytes.
    """

    def __init__(self, device: str, split: Split) -> None:
        self._split = split
        with tf.device(device):
            self._images = variable("local/images", split.images.shape, tf.uint8)
            self._labels = variable("local/labels", split.labels.shape, tf.uint8)
        self._set = Setter([self._images, self._labels])

    def load(self, session: Any) -> None:
        """Copies the examples to their task; needed once a session."""
        self._set(session, [self._split.images, self._split.labels])

    def batch(self, indices: Any) -> tuple[Any, Any]:
        """Images and labels at `indices`."""
        with tf.device(self._images.device):
            return tf.gather(self._images, indices), tf.gather(self._labels, indices)
