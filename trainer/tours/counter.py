"""`tour counter`: two workers increment a ps's variable, with and without losing updates."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from trainer import role, server, shared_session, stop
from trainer.errors import UsageError

if TYPE_CHECKING:
    from trainer.flags import Options
    from trainer.role import Role
    from trainer.stop import Stop
    from trainer.tours.marks import Marks

TIMES = 100
PS = "/job:ps/task:0"
# Name, and what a worker does for an increment.
ROUNDS = (
    ("in turn", "both read 0 before either writes what it read, plus 1"),
    ("unlocked", f"each worker {TIMES} times: read, add 1, write back"),
    ("locked", f"each worker {TIMES} times: assign_add, one operation on the ps"),
)


def run(options: Options) -> int:
    """Counts as one of the workers, or prints as the ps; returns the exit status."""
    me = role.resolve(options, os.environ, needs=("ps", "worker"))
    if (len(me.cluster["ps"]), len(me.cluster["worker"])) != (1, 2):
        raise UsageError("this tour is of one ps and two workers")
    server.check_port(me)
    return stop.run(lambda stop: _tour(me, options, stop), options.grace)


def _tour(me: Role, options: Options, stop: Stop) -> None:
    import tensorflow as tf

    from trainer.tours.marks import Marks

    target = server.start(me, options, serve_only=me.job == "ps").target
    marks = Marks(me, target, PS)
    with tf.Graph().as_default():
        with tf.device(PS):
            counter = tf.compat.v1.get_variable("counter", initializer=0, use_resource=True)
        with shared_session.open_session(target, [PS, me.device]) as session:
            if me.job == "ps":
                _print(session, counter, marks)
            else:
                _count(me, session, counter, marks)
    if me.job == "ps":
        server.serve(me, stop)


def _print(session: Any, counter: Any, marks: Marks) -> None:
    """The ps: starts each round, waits for its end, and prints what the counter holds."""
    for name, how in ROUNDS:
        session.run(counter.initializer)
        print(f"{name}: {how}", flush=True)
        marks.make(f"{name}: begin")
        marks.wait(*(f"{name}: {worker} has counted" for worker in range(2)))
        expected = 2 * (1 if name == "in turn" else TIMES)
        value = int(session.run(counter))
        print(
            f"  the counter is {value} of {expected}, {expected - value} updates lost", flush=True
        )
    marks.make("over")


def _count(me: Role, session: Any, counter: Any, marks: Marks) -> None:
    """A worker: increments in each round as the round says."""
    import tensorflow as tf

    value = tf.compat.v1.placeholder(tf.int32, ())
    with tf.device(PS):
        read = tf.identity(counter)
        write = counter.assign(value, read_value=False)
        add = counter.assign_add(1, read_value=False)
    for name, _ in ROUNDS:
        marks.wait(f"{name}: begin")
        if name == "in turn":
            seen = session.run(read)
            marks.make(f"{me.index} has read")
            marks.wait("0 has read", "1 has read")
            session.run(write, {value: seen + 1})
        elif name == "unlocked":
            for _ in range(TIMES):
                session.run(write, {value: session.run(read) + 1})
        else:
            for _ in range(TIMES):
                session.run(add)
        print(f"{me} has counted, {name}", flush=True)
        marks.make(f"{name}: {me.index} has counted")
    marks.wait("over")
