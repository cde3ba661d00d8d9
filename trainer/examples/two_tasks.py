"""`tour two-tasks`: a cluster of two tasks, each a server and a client; where do operations run?"""

import os
import time
from argparse import Namespace
from typing import Any

import tensorflow as tf

from trainer import role, server, stop
from trainer.examples.tour import Barrier, executed, table, traced
from trainer.exceptions import UsageError
from trainer.role import Role


def run(options: Namespace) -> int:
    """Runs one of the two tasks; returns its exit status."""
    me = role.resolve(options, os.environ)
    if [len(tasks) for tasks in me.cluster.values()] != [2]:
        raise UsageError("this tour is of one job with two tasks")
    me.check_port()
    return stop.run(lambda _: _tour(me, options), options.grace)


def _tour(me: Role, options: Namespace) -> None:
    target = server.start(me, options)
    first = f"/job:{me.job}/task:0"
    _product(me, target, None, "left to TensorFlow, which takes the task of the client")
    _product(me, target, first, f"pinned to {first}")

    # Nobody leaves while the other may still need its server, and task 0 has the barrier.
    barrier = Barrier(me, target, first)
    _share(me, target, first, barrier)
    barrier.reach(f"{me.index} is done")
    barrier.wait(f"{1 - me.index} is done")
    if me.index == 0:
        barrier.wait("1 leaves")
    else:
        barrier.reach("1 leaves")


def _share(me: Role, target: str, device: str, barrier: Barrier) -> None:
    """A variable on task 0 has the same value in sessions of every server of the cluster."""
    with tf.Graph().as_default():
        with tf.device(device):
            shared = tf.compat.v1.get_variable("shared", initializer=0, use_resource=True)
            write = shared.assign(42, read_value=False)
        with tf.compat.v1.Session(target) as session:
            if me.index == 0:
                session.run(write)
                print(f"{me} has written 42 to the variable on {device}")
                barrier.reach("written")
            else:
                barrier.wait("written")
                print(f"{me} reads {session.run(shared)} from it, through its own server")


def _product(me: Role, target: str, device: str | None, how: str) -> None:
    """Multiplies two numbers on `device`, and shows on which task that happened."""
    with tf.Graph().as_default(), tf.device(device):
        left, right = tf.constant(6.0, name="left"), tf.constant(7.0, name="right")
        product: Any = tf.multiply(left, right, name="product")
        print(f"{me} opens a session: this waits until all tasks of the cluster answer")
        opened = time.monotonic()
        with tf.compat.v1.Session(target, config=traced()) as session:
            places = executed(session, product)
            print(f"{me} had its answer {time.monotonic() - opened:.1f} s later; {how}:")
            print(table(places))
