"""One batch a device: towers that share weights, and the mean of their gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

if TYPE_CHECKING:
    from trainer.model import Model


def local_devices(count: int, task: str = "") -> list[str]:
    """Names of `count` devices of `task`: its GPUs where there are as many, else CPU devices.

    Logical CPU devices exist only where the session or server was configured for them.
    """
    gpus = len(tf.config.list_physical_devices("GPU"))
    kind = "GPU" if gpus >= count else "CPU"
    return [f"{task}/device:{kind}:{number}" for number in range(count)]


def mean(values: list[Any]) -> Any:
    """The mean of tensors of one shape; the tensor itself when there is only one."""
    return values[0] if len(values) == 1 else tf.add_n(values) / len(values)


def gradients(
    model: Model,
    devices: list[str],
    weights: list[Any],
    batches: list[tuple[Any, Any]],
    l2: float,
    scale: Any = 1.0,
) -> tuple[list[Any], list[list[Any]]]:
    """Each device's loss on its own batch, and its gradients, in the order of `devices`.

    The gradients are those of a whole tower: average them, or apply them one by one. They are those
    of the loss times `scale`: a factor at this end is free, at the other it is one more pass over
    all weights.
    """
    losses, tower_gradients = [], []
    for device, (images, labels) in zip(devices, batches, strict=True):
        with tf.device(device):
            # One copy a device: otherwise each use of a weight would be transferred again.
            copies = [tf.identity(weight) for weight in weights]
            loss = model.loss(copies, images, labels, l2)
            losses.append(loss)
            tower_gradients.append(tf.gradients(scale * loss, copies))
    return losses, tower_gradients
