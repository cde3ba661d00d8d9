"""Devices that a task computes on: its GPUs, in turn where it has fewer than are asked for, else
logical CPUs; and the line that says so."""

import os
from collections.abc import Iterable

import tensorflow as tf


def local_devices(count: int, task: str = "") -> list[str]:
    """Names of `count` devices of this process, which is `task`."""
    return _devices(count, task, local_gpus())


def devices_of(task: str, count: int, names: Iterable[str]) -> list[str]:
    """Names of `count` devices of any task, among the `names` of all."""
    return _devices(count, task, gpus_of(task, names))


def common_devices(tasks: Iterable[str], count: int, names: Iterable[str]) -> list[str]:
    """Names of `count` devices without a task, for a call that any of `tasks` may run: GPUs that
    each of them has."""
    known = list(names)
    return _devices(count, "", min(gpus_of(task, known) for task in tasks))


def local_gpus() -> int:
    """How many GPUs this process sees."""
    return len(tf.config.list_physical_devices("GPU"))


def gpus_of(task: str, names: Iterable[str]) -> int:
    """How many GPUs a task has, among the `names` of all devices."""
    own = f"{task}/device:GPU:"
    return sum(name.replace("/replica:0", "").startswith(own) for name in names)


def described(devices: list[str], gpus: int, why: str = "it has no GPU") -> str:
    """The devices in words, of a task that has so many GPUs; `why` it has none."""
    short = list(dict.fromkeys(name.rpartition("device:")[2] for name in devices))
    text = " and ".join([", ".join(short[:-1]), short[-1]] if len(short) > 1 else short)
    if not gpus:
        return f"{text}: {why}"
    if len(short) < len(devices):
        return f"{text}{' in turn' if gpus > 1 else ''} for {len(devices)} devices: it has no more"
    if gpus > len(devices):
        return f"{text} of {gpus} GPUs: --devices={gpus} takes all"
    return text


def why_no_gpu() -> str:
    """Why this process sees no GPU."""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    if not tf.test.is_built_with_gpu_support():
        return "its TensorFlow is built without GPUs"
    if hidden in ("", "-1"):
        return f"CUDA_VISIBLE_DEVICES={hidden} hides its GPUs"
    if not any(map(os.path.exists, ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd"))):
        return "its host has no GPU driver"
    return "TensorFlow finds no GPU that it can use; TF_CPP_MIN_LOG_LEVEL=0 shows why"


def _devices(count: int, task: str, gpus: int) -> list[str]:
    kind, among = ("GPU", gpus) if gpus else ("CPU", count)
    return [f"{task}/device:{kind}:{number % among}" for number in range(count)]
