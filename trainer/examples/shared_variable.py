"""`tour shared-variable`: plain sessions see each their own variable, a cluster's all the same."""

from argparse import Namespace
from typing import Any

import tensorflow as tf
from tensorflow.compat.v1 import Session


def run(options: Namespace) -> int:
    """Adds to a variable in one session and looks at it from others."""
    print("plain sessions keep variables for themselves:")
    _count("", "counter", "counter")
    target = tf.distribute.Server.create_local_server().target
    print(f"sessions on the cluster at {target} share a variable of the same name:")
    _count(target, "counter", "counter")
    print("of another name, it is another variable:")
    _count(target, "this", "that")
    return 0


def _count(target: str, here: str, there: str) -> None:
    """Counts to 3 in one session, then looks from another, which has a graph of its own."""
    with Session(target, graph=(graph := _graph(here))) as session:
        session.run(graph.get_operation_by_name("initialise"))
        for _ in range(3):
            session.run(graph.get_operation_by_name("increment"))
        print(f"  the first session counts its {here!r} to {session.run('value:0')}")
    with Session(target, graph=_graph(there)) as session:
        try:
            print(f"  the second session's {there!r} is {session.run('value:0')}")
        except tf.errors.FailedPreconditionError:
            print(f"  the second session's {there!r} has no value")


def _graph(name: str) -> Any:
    """A graph with a variable `name` and operations that initialise, increment and read it."""
    with tf.Graph().as_default() as graph:
        counter = tf.compat.v1.get_variable(name, initializer=0, use_resource=True)
        tf.group(counter.initializer, name="initialise")
        tf.group(counter.assign_add(1), name="increment")
        tf.identity(counter, name="value")
    return graph
