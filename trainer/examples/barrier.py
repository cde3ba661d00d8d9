"""Barrier between the tasks of a tour: points that one task reaches and another waits for."""

from __future__ import annotations

import time
from typing import Any

import tensorflow as tf

from trainer import server
from trainer.errors import UsageError
from trainer.flags import Options
from trainer.role import Role

_POLL = 0.05
PS = "/job:ps/task:0"


class Barrier:
    """Named points that all tasks see, as variables on the task at `device`.

    A point is reached when its variable has a value: nobody has to initialise it first.
    """

    def __init__(self, role: Role, target: str, device: str = PS) -> None:
        self._device = device
        self._graph = tf.Graph()
        with self._graph.as_default():
            self._session = server.open_session(target, role.device, device)

    def reach(self, name: str) -> None:
        """Tells all that this task has come to `name`."""
        with self._graph.as_default(), tf.device(f"{self._device}/device:CPU:0"):
            self._session.run(
                tf.raw_ops.AssignVariableOp(resource=_handle(name), value=tf.constant(True))
            )

    def wait(self, *names: str) -> None:
        """Returns when all of `names` have been reached."""
        with self._graph.as_default(), tf.device(f"{self._device}/device:CPU:0"):
            reached = [tf.raw_ops.VarIsInitializedOp(resource=_handle(name)) for name in names]
        while not all(self._session.run(reached)):
            time.sleep(_POLL)


def begin(role: Role, options: Options) -> tuple[str, Barrier]:
    """Starts the server of one of the two workers of a tour; its target, and their barrier."""
    if len(role.cluster["worker"]) != 2:
        raise UsageError("this tour is of two workers")
    target: str = server.start(role, options).target
    return target, Barrier(role, target)


def _handle(name: str) -> Any:
    return tf.raw_ops.VarHandleOp(
        dtype=tf.bool, shape=(), shared_name=f"barrier/{name}", container=""
    )
