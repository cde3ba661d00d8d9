"""`placement`: where operations run: left to TensorFlow, pinned, moved, and impossible."""

from argparse import Namespace
from typing import Any

import tensorflow as tf

from trainer.devices import described, local_devices, local_gpus, why_no_gpu
from trainer.examples.tour import executed, table, traced
from trainer.exceptions import reason

ABSENT = "/device:GPU:7"


def run(options: Namespace) -> int:
    """Prints five small runs, four of them of the same product of two matrices."""
    devices = list(dict.fromkeys(local_devices(max(options.devices, 2))))
    first, second = [*devices, "/device:CPU:0"][:2]
    text = described(devices, local_gpus(), why_no_gpu())
    print(f"devices: {text}")
    print("1. left to TensorFlow")
    _multiply(None, None, len(devices))
    print(f"2. factors pinned to {first}, product to {second}")
    _multiply(first, second, len(devices))
    print(f"3. product pinned to {ABSENT}, which is not there, with soft placement: it is moved")
    _multiply(first, ABSENT, len(devices), soft=True)
    print(f"4. product pinned to {ABSENT}, without soft placement: it is refused")
    try:
        _multiply(first, ABSENT, len(devices))
    except tf.errors.InvalidArgumentError as error:
        print(f"  {reason(error)}")
    print("5. an operation of GPUs, pinned to a CPU, which has no kernel for it: refused as well")
    try:
        _sum_on_gpus(first)
    except (tf.errors.InvalidArgumentError, tf.errors.NotFoundError) as error:
        print(f"  {reason(error)}")
    return 0


def _multiply(factors: str | None, product: str | None, cpus: int, soft: bool = False) -> None:
    """Multiplies two matrices on these devices; prints where each operation ran."""
    config = traced(allow_soft_placement=soft, device_count={"CPU": cpus})
    with tf.Graph().as_default(), tf.compat.v1.Session(config=config) as session:
        with tf.device(factors):
            left = tf.constant([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], name="left")
            right = tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], name="right")
        with tf.device(product):
            result: Any = tf.matmul(left, right, name="product")
        print(table(executed(session, result)))
        print(f"  the product is {session.run(result).tolist()}")


def _sum_on_gpus(device: str) -> None:
    """Asks for an operation that only GPUs have."""
    names = {"reduction": "sum", "num_devices": 1, "shared_name": "sum"}
    with tf.Graph().as_default(), tf.compat.v1.Session() as session, tf.device(device):
        session.run(tf.raw_ops.NcclAllReduce(input=tf.zeros(2), **names))
