"""TensorFlow's messages, cut down to the line that says what is wrong."""

from __future__ import annotations

import errno
import os

import pytest

from tests.support.lazily import tf
from trainer.exceptions import named_task, reason, socket_reason


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("socket closed\nAdditional GRPC error information", "socket closed"),
        (
            "Graph execution error:\n\nDetected at node 'a' defined at (most recent call last):\n"
            "    File \"a.py\", line 5, in <module>\nNode: 'a'\n"
            "Detected at node 'a' defined at (most recent call last):\nNode: 'a'\n"
            "From /job:worker/replica:0/task:0:\n/full/a.ckpt; No space left on device\n"
            "\t [[{{node a}}]]\nHint: more",
            "/full/a.ckpt; No space left on device",
        ),
        ("2 root error(s) found.\n  (0) ABORTED: gone\n  (1) ABORTED: gone", "gone"),
        (
            "{{function_node x}} corrupted record at 7 [Op:IteratorGetNext] name: ",
            "corrupted record at 7",
        ),
    ],
)
def test_the_reason_of_an_error(message: str, line: str) -> None:
    """The reason stands after nodes, tasks and counts, without names of nodes."""
    assert reason(tf.errors.AbortedError(None, None, message)) == line
    assert reason(OSError(28, "No space left on device")) == "No space left on device"
    assert reason(KeyError()) == "KeyError"


LOST = (
    "Graph execution error:\n\nFrom /job:ps/replica:0/task:1:\n=====================\n"
    "failed to connect to all addresses; last error: UNKNOWN: ipv4:10.0.0.1:2222: "
    "Failed to connect to remote host: connect: Connection refused (111)\n"
    "Additional GRPC error information from remote target /job:ps/replica:0/task:1 while calling "
    "/tensorflow.WorkerService/RecvTensor from /job:worker/replica:0/task:0:"
)


def test_the_task_that_an_error_names() -> None:
    """Another task than one's own; what the socket said; never a line of equals signs."""
    error = tf.errors.UnavailableError(None, None, LOST)
    assert named_task(error, ("worker", 0)) == ("ps", 1)
    assert socket_reason(error) == "Connection refused"
    assert "failed to connect" in reason(error)
    plain = tf.errors.UnavailableError(None, None, "=======\nno such thing")
    assert named_task(plain, ("worker", 0)) is None
    assert socket_reason(plain) == "no such thing"


@pytest.mark.parametrize("number", [errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ETIMEDOUT])
def test_what_the_kernel_says_of_a_connection_is_the_reason(number: int) -> None:
    """gRPC quotes the kernel's words; they are the reason, without the addresses around them."""
    words = os.strerror(number)
    message = LOST.replace("Connection refused (111)", f"{words} ({number})")
    assert socket_reason(tf.errors.UnavailableError(None, None, message)) == words


def test_a_task_that_passed_an_error_on_is_not_blamed() -> None:
    """A ps that was reading from a worker tells of the worker's end."""
    words = (
        "recvmsg:Connection reset by peer\nAdditional GRPC error information from remote target "
        "/job:worker/replica:0/task:1 while calling /tensorflow.WorkerService/RecvTensor:\n"
        "Additional GRPC error information from remote target /job:ps/replica:0/task:0 while "
        "calling /tensorflow.WorkerService/RecvTensor:"
    )
    assert named_task(OSError(words), ("worker", 0)) == ("worker", 1)
