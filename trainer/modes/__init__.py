"""The modes of `python -m trainer`, by name, without importing any of them.

A mode is a module with `run(options) -> int`, its exit status. It may import TensorFlow, so it is
imported only when its flags have been read and found right.
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
        Mode(
            "tour hello",
            "trainer.tours.hello",
            "the smallest cluster: one local server, one session",
            (),
        ),
        Mode(
            "tour two-tasks",
            "trainer.tours.two_tasks",
            "one job of two tasks, each a client: who waits, and where operations run",
            ("role",),
        ),
        Mode(
            "tour shared-variable",
            "trainer.tours.shared_variable",
            "plain sessions share no variable, sessions on a cluster do, by name",
            (),
        ),
        Mode(
            "tour trace",
            "trainer.tours.trace",
            "on which task each node ran, before and after variables are pinned",
            ("role",),
        ),
        Mode(
            "tour graphs",
            "trainer.tours.graphs",
            "two clients, two graphs: the state is shared, the graph is not",
            ("role",),
        ),
        Mode(
            "tour initialise",
            "trainer.tours.initialise",
            "a worker waits until the other has initialised",
            ("role",),
        ),
        Mode(
            "tour counter",
            "trainer.tours.counter",
            "two workers increment one variable: lost updates, and none",
            ("role",),
        ),
    )
}
