"""TensorFlow server of a task, tasks that only serve (a ps, a plain worker), and other tasks."""

import contextlib
import os
import socket
import time
from argparse import Namespace
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from trainer.errors import TrainerError, named_task, reason, socket_reason
from trainer.role import Role, Task
from trainer.stop import Stop

_POLL = 0.05
_POLL_DONE = 0.3
_TELL_TIMEOUT_MS = 5000
# For how long a task that accepts connections is told again: its first session may take long.
_TELL_SECONDS = 30.0
_SLOW = (tf.errors.DeadlineExceededError, tf.errors.UnavailableError)


def start(role: Role, options: Namespace, serve_only: bool = False) -> str:
    """Starts this task's server; returns its target. A task that only serves takes no GPU."""
    devices = {"GPU": 0} if serve_only else {"CPU": getattr(options, "devices", 1)}
    config = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=threads(role, options),
        device_count=devices,
        allow_soft_placement=True,
    )
    config.gpu_options.allow_growth = True
    try:
        server = tf.distribute.Server(_spec(role), role.job, role.index, config=config)
    except tf.errors.OpError as error:
        raise role.cannot_listen(reason(error)) from None
    print(f"{role} listens on {role.address_of(role.task)}")
    _kept.append(server)
    return str(server.target)


def _spec(role: Role) -> Any:
    return tf.train.ClusterSpec({job: list(tasks) for job, tasks in role.cluster.items()})


def resolver(role: Role, gpus: int = 0) -> Any:
    """The role's cluster as TensorFlow's strategies want it."""
    return tf.distribute.cluster_resolver.SimpleClusterResolver(
        _spec(role),
        task_type=role.job,
        task_id=role.index,
        rpc_layer="grpc",
        num_accelerators={"GPU": gpus},
    )


def threads(role: Role, options: Namespace) -> int:
    """Threads one operation may use: `--threads`, else this task's share of the host's cores."""
    return int(options.threads) or max(1, len(os.sched_getaffinity(0)) // role.neighbours)


def serve(role: Role, options: Namespace, clients: list[Task], stop: Stop) -> None:
    """Serves until all clients have told that they are done, or TERM; then it leaves after them.

    Not `server.join()`, which never returns and inside which no signal handler ever runs. A chief
    that gets TERM too needs the variables on the ps for its last checkpoint, and the workers for
    the calls that it has begun.
    """
    is_ps = role.job == "ps"
    whose = "workers have" if is_ps else "chief has"
    target = start(role, options, serve_only=is_ps)
    stop.expected, stop.worth_waiting = is_ps, True
    stays = is_ps and (options.stay or "TFMUX_TASK" in os.environ)
    with tf.Graph().as_default(), tf.device(f"{role.device}/device:CPU:0"):
        done = [SharedFlag(f"done/{job}:{index}").is_set for job, index in clients]
        session = open_session(target, role.device)
        while not stop.wait(_POLL_DONE) and (stays or not all(session.run(done))):
            pass
    if stop.requested:
        print(f"{role} stays until its {whose} ended")
        left = clients
        while left and time.monotonic() < stop.deadline:
            left = [task for task in left if not refusal(role.address_of(task), 0.5)]
            time.sleep(_POLL)
        if left:
            print(f"{role} exits while {role.label(*left)} still run")
            return
    print(f"{role} exits: its {whose} ended")


def announce_done(role: Role, clients: list[Task], stop: Stop) -> None:
    """Tells each task that serves that this client is done; one that is slow to answer again."""
    deadline = time.monotonic() + _TELL_SECONDS
    left = [task for task in role.tasks() if task not in clients]
    with stop.waiting(lambda: waiting_text(role, left)):
        while left := [task for task in left if not refusal(role.address_of(task))]:
            for task in list(left):
                try:
                    _tell_done(role, task)
                except tf.errors.OpError as error:
                    over = stop.requested or time.monotonic() > deadline
                    if isinstance(error, _SLOW) and not over:
                        continue
                    why = reason(error)
                    print(f"{role} cannot tell {role.label(task)} that it is done: {why}")
                left.remove(task)
            stop.wait(_POLL if left else 0)


def _tell_done(role: Role, task: Task) -> None:
    """Sets this client's flag on `task`, in a session of its own."""
    device = role.device_of(task)
    with tf.Graph().as_default(), tf.device(f"{device}/device:CPU:0"):
        flag = SharedFlag(f"done/{role}")
        timeout = {"operation_timeout_in_ms": _TELL_TIMEOUT_MS}
        open_session(f"grpc://{role.address_of(task)}", device, **timeout).run(flag.set)


class SharedFlag:
    """A variable on the present device, shared by name: set when it has a value."""

    def __init__(self, name: str) -> None:
        variable = tf.raw_ops.VarHandleOp(dtype=tf.bool, shape=(), shared_name=name, container="")
        self.set = tf.raw_ops.AssignVariableOp(resource=variable, value=tf.constant(True))
        self.is_set = tf.raw_ops.VarIsInitializedOp(resource=variable)


_kept: list[Any] = []


def open_session(target: str, *tasks: str, **config: Any) -> Any:
    """A session with `tasks`, by their device names; it waits for no other task to be there.

    It is never closed: that would wait for tasks that may never answer.
    """
    proto = tf.compat.v1.ConfigProto(device_filters=tasks, **config)
    session = tf.compat.v1.Session(target, config=proto)
    _kept.append(session)
    return session


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
