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
    if keeper and not stop.requested:
        keeper.join(session)


def wait_for(role: Role, jobs: tuple[str, ...], stop: Stop, seconds: float = float("inf")) -> None:
    """Waits until every task of `jobs` accepts connections.

    Raises:
        TrainerError: One did not for `seconds`; names it with the reason.
    """
    deadline = time.monotonic() + seconds
    said = time.monotonic()
    for job in jobs:
        for index, address in enumerate(role.cluster[job]):
            while (reason := _refusal(address)) and not stop.requested:
                if time.monotonic() > deadline:
                    raise TrainerError(
                        f"{role}: lost {job}:{index} ({address}): {reason} for {seconds:.0f} s"
                    )
                if time.monotonic() - said > _SAY_EVERY:
                    said = time.monotonic()
                    print(f"{role} waits for {job}:{index} ({address}): {reason}", flush=True)
                stop.wait(_POLL)


def _refusal(address: str) -> str | None:
    """Why `address` accepts no connection; None when it does."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
    except OSError as error:
        return error.strerror or str(error)
    return None
