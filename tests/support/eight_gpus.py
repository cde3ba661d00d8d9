"""`python -m trainer` as on a machine with eight GPUs: TensorFlow is told that they are there."""

from __future__ import annotations

import runpy

import tensorflow as tf

if __name__ == "__main__":
    gpus = [
        tf.config.PhysicalDevice(f"/physical_device:GPU:{number}", "GPU") for number in range(8)
    ]
    tf.config.list_physical_devices = lambda kind=None: gpus if kind == "GPU" else []
    runpy.run_module("trainer", run_name="__main__", alter_sys=True)
