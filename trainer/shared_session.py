"""A session on the cluster that waits for its other half and survives the loss of it."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from trainer.errors import TrainerError

if TYPE_CHECKING:
    from trainer.keeper import Keeper
    from trainer.network import Network
    from trainer.role import Role
    from trainer.stop import Stop

_POLL = 0.1
_SAY_EVERY = 10.0
LOST_FOR = 60.0
LOSS = (tf.errors.AbortedError, tf.errors.UnavailableError, tf.errors.FailedPreconditionError)


def open_session(target: str, filters: list[str] | None) -> Any:
    """A session with the tasks in `filters`, None for all; blocks until all of them answer.

    A between-graph worker filters the other workers out: otherwise its session waits for workers
    that may start late or have already left.
    """
    config = tf.compat.v1.ConfigProto(allow_soft_placement=True, device_filters=filters or [])
    return tf.compat.v1.Session(target, config=config)


def prepare(session: Any, role: Role, network: Network, keeper: Keeper | None, stop: Stop) -> None:
    """Returns when all shared variables have values: the chief's keeper sees to it, others wait.

    TensorFlow's own session manager looks every 30 seconds; this one ten times a second.
    """
    said = time.monotonic()
    while (missing := session.run(network.missing)).size and not stop.requested:
        if keeper:
            keeper.start(session)
            return
        if time.monotonic() - said > _SAY_EVERY:
            said = time.monotonic()
            job, index = role.chief
            print(f"{role} waits for {job}:{index} to initialise {missing.size} variables")
        stop.wait(_POLL)


def wait_for_ps(role: Role, stop: Stop) -> None:
    """Waits until every ps accepts connections again.

    Raises:
        TrainerError: One did not for `LOST_FOR` seconds; names it with the reason.
    """
    deadline = time.monotonic() + LOST_FOR
    for index, address in enumerate(role.cluster["ps"]):
        host, _, port = address.rpartition(":")
        while not stop.requested:
            try:
                socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
                break
            except OSError as error:
                if time.monotonic() > deadline:
                    reason = error.strerror or str(error)
                    raise TrainerError(
                        f"{role}: lost ps:{index} ({address}): {reason} for {LOST_FOR:.0f} s"
                    ) from None
            stop.wait(_POLL)
