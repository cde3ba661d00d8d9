"""`tour hello`: the smallest cluster there is: one server in this process, and a session on it."""

from argparse import Namespace

import tensorflow as tf


def run(options: Namespace) -> int:
    """Starts a cluster of one task, and has it say hello."""
    server = tf.distribute.Server.create_local_server()
    print(f"a server listens at {server.target}: job local, task 0, and nobody else")
    with tf.Graph().as_default():
        greeting = tf.constant("Hello, distributed TensorFlow!")
        with tf.compat.v1.Session(server.target) as session:
            for device in session.list_devices():
                print(f"its session can use {device.name}")
            print(f"the session ran a graph of one operation: {session.run(greeting).decode()}")
    return 0
