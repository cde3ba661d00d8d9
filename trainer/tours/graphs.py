"""`tour graphs`: two clients, two graphs; what they share is a variable's state, not the graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer import server, shared_session
from trainer.tours import pair

if TYPE_CHECKING:
    from trainer.flags import Options
    from trainer.role import Role


def run(options: Options) -> int:
    """Serves the variable as the ps, or is one of the two clients; returns the exit status."""
    return pair.run(options, _tour)


def _tour(me: Role, options: Options) -> None:
    import tensorflow as tf

    from trainer.tours.marks import Marks

    target = server.start(me, options).target
    marks = Marks(me, target, "/job:ps/task:0")
    with tf.Graph().as_default() as graph:
        with tf.device("/job:ps/task:0"):
            state = tf.compat.v1.get_variable("state", initializer=10.0, use_resource=True)
        if me.index == 0:
            doubled = state.assign(state * 2, name="double")
        else:
            tripled = state.assign(state * 3, name="triple")
        names = {operation.name for operation in graph.get_operations()}
        for name in ("state", "double", "triple"):
            print(f"{me}: {name!r} is {'in' if name in names else 'not in'} my graph", flush=True)
        with shared_session.open_session(target, ["/job:ps", me.device]) as session:
            if me.index == 0:
                session.run(state.initializer)
                print(f"{me}: I double the state: {session.run(doubled):.0f}", flush=True)
                marks.make("doubled")
                marks.wait("tripled")
                print(f"{me}: I find the state tripled: {session.run(state):.0f}", flush=True)
            else:
                marks.wait("doubled")
                print(f"{me}: I initialised nothing, and find: {session.run(state):.0f}")
                print(f"{me}: I triple the state: {session.run(tripled):.0f}", flush=True)
                marks.make("tripled")
