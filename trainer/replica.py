"""The graph that every worker of a between-graph training builds for itself.

Each worker is a client of its own with a graph of its own. What they share is the state of the
variables on the ps tasks, found by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from trainer import model

if TYPE_CHECKING:
    from trainer.data import Split
    from trainer.role import Role


class Placement:
    """Chooses a ps task for each variable: the one with the fewest bytes so far.

    Round robin, TensorFlow's default, would put both weight matrices on the same of two ps tasks.
    """

    def __init__(self, tasks: int) -> None:
        self._bytes = [0] * tasks

    def __call__(self, operation: Any) -> int:
        task = self._bytes.index(min(self._bytes))
        shape = tf.TensorShape(operation.get_attr("shape"))
        self._bytes[task] += shape.num_elements() * operation.get_attr("dtype").size
        return task


def device(role: Role) -> Any:
    """The device function of a worker's graph: variables on the ps tasks, the rest on the worker.

    Build one, and enter it once for all variables: it remembers what it has placed.
    """
    return tf.compat.v1.train.replica_device_setter(
        worker_device=role.device,
        ps_device="/job:ps/cpu:0",
        cluster=tf.train.ClusterSpec({job: list(tasks) for job, tasks in role.cluster.items()}),
        ps_strategy=Placement(len(role.cluster["ps"])),
    )


def variable(name: str, shape: tuple[int, ...] = (), dtype: Any = tf.float32) -> Any:
    """A variable that has no initial value of its own: the chief feeds or restores one."""
    return tf.compat.v1.get_variable(
        name,
        shape,
        dtype,
        initializer=tf.compat.v1.zeros_initializer(),
        trainable=False,
        collections=[],
        use_resource=True,
    )


class SharedNetwork:
    """The variables on the ps tasks: weights, their moving averages, and the global step."""

    def __init__(self, role: Role) -> None:
        with tf.compat.v1.device(device(role)):
            self.step = variable("global_step", dtype=tf.int64)
            self.weights = [
                variable(name, shape) for name, shape in zip(model.NAMES, model.SHAPES, strict=True)
            ]
        self.averages = []
        for weight in self.weights:
            with tf.device(weight.device):
                name = f"{weight.op.name}/average"
                self.averages.append(variable(name, tuple(weight.shape)))
        self._all = [self.step, *self.weights, *self.averages]
        self.missing = tf.compat.v1.report_uninitialized_variables(self._all)
        self._feeds = [tf.compat.v1.placeholder(v.dtype, v.shape) for v in self._all]
        self._assign = tf.group(
            *(v.assign(feed) for v, feed in zip(self._all, self._feeds, strict=True))
        )
        self._share = tf.compat.v1.placeholder(tf.float32, ())
        self._average = tf.group(*self._average_updates())

    def by_name(self) -> dict[str, Any]:
        """All variables under the names that a checkpoint has them by."""
        return {v.op.name: v for v in self._all}

    def initialise(self, session: Any, seed: int) -> None:
        """Sets the first weights, which are their own first averages, and global step 0."""
        weights = model.initial_weights(seed)
        values = [np.int64(0), *weights, *weights]
        session.run(self._assign, dict(zip(self._feeds, values, strict=True)))

    def average(self, session: Any, share: float) -> None:
        """Moves every average by `share` of its distance to the weight; all on the ps."""
        session.run(self._average, {self._share: share})

    def _average_updates(self) -> list[Any]:
        updates = []
        for weight, average in zip(self.weights, self.averages, strict=True):
            with tf.device(weight.device):
                updates.append(average.assign_add(self._share * (weight - average)))
        return updates


class LocalData:
    """A worker's examples in its own memory, so that a step is fed indices, not images.

    A batch of images is 78 kB through Python and the session at every step; its indices are 400
    bytes.
    """

    def __init__(self, role: Role, split: Split) -> None:
        self._split = split
        with tf.device(f"{role.device}/cpu:0"):
            self._images = variable("local/images", split.images.shape, tf.uint8)
            self._labels = variable("local/labels", split.labels.shape, tf.uint8)
            self._feeds = [
                tf.compat.v1.placeholder(tf.uint8, array.shape)
                for array in (split.images, split.labels)
            ]
            self._assign = tf.group(
                self._images.assign(self._feeds[0]), self._labels.assign(self._feeds[1])
            )

    def load(self, session: Any) -> None:
        """Copies the examples into this task's server; needed once a session."""
        values = (self._split.images, self._split.labels)
        session.run(self._assign, dict(zip(self._feeds, values, strict=True)))

    def batch(self, indices: Any) -> tuple[Any, Any]:
        """Images and labels at `indices`."""
        return tf.gather(self._images, indices), tf.gather(self._labels, indices)
