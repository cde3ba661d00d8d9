"""TensorFlow server of a task, tasks that only serve (a ps, a plain worker), and other tasks."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from trainer.errors import TrainerError, named_task, reason, socket_reason

if TYPE_CHECKING:
    from trainer.flags import Options
    from trainer.role import Role
    from trainer.stop import Stop

_POLL = 0.05
_POLL_DONE = 0.3
_TELL_TIMEOUT_MS = 5000


def check_port(role: Role) -> None:
    """Fails early, before TensorFlow's import, when this task's port is taken."""
    with socket.socket() as probe:
        # As gRPC does: connections of an earlier task in TIME_WAIT are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", role.port))
            probe.listen(1)
        except OSError as error:
            raise _busy(role, error.strerror or str(error)) from None


def start(role: Role, options: Options, serve_only: bool = False) -> Any:
    """Starts this task's `tf.distribute.Server`; a task that only serves takes no GPU."""
    import tensorflow as tf

    devices = {"GPU": 0} if serve_only else {"CPU": getattr(options, "devices", 1)}
    config = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=threads(role, options),
        device_count=devices,
        allow_soft_placement=True,
    )
    config.gpu_options.allow_growth = True
    spec = resolver(role).cluster_spec()
    try:
        server = tf.distribute.Server(spec, role.job, role.index, config=config)
    except tf.errors.OpError as error:
        raise _busy(role, reason(error)) from None
    print(f"{role} listens on {role.address}", flush=True)
    return server


def resolver(role: Role, gpus: int = 0) -> Any:
    """The role's cluster as TensorFlow's strategies want it."""
    import tensorflow as tf

    spec = tf.train.ClusterSpec({job: list(tasks) for job, tasks in role.cluster.items()})
    return tf.distribute.cluster_resolver.SimpleClusterResolver(
        spec,
        task_type=role.job,
        task_id=role.index,
        rpc_layer="grpc",
        num_accelerators={"GPU": gpus},
    )


