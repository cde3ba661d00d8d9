"""Other tasks, as this one sees them: who accepts connections, whom it waits for, who was lost."""

import contextlib
import socket
import time
from collections.abc import Iterator

import tensorflow as tf

from trainer.exceptions import TrainerError, named_task, socket_reason
from trainer.role import Role, Task
from trainer.stop import Stop

_POLL = 0.05


def refusal(address: str, seconds: float = 2.0) -> str | None:
    """Reason for which `address` accepts no connection; None if it does."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=seconds).close()
    except OSError as error:
        return error.strerror or str(error)
    return None


def meet(role: Role, others: list[Task], stop: Stop, advice: str) -> None:
    """Listens until each of `others` has been seen to listen, as they do in the same way.

    TensorFlow's strategies wait for each other inside one call, and no other thread runs meanwhile.
    """
    missing = list(others)
    own = socket.create_server(("", role.port), backlog=128)
    with own, stop.waiting(lambda: f"{waiting_text(role, missing)}; {advice}"):
        own.setblocking(False)
        while missing and not stop.requested:
            missing = [task for task in missing if refusal(role.address_of(task), 1)]
            with contextlib.suppress(BlockingIOError):
                while True:
                    own.accept()[0].close()
            stop.wait(_POLL)


def wait_for(role: Role, task: Task, stop: Stop, seconds: float) -> None:
    """Returns when `task` accepts connections, or this one is told to end.

    Raises:
        TrainerError: It did not for `seconds`; names it with the reason.
    """
    deadline = time.monotonic() + seconds
    why = refusal(role.address_of(task))
    with stop.waiting(lambda: f"{role} waits for {role.label(task)}: {why}"):
        while why and not stop.requested:
            if time.monotonic() > deadline:
                raise TrainerError(f"{role}: lost {role.label(task)}: {why} for {seconds:.0f} s")
            stop.wait(_POLL)
            why = refusal(role.address_of(task))


def refusing(role: Role, tasks: list[Task]) -> str:
    """The first of `tasks` that accepts no connection, with address and reason; else nothing."""
    for task in tasks:
        if why := refusal(role.address_of(task), 0.5):
            return f"{role.label(task)}: {why}"
    return ""


def waiting_text(role: Role, others: list[Task]) -> str:
    """Line on whom `role` waits for: the first of `others` that refuses connections, else all."""
    if not others:
        return ""
    silent = f"{role.label(*others)}: connected, but no answer yet"
    return f"{role} waits for {refusing(role, others) or silent}"


@contextlib.contextmanager
def naming_lost(role: Role, needed: list[Task], others: list[Task]) -> Iterator[None]:
    """Names the task of `others` that was lost, in TensorFlow's errors about connections.

    They are of many kinds: while a `needed` task refuses connections, any error is taken for one,
    an assertion of the coordinator, which no longer knows a call that it wants to repeat, too.
    """
    try:
        yield
    except (tf.errors.OpError, RuntimeError, AssertionError) as error:
        connection = (tf.errors.AbortedError, tf.errors.UnavailableError)
        if not isinstance(error, connection) and not refusing(role, needed):
            raise
        raise TrainerError(f"{role}: lost {lost_task(role, others, error)}") from None


def lost_task(role: Role, others: list[Task], error: Exception) -> str:
    """Which of `others` was lost, where it was, and what the socket said."""
    if text := refusing(role, others):
        return text
    named = named_task(error, role.task)
    lost = [named] if named in others and named else others
    return f"{role.label(*lost)}: {socket_reason(error)}"
