"""`tour graphs`: two clients, two graphs; what they share is a variable's state, not the graph."""

from __future__ import annotations

import tensorflow as tf

from trainer import server
from trainer.examples.barrier import PS, begin
from trainer.flags import Options
from trainer.role import Role


def train(me: Role, options: Options, dataset: None, stop: object) -> None:
    """Is one of the two clients."""
    target, barrier = begin(me, options)
    with tf.Graph().as_default() as graph:
        with tf.device(PS):
            state = tf.compat.v1.get_variable("state", initializer=10.0, use_resource=True)
        if me.index == 0:
            doubled = state.assign(state * 2, name="double")
        else:
            tripled = state.assign(state * 3, name="triple")
        names = {operation.name for operation in graph.get_operations()}
        for name in ("state", "double", "triple"):
            print(f"{me}: {name!r} is {'in' if name in names else 'not in'} my graph", flush=True)
        session = server.open_session(target, me.device, PS)
        if me.index == 0:
            session.run(state.initializer)
            print(f"{me}: I double the state: {session.run(doubled):.0f}", flush=True)
            barrier.reach("doubled")
            barrier.wait("tripled")
            print(f"{me}: I find the state tripled: {session.run(state):.0f}", flush=True)
        else:
            barrier.wait("doubled")
            print(f"{me}: I initialised nothing, and find: {session.run(state):.0f}")
            print(f"{me}: I triple the state: {session.run(tripled):.0f}", flush=True)
            barrier.reach("tripled")
