"""`tour counter`: two workers increment a ps's variable, with and without losing updates."""

import tensorflow as tf

from trainer import server
from trainer.examples.tour import PS, begin
from trainer.modes import Context

TIMES = 100
SHOW_EVERY = 25
# Name, increments of a worker, and what it does for one.
ROUNDS = (
    ("in turn", 1, "both read 0 before either writes what it read, plus 1"),
    ("unlocked", TIMES, f"each worker {TIMES} times: read, add 1, write back"),
    ("locked", TIMES, f"each worker {TIMES} times: assign_add, one operation on the ps"),
)


def train(context: Context) -> None:
    """Counts as one of the workers; the first also prints what the counter holds."""
    me, target, barrier = begin(context)
    with tf.Graph().as_default():
        with tf.device(PS):
            counter = tf.compat.v1.get_variable("counter", initializer=0, use_resource=True)
            value = tf.compat.v1.placeholder(tf.int32, ())
            write = counter.assign(value, read_value=False)
            read = counter.read_value()
            add = counter.assign_add(1, read_value=True)
        session = server.open_session(target, me.device, PS)
        for name, times, how in ROUNDS:
            if me.index == 0:
                session.run(counter.initializer)
                print(f"{name}: {how}")
                barrier.reach(f"{name}: begin")
            barrier.wait(f"{name}: begin")
            for number in range(1, times + 1):
                if name == "locked":
                    seen = int(session.run(add))
                else:
                    seen = int(session.run(read)) + 1
                    if name == "in turn":
                        barrier.reach(f"{me.index} has read")
                        barrier.wait("0 has read", "1 has read")
                    session.run(write, {value: seen})
                if number % SHOW_EVERY == 0 or times == 1:
                    print(f"{me}, {name}: my increment {number} made it {seen}")
            barrier.reach(f"{name}: {me.index} has counted")
            barrier.wait(f"{name}: 0 has counted", f"{name}: 1 has counted")
            if me.index == 0:
                found, made = int(session.run(read)), 2 * times
                print(f"  the counter is {found} of {made}, {made - found} updates lost")
