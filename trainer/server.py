"""TensorFlow server of a task, and tasks that only serve: a ps, a plain worker."""

import os
import time
from argparse import Namespace
from typing import Any

import tensorflow as tf

from trainer import peers
from trainer.exceptions import reason
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
    # A thread without work spins for a while before it sleeps: it takes the core of a neighbour.
    config.experimental.disable_thread_spinning = role.neighbours > _cores()
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
    return int(options.threads) or max(1, _cores() // role.neighbours)


def _cores() -> int:
    return len(os.sched_getaffinity(0))


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
            left = [task for task in left if not peers.refusal(role.address_of(task), 0.5)]
            time.sleep(_POLL)
        if left:
            print(f"{role} exits while {role.label(*left)} still run")
            return
    print(f"{role} exits: its {whose} ended")


def announce_done(role: Role, clients: list[Task], stop: Stop) -> None:
    """Tells each task that serves that this client is done; one that is slow to answer again."""
    deadline = time.monotonic() + _TELL_SECONDS
    left = [task for task in role.tasks() if task not in clients]
    with stop.waiting(lambda: peers.waiting_text(role, left)):
        while left := [task for task in left if not peers.refusal(role.address_of(task))]:
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
