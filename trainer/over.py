"""How a worker that only serves learns that the training is over.

A server knows nothing of its clients, and `join()` never returns: such workers stay for ever,
unless somebody ends them. Here the client, at its end, makes a variable on each of them; the worker
looks whether it is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from trainer import server, shared_session

if TYPE_CHECKING:
    from trainer.flags import Options
    from trainer.role import Role
    from trainer.stop import Stop

_POLL = 0.2


def tell(device: str) -> Any:
    """Makes the variable on the task at `device`; in a graph, returns the operation that does."""
    with tf.device(f"{device}/device:CPU:0"):
        return tf.raw_ops.AssignVariableOp(resource=_handle(), value=tf.constant(True))


def serve(role: Role, options: Options, stop: Stop) -> None:
    """Serves until the client has told."""
    target = server.start(role, options).target
    with tf.Graph().as_default():
        with tf.device(f"{role.device}/device:CPU:0"):
            told = tf.raw_ops.VarIsInitializedOp(resource=_handle())
        with shared_session.open_session(target, [role.device]) as session:
            while not session.run(told) and not stop.wait(_POLL):
                pass
    print(f"{role} has served to the end", flush=True)


def _handle() -> Any:
    return tf.raw_ops.VarHandleOp(dtype=tf.bool, shape=(), shared_name="over", container="")