def threads(role: Role, options: Options) -> int:
    """Threads one operation may use: `--threads`, else this task's share of this machine's cores.

    Tasks that each use all cores slow each other down.
    """
    return int(options.threads) or max(1, len(os.sched_getaffinity(0)) // role.neighbours)


def serve(role: Role, options: Options, clients: list[tuple[str, int]], stop: Stop) -> None:
    """Serves until all clients have told that they are done, or TERM; a ps leaves last.

    Not `server.join()`, which never returns and inside which no signal handler ever runs. When all
    tasks get TERM at once, the chief still needs the variables for its last checkpoint, so a ps
    stays until its clients have ended. A launcher ends the ps by itself, and would take one that
    ends before for lost: hence `--stay`.
    """
    import tensorflow as tf

    target = start(role, options, serve_only=role.job == "ps").target
    stop.expected = role.job == "ps"
    stop.worth_waiting = role.job == "ps"
    stays = role.job == "ps" and (options.stay or "TFMUX_TASK" in os.environ)
    with tf.Graph().as_default(), tf.device(f"{role.device}/device:CPU:0"):
        done = [
            tf.raw_ops.VarIsInitializedOp(resource=_completion_flag(job, index))
            for job, index in clients
        ]
        session = open_session(target, role.device)
        while not stop.wait(_POLL_DONE) and (stays or not all(session.run(done))):
            pass
    if role.job != "ps":
        print(f"{role} exits: the training is over", flush=True)
        return
    if stop.requested:
        print(f"{role} stays until its workers have ended", flush=True)
        while (left := _running(role, clients)) and time.monotonic() < stop.deadline:
            time.sleep(_POLL)
        if left:
            print(f"{role} exits while {', '.join(left)} still run", flush=True)
            return
    print(f"{role} exits: its workers have ended", flush=True)


def _running(role: Role, clients: list[tuple[str, int]]) -> list[str]:
    """Names of the clients that accept connections."""
    addresses = {f"{job}:{index}": role.cluster[job][index] for job, index in clients}
    return [name for name, address in addresses.items() if not refusal(address, 0.5)]


def tell_done(role: Role, clients: list[tuple[str, int]]) -> None:
    """Tells each task that serves that this client is done.

    A session of its own for each of them, with no other task in it: that works from every kind of
    client, and a task that has left already delays nobody.
    """
    import tensorflow as tf

    for job, index in role.tasks(*role.cluster):
        address, device = role.cluster[job][index], role.device_of(job, index)
        if (job, index) in clients or refusal(address):
            continue
        with tf.Graph().as_default(), tf.device(f"{device}/device:CPU:0"):
            flag = _completion_flag(role.job, role.index)
            tell = tf.raw_ops.AssignVariableOp(resource=flag, value=tf.constant(True))
            timeout = {"operation_timeout_in_ms": _TELL_TIMEOUT_MS}
            session = open_session(f"grpc://{address}", device, **timeout)
            try:
                session.run(tell)
            except tf.errors.OpError as error:
                print(f"{role} cannot tell {job}:{index} that it is done: {reason(error)}")


_sessions: list[Any] = []


def open_session(target: str, *tasks: str, **config: Any) -> Any:
    """A session with `tasks`, by their device names; it waits for no other task to be there.

    It is kept from being closed, which would wait for tasks that may never answer.
    """
    import tensorflow as tf

    proto = tf.compat.v1.ConfigProto(device_filters=tasks, **config)
    session = tf.compat.v1.Session(target, config=proto)
    _sessions.append(session)
    return session


def refusal(address: str, seconds: float = 2.0) -> str | None:
    """Why `address` accepts no connection, None when it does."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=seconds).close()
    except OSError as error:
        return error.strerror or str(error)
    return None


def meet(role: Role, others: list[tuple[str, int]], stop: Stop, advice: str) -> None:
    """Listens until each of `others` has been seen to listen, as they do in the same way.

    For TensorFlow's strategies, which wait for each other inside one call: no signal handler, and
    no other thread, runs meanwhile.
    """
    missing = list(others)
    with socket.socket() as own, stop.waiting(lambda: f"{waiting_text(role, missing)}; {advice}"):
        own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        own.bind(("", role.port))
        own.listen(128)
        own.setblocking(False)
        while missing and not stop.requested:
            missing = [task for task in missing if refusal(role.cluster[task[0]][task[1]], 1)]
            with contextlib.suppress(BlockingIOError):
                while True:
                    own.accept()[0].close()
            stop.wait(_POLL)


def wait_for(role: Role, task: tuple[str, int], stop: Stop, seconds: float) -> None:
    """Returns when `task` accepts connections, or this one is told to end.

    Raises:
        TrainerError: It did not for `seconds`; names it with the reason.
    """
    deadline = time.monotonic() + seconds
    address, name = role.cluster[task[0]][task[1]], role.address_of(*task)
    why = refusal(address)
    with stop.waiting(lambda: f"{role} waits for {name}: {why}"):
        while why and not stop.requested:
            if time.monotonic() > deadline:
                raise TrainerError(f"{role}: lost {name}: {why} for {seconds:.0f} s")
            stop.wait(_POLL)
            why = refusal(address)


def refusing(role: Role, tasks: list[tuple[str, int]]) -> str:
    """The first of `tasks` that accepts no connection, with address and reason; else nothing."""
    for job, index in tasks:
        if why := refusal(role.cluster[job][index], 0.5):
            return f"{role.address_of(job, index)}: {why}"
    return ""


def waiting_text(role: Role, others: list[tuple[str, int]]) -> str:
    """Whom `role` waits for: the first of `others` that refuses connections, else all of them."""
    if not others:
        return ""
    names = ", ".join(role.address_of(*task) for task in others)
    return f"{role} waits for {refusing(role, others) or f'{names}: connected, but no answer yet'}"


@contextlib.contextmanager
def naming_lost(
    role: Role, needed: list[tuple[str, int]], others: list[tuple[str, int]]
) -> Iterator[None]:
    """Names the task of `others` that was lost, in TensorFlow's errors of many kinds.

    Such an error is one about a connection, or any while one of the `needed` tasks refuses them.
    """
    import tensorflow as tf

    try:
        yield
    except (tf.errors.OpError, RuntimeError) as error:
        connection = (tf.errors.AbortedError, tf.errors.UnavailableError)
        if not isinstance(error, connection) and not refusing(role, needed):
            raise
        raise TrainerError(f"{role}: lost {lost_task(role, others, error)}") from None


def lost_task(role: Role, others: list[tuple[str, int]], error: Exception) -> str:
    """Which of `others` was lost, where it was, and what the socket said."""
    if text := refusing(role, others):
        return text
    named = named_task(error, (role.job, role.index))
    lost = [named] if named in others and named else others
    return f"{', '.join(role.address_of(*task) for task in lost)}: {socket_reason(error)}"


def _completion_flag(job: str, index: int) -> Any:
    import tensorflow as tf

    return tf.raw_ops.VarHandleOp(
        dtype=tf.bool, shape=(), shared_name=f"done/{job}:{index}", container=""
    )


def _busy(role: Role, reason: str) -> TrainerError:
    return TrainerError(f"{role}: cannot listen on {role.address}: {reason}")
