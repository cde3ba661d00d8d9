"""`tour trace`: on which task each node of a run ran, before and after pinning variables."""

import tensorflow as tf

from trainer import server
from trainer.examples.tour import PS, begin, executed, table
from trainer.modes import Context
from trainer.role import Role


def train(context: Context) -> None:
    """Is one of the two clients: what is not pinned runs on the task of whoever asks."""
    me, target, barrier = begin(context)
    last = f"/job:ps/task:{len(me.cluster['ps']) - 1}"
    if me.index == 0:
        print("1. nothing pinned: variables and operations are on the client's own task")
        _show(me, target, [None, None], initialise=True)
        print("2. each variable pinned to a ps; what is computed from them stays with the client")
        _show(me, target, [PS, last], initialise=True)
        barrier.reach("pinned")
    else:
        barrier.wait("pinned")
        print("3. a second client: the same variables on the ps, the arithmetic on its own task")
        _show(me, target, [PS, last], initialise=False)


def _show(me: Role, target: str, devices: list[str | None], initialise: bool) -> None:
    """Computes w·x + b, `w` and `b` on `devices`, and prints where each node was executed."""
    with tf.Graph().as_default():
        with tf.device(devices[0]):
            w = tf.compat.v1.get_variable("w", initializer=[[1.0, 2.0]], use_resource=True)
        with tf.device(devices[1]):
            b = tf.compat.v1.get_variable("b", initializer=[[0.5]], use_resource=True)
        x = tf.compat.v1.placeholder(tf.float32, (2, 1), name="x")
        y = tf.add(tf.matmul(w, x, name="wx"), b, name="y")
        session = server.open_session(target, me.device, "/job:ps")
        if initialise:
            session.run(tf.compat.v1.global_variables_initializer())
        feed = {x: [[3.0], [4.0]]}
        print(table(executed(session, y, feed)))
        print(f"  y = {session.run(y, feed)[0][0]}")
