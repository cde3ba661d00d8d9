"""How the tasks of a tour take turns: marks that one task makes and another waits for."""

from __future__ import annotations

import time
from typing import Any

import tensorflow as tf

from trainer import shared_session
from trainer.role import Role

_POLL = 0.05


class Marks:
    """Named marks that all tasks see, as variables on the task at `device`.

    A mark is made when its variable has a value: nobody has to initialise it first.
    """

    def __init__(self, role: Role, target: str, device: str) -> None:
        self._device = device
        self._graph = tf.Graph()
        with self._graph.as_default():
            # With the two tasks alone: it shall not wait for the others to be there.
            self._session = shared_session.open_session(target, [role.device, device])

    def make(self, name: str) -> None:
        """Makes the mark `name`."""
        with self._graph.as_default(), tf.device(f"{self._device}/device:CPU:0"):
            self._session.run(
                tf.raw_ops.AssignVariableOp(resource=_handle(name), value=tf.constant(True))
            )

    def wait(self, *names: str) -> None:
        """Returns when all marks `names` have been made."""
        with self._graph.as_default(), tf.device(f"{self._device}/device:CPU:0"):
            made = [tf.raw_ops.VarIsInitializedOp(resource=_handle(name)) for name in names]
        while not all(self._session.run(made)):
            time.sleep(_POLL)


def _handle(name: str) -> Any:
    return tf.raw_ops.VarHandleOp(dtype=tf.bool, shape=(), shared_name=f"mark/{name}", container="")
