"""How a worker that only serves learns that the training is over.

A server knows nothing of its clients, and `join()` never returns: such workers stay for ever,
unless somebody ends them. Here the client puts a word into a queue on each worker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from trainer import server, shared_session

if TYPE_CHECKING:
    from trainer.flags import Options
    from trainer.role import Role


def queue(device: str) -> Any:
    """The queue on the task at `device`, in the current graph."""
    with tf.device(f"{device}/cpu:0"):
        return tf.queue.FIFOQueue(4, [tf.bool], [()], shared_name="over")


def serve(role: Role, options: Options) -> None:
    """Serves until the client says that the training is over."""
    target = server.start(role, options).target
    with tf.Graph().as_default():
        word = queue(role.device).dequeue()
        with shared_session.open_session(target, [role.device]) as session:
            session.run(word)
    print(f"{role} has served to the end", flush=True)
