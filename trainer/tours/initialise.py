"""`tour initialise`: one task waits until the other has given the shared variables their values."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from trainer import server, shared_session
from trainer.tours import pair

if TYPE_CHECKING:
    from trainer.flags import Options
    from trainer.role import Role

_POLL = 0.1


def run(options: Options) -> int:
    """Serves as the ps, is the chief, or waits for the chief; returns the exit status."""
    return pair.run(options, _tour)


def _tour(me: Role, options: Options) -> None:
    import tensorflow as tf

    from trainer.tours.marks import Marks

    target = server.start(me, options).target
    marks = Marks(me, target, "/job:ps/task:0")
    with tf.Graph().as_default():
        with tf.device("/job:ps/task:0"):
            weights = tf.compat.v1.get_variable(
                "weights", initializer=[1.5, 2.5], use_resource=True
            )
            bias = tf.compat.v1.get_variable("bias", initializer=0.5, use_resource=True)
        missing = tf.compat.v1.report_uninitialized_variables([weights, bias])
        with shared_session.open_session(target, ["/job:ps", me.device]) as session:
            if me.is_chief:
                # Only for the show: the other task shall have something to wait for.
                marks.wait("looked")
                session.run([weights.initializer, bias.initializer])
                print(f"{me}: I have initialised the variables", flush=True)
                marks.wait("went on")
            else:
                _wait(me, session, missing, marks)
                values = session.run([weights, bias])
                print(f"{me}: I go on with weights {values[0]} and bias {values[1]}", flush=True)
                marks.make("went on")


def _wait(me: Role, session: Any, missing: Any, marks: Any) -> None:
    """Looks at the variables until none is without a value.

    An operation that used one before would fail with "uninitialized value".
    """
    while names := [name.decode() for name in session.run(missing)]:
        print(f"{me}: I wait; without a value: {', '.join(names)}", flush=True)
        marks.make("looked")
        time.sleep(_POLL)
