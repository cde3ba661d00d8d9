"""`tour trace`: on which task each node of a run ran, before and after pinning variables."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from trainer import role, server, stop

if TYPE_CHECKING:
    from trainer.flags import Options
    from trainer.role import Role


def run(options: Options) -> int:
    """Serves as one of the ps tasks, or is the client; returns the exit status."""
    me = role.resolve(options, os.environ, needs=("ps", "worker"))
    server.check_port(me)
    if me.job == "ps":
        return server.run_serving(me, options)
    return stop.run(lambda _: _tour(me, options), options.grace)


def _tour(me: Role, options: Options) -> None:
    target = server.start(me, options).target
    count = len(me.cluster["ps"])
    print("1. nothing pinned: variables and operations are on the client's own task")
    _show(target, [None, None])
    print("2. each variable pinned to a ps; what is computed from them stays with the client")
    _show(target, ["/job:ps/task:0", f"/job:ps/task:{count - 1}"])


def _show(target: str, devices: list[str | None]) -> None:
    """Computes w·x + b, `w` and `b` on `devices`, and prints where each node was executed."""
    import tensorflow as tf

    from trainer import trace

    with tf.Graph().as_default():
        with tf.device(devices[0]):
            w = tf.compat.v1.get_variable("w", initializer=[[1.0, 2.0]], use_resource=True)
        with tf.device(devices[1]):
            b = tf.compat.v1.get_variable("b", initializer=[[0.5]], use_resource=True)
        x = tf.compat.v1.placeholder(tf.float32, (2, 1), name="x")
        y = tf.add(tf.matmul(w, x, name="wx"), b, name="y")
        with tf.compat.v1.Session(target) as session:
            session.run(tf.compat.v1.global_variables_initializer())
            print(trace.table(trace.executed(session, y, {x: [[3.0], [4.0]]})), flush=True)
