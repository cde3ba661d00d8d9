"""The modes of `python -m trainer`, by name, without importing any of them.

A mode is a module with `run(options) -> None`; it may import TensorFlow, so it is imported only
when its flags have been read and found right.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Mode:
    """A mode: its name, the module that runs it, and the groups of flags it takes."""

    name: str
    module: str
    summary: str
    flags: tuple[str, ...]


MODES = {
    mode.name: mode
    for mode in (
        Mode(
            "async",
            "trainer.modes.async_",
            "between-graph replication, gradients applied as they come",
            ("role", "data", "training", "devices", "downpour", "logdir"),
        ),
        Mode(
            "sync",
            "trainer.modes.sync",
            "between-graph replication, one update from the gradients of several workers",
            ("role", "data", "training", "devices", "sync", "logdir"),
        ),
        Mode(
            "in-graph",
            "trainer.modes.in_graph",
            "one client builds towers on all workers' devices and feeds them",
            ("role", "data", "training", "devices", "logdir"),
        ),
        Mode(
            "towers",
            "trainer.modes.towers",
            "one machine, a tower on each of its devices, variables on the CPU",
            ("data", "training", "devices", "logdir", "towers"),
        ),
        Mode(
            "ps-strategy",
            "trainer.modes.ps_strategy",
            "ParameterServerStrategy: a chief schedules steps on workers, TensorFlow 2's way",
            ("role", "data", "training", "logdir"),
        ),
        Mode(
            "all-reduce",
            "trainer.modes.all_reduce",
            "MultiWorkerMirroredStrategy: no ps, workers average their gradients",
            ("role", "data", "training", "logdir"),
        ),
        Mode(
            "evaluate",
            "trainer.modes.evaluate",
            "follows a checkpoint directory and tests the moving averages of each",
            ("following", "data"),
        ),
        Mode(
            "placement",
            "trainer.modes.placement",
            "on which device operations run: left alone, pinned, moved, impossible",
            ("devices",),
        ),
        Mode(
            "convert",
            "trainer.modes.convert",
            "IDX to TFRecord files and back",
            ("converting",),
        ),
    )
}
