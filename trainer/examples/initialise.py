"""`tour initialise`: one task waits until the other has given the shared variables their values."""

import time

import tensorflow as tf

from trainer import server
from trainer.examples.tour import PS, begin
from trainer.modes import Context

_POLL = 0.1


def train(context: Context) -> None:
    """Is the chief, or waits for the chief."""
    me, target, barrier = begin(context)
    with tf.Graph().as_default():
        with tf.device(PS):
            make = tf.compat.v1.get_variable
            weights = make("weights", initializer=[1.5, 2.5], use_resource=True)
            bias = make("bias", initializer=0.5, use_resource=True)
        missing = tf.compat.v1.report_uninitialized_variables([weights, bias])
        session = server.open_session(target, me.device, PS)
        if me.is_chief:
            # Only for the show: the other task shall have something to wait for.
            barrier.wait("looked")
            session.run([weights.initializer, bias.initializer])
            print(f"{me}: I have initialised the variables")
            return
        # An operation that used one before would fail with "uninitialized value".
        while names := [name.decode() for name in session.run(missing)]:
            print(f"{me}: I wait; without a value: {', '.join(names)}")
            barrier.reach("looked")
            time.sleep(_POLL)
        values = session.run([weights, bias])
        print(f"{me}: I go on with weights {values[0]} and bias {values[1]}")
