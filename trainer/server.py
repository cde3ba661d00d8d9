"""A task's TensorFlow server, and what a task does that only serves."""

from __future__ import annotations

import os
import pathlib
import socket
import time
from typing import TYPE_CHECKING, Any

from trainer import stop
from trainer.errors import TrainerError, reason

if TYPE_CHECKING:
    from trainer.flags import Options
    from trainer.role import Role
    from trainer.stop import Stop

_ESTABLISHED = "01"
_POLL = 0.05


def check_port(role: Role) -> None:
    """Fails early, before TensorFlow's import, when this task's port is taken.

    Raises:
        TrainerError: Names host, port and reason.
    """
    with socket.socket() as probe:
        # As gRPC does: connections of an earlier task in TIME_WAIT are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", role.port))
            probe.listen(1)
        except OSError as error:
            raise _busy(role, error.strerror or str(error)) from None


def start(role: Role, options: Options, serve_only: bool = False) -> Any:
    """Starts this task's `tf.distribute.Server`; a task that only serves takes no GPU.

    Raises:
        TrainerError: The port was taken in the meantime.
    """
    import tensorflow as tf

    devices = {"GPU": 0} if serve_only else {"CPU": options.devices}
    config = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=threads(role, options),
        device_count=devices,
        allow_soft_placement=True,
    )
    config.gpu_options.allow_growth = True
    cluster = tf.train.ClusterSpec({job: list(tasks) for job, tasks in role.cluster.items()})
    try:
        server = tf.distribute.Server(
            cluster, job_name=role.job, task_index=role.index, config=config
        )
    except tf.errors.OpError as error:
        raise _busy(role, reason(error)) from None
    print(f"{role} listens on {role.address}", flush=True)
    return server


def threads(role: Role, options: Options) -> int:
    """Threads one operation may use: `--threads`, else this task's share of this machine's cores.

    Tasks that each use all cores slow each other down.
    """
    return options.threads or max(1, len(os.sched_getaffinity(0)) // role.neighbours)


def run_serving(role: Role, options: Options) -> int:
    """The whole life of a task that only serves; returns its exit status."""

    def work(stop: Stop) -> None:
        start(role, options, serve_only=True)
        serve(role, stop)

    return stop.run(work, options.grace)


def serve(role: Role, stop: Stop) -> None:
    """Waits in Python for TERM, then leaves last.

    Not `server.join()`: no signal handler ever runs inside it. When all tasks get TERM at once,
    the chief still needs the variables for its last checkpoint, so this task stays until nobody is
    connected to it any more.
    """
    stop.worth_waiting = stop.expected = True
    stop.wait()
    print(f"{role} stays until its workers have gone", flush=True)
    while connections(role.port) and time.monotonic() < stop.deadline:
        time.sleep(_POLL)
    left = connections(role.port)
    print(f"{role} leaves; {left or 'no'} connections left", flush=True)


def connections(port: int) -> int:
    """How many TCP connections to the local `port` are established, from `/proc/net/tcp*`."""
    count = 0
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        path = pathlib.Path(table)
        if not path.exists():
            continue
        for line in path.read_text().splitlines()[1:]:
            _, local, _, state = line.split()[:4]
            count += state == _ESTABLISHED and int(local.rpartition(":")[2], 16) == port
    return count


def _busy(role: Role, reason: str) -> TrainerError:
    return TrainerError(f"{role}: cannot listen on {role.address}: {reason}")
