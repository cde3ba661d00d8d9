"""TensorFlow, and the trainer's modules that import it, when a test first uses one.

Each worker of `make test` imports all tests, and most of them run none of these.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any


class _Module:
    """A module that is imported when something in it is looked up, or replaced."""

    def __init__(self, name: str) -> None:
        self.__dict__["_name"] = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name.startswith("_pytest"):  # pytest asks all that a test names
            raise AttributeError(name)
        return getattr(import_module(self._name), name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(import_module(self._name), name, value)


__all__ = [
    "checkpoint",
    "convolution",
    "devices",
    "downpour",
    "evaluate",
    "inputs",
    "model",
    "parameters",
    "placer",
    "server",
    "tf",
    "tfrecord",
]

if TYPE_CHECKING:
    import tensorflow as tf

    from trainer import (
        checkpoint,
        convolution,
        devices,
        downpour,
        evaluate,
        inputs,
        model,
        parameters,
        server,
    )
    from trainer.data import tfrecord
    from trainer.tf1 import placer
else:
    tf = _Module("tensorflow")
    tfrecord, placer = _Module("trainer.data.tfrecord"), _Module("trainer.tf1.placer")
    globals().update({name: _Module(f"trainer.{name}") for name in set(__all__) - set(globals())})
