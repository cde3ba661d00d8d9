"""Parts of all tours: points that tasks wait for, and the devices that operations ran on."""

import time
from typing import Any

import tensorflow as tf

from trainer import server
from trainer.exceptions import UsageError
from trainer.modes import Context
from trainer.role import Role

_POLL = 0.05
PS = "/job:ps/task:0"


class Barrier:
    """Named points that all tasks see, as flags on the task at `device`."""

    def __init__(self, role: Role, target: str, device: str = PS) -> None:
        self._device = f"{device}/device:CPU:0"
        self._graph = tf.Graph()
        with self._graph.as_default():
            self._session = server.open_session(target, role.device, device)

    def reach(self, name: str) -> None:
        """Tells all that this task has come to `name`."""
        with self._graph.as_default(), tf.device(self._device):
            self._session.run(server.SharedFlag(f"barrier/{name}").set)

    def wait(self, *names: str) -> None:
        """Returns when all of `names` have been reached."""
        with self._graph.as_default(), tf.device(self._device):
            reached = [server.SharedFlag(f"barrier/{name}").is_set for name in names]
        while not all(self._session.run(reached)):
            time.sleep(_POLL)


def begin(context: Context) -> tuple[Role, str, Barrier]:
    """Starts the server of one of the two workers of a tour; its target, and their barrier."""
    role, options, *_ = context
    if len(role.cluster["worker"]) != 2:
        raise UsageError("this tour is of two workers")
    target = server.start(role, options)
    return role, target, Barrier(role, target)


def executed(session: Any, fetches: Any, feed: dict[Any, Any] | None = None) -> dict[str, str]:
    """Runs `fetches`; the device of each operation that ran, from TensorFlow's own full trace."""
    options = tf.compat.v1.RunOptions(trace_level=tf.compat.v1.RunOptions.FULL_TRACE)
    metadata = tf.compat.v1.RunMetadata()
    session.run(fetches, feed, options=options, run_metadata=metadata)
    names = {operation.name for operation in session.graph.get_operations()}
    return {
        name: device.device
        for device in metadata.step_stats.dev_stats
        for node in device.node_stats
        if (name := node.node_name.split(":")[0]) in names
    }


def table(places: dict[str, str]) -> str:
    """One line an operation, in the order of their names."""
    width = max(map(len, places), default=0)
    return "\n".join(f"  {name:{width}}  {places[name]}" for name in sorted(places))


def traced(**options: Any) -> Any:
    """Session options with which all operations run, and TensorFlow logs where they do.

    Otherwise the product of two constants is computed once, and never runs. TensorFlow's lines
    come at TF_CPP_MIN_LOG_LEVEL=0.
    """
    config = tf.compat.v1.ConfigProto(log_device_placement=True, **options)
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = -1
    return config
