"""Names of the devices that a task computes on: GPUs where it has enough, else logical CPUs."""

from collections.abc import Iterable

import tensorflow as tf


def local_devices(count: int, task: str = "") -> list[str]:
    """Names of `count` devices of this process, which is `task`: GPUs where there are as many,
    else logical CPUs."""
    return _devices(count, task, len(tf.config.list_physical_devices("GPU")))


def devices_of(task: str, count: int, names: Iterable[str]) -> list[str]:
    """Names of `count` devices of any task, among the `names` of all: GPUs where that task has as
    many, else logical CPUs."""
    return _devices(count, task, _gpus(task, names))


def common_devices(tasks: Iterable[str], count: int, names: Iterable[str]) -> list[str]:
    """Names of `count` devices without a task, for a call that any of `tasks` may run: GPUs where
    each of them has as many, else logical CPUs."""
    known = list(names)
    return _devices(count, "", min(_gpus(task, known) for task in tasks))


def _gpus(task: str, names: Iterable[str]) -> int:
    own = f"{task}/device:GPU:"
    return sum(name.replace("/replica:0", "").startswith(own) for name in names)


def _devices(count: int, task: str, gpus: int) -> list[str]:
    kind = "GPU" if gpus >= count else "CPU"
    return [f"{task}/device:{kind}:{number}" for number in range(count)]
