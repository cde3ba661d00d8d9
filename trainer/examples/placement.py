"""`placement`: where operations run: left to TensorFlow, pinned, moved, and impossible."""

from __future__ import annotations

from typing import Any

from trainer.errors import reason
from trainer.flags import Options

ABSENT = "/device:GPU:7"


def run(options: Options) -> int:
    """Prints five small runs, four of them of the same product of two matrices."""
    import tensorflow as tf

    from trainer.parameters import local_devices

    devices = local_devices(max(options.devices, 2))
    print(f"devices: {', '.join(devices)}", flush=True)
    _show("1. left to TensorFlow", _places(None, None, options, soft=False))
    _show(
        f"2. factors pinned to {devices[0]}, product to {devices[1]}",
        _places(devices[0], devices[1], options, soft=False),
    )
    _show(
        f"3. product pinned to {ABSENT}, which is not there, with soft placement: it is moved",
        _places(devices[0], ABSENT, options, soft=True),
    )
    print(f"4. product pinned to {ABSENT}, without soft placement: it is refused")
    try:
        _places(devices[0], ABSENT, options, soft=False)
    except tf.errors.InvalidArgumentError as error:
        print(f"  {reason(error)}", flush=True)
    print("5. an operation of GPUs, pinned to a CPU, which has no kernel for it: refused as well")
    try:
        _without_kernel(devices[0])
    except (tf.errors.InvalidArgumentError, tf.errors.NotFoundError) as error:
        print(f"  {reason(error)}", flush=True)
    return 0


def _without_kernel(device: str) -> None:
    """Asks a CPU for an operation that only GPUs have."""
    import tensorflow as tf

    with tf.Graph().as_default(), tf.compat.v1.Session() as session, tf.device(device):
        session.run(
            tf.raw_ops.NcclAllReduce(
                input=tf.zeros(2), reduction="sum", num_devices=1, shared_name="sum"
            )
        )


def _places(
    factors: str | None, product: str | None, options: Options, soft: bool
) -> tuple[dict[str, str], Any]:
    """The device that each operation of the product ran on, and the product."""
    import tensorflow as tf

    from trainer.examples import tracing

    config = tf.compat.v1.ConfigProto(
        allow_soft_placement=soft,
        log_device_placement=True,  # TensorFlow's own lines, at TF_CPP_MIN_LOG_LEVEL=0
        device_count={"CPU": max(options.devices, 2)},
    )
    # Else the product of two constants is computed once, and never runs.
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = -1
    with tf.Graph().as_default(), tf.compat.v1.Session(config=config) as session:
        with tf.device(factors):
            left = tf.constant([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], name="left")
            right = tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], name="right")
        with tf.device(product):
            result: Any = tf.matmul(left, right, name="product")
        return tracing.executed(session, result), session.run(result).tolist()


def _show(title: str, ran: tuple[dict[str, str], Any]) -> None:
    from trainer.examples import tracing

    print(title)
    print(tracing.table(ran[0]))
    print(f"  the product is {ran[1]}", flush=True)
