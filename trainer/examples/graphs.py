"""`tour graphs`: two clients, two graphs; what they share is a variable's state, not the graph."""

import tensorflow as tf

from trainer import server
from trainer.examples.tour import PS, begin
from trainer.modes import Context


def train(context: Context) -> None:
    """Is one of the two clients."""
    me, target, barrier = begin(context)
    with tf.Graph().as_default() as graph:
        with tf.device(PS):
            state = tf.compat.v1.get_variable("state", initializer=10.0, use_resource=True)
        factor, own = ((2, "double"), (3, "triple"))[me.index]
        changed = state.assign(state * factor, name=own)
        names = {operation.name for operation in graph.get_operations()}
        for name in ("state", "double", "triple"):
            print(f"{me}: {name!r} is {'in' if name in names else 'not in'} my graph")
        session = server.open_session(target, me.device, PS)
        if me.index == 0:
            session.run(state.initializer)
            print(f"{me}: I double the state: {session.run(changed):.0f}")
            barrier.reach("doubled")
            barrier.wait("tripled")
            print(f"{me}: I find the state tripled: {session.run(state):.0f}")
        else:
            barrier.wait("doubled")
            print(f"{me}: I initialised nothing, and find: {session.run(state):.0f}")
            print(f"{me}: I triple the state: {session.run(changed):.0f}")
            barrier.reach("tripled")
