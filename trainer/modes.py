"""The modes of `python -m trainer`: one table, read without importing any of them."""

from __future__ import annotations

import dataclasses
import importlib
import os
from typing import TYPE_CHECKING

from trainer import data, role, server, stop
from trainer.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainer.flags import Options

CLUSTER = ("role", "data", "training", "logdir")


@dataclasses.dataclass(frozen=True)
class Mode:
    """One mode.

    Attributes:
        module: Has `train(role, options, dataset, stop)` where the mode `needs` jobs, else
            `run(options)`, which returns the exit status.
        flags: The groups of flags that it takes, see `trainer.flags`.
        needs: The jobs that its cluster must have.
        clients: Who computes: every worker, or the chief alone, for whom the others only serve.
        defaults: Of flags, where they differ from those of the other modes.
    """

    name: str
    module: str
    summary: str
    flags: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    clients: str = "workers"
    defaults: Mapping[str, object] = dataclasses.field(default_factory=dict)


PS = ("ps", "worker")
_MODES = (
    Mode(
        "classic",
        "trainer.classic",
        "the program of the tutorials in one file: feed_dict, MonitoredTrainingSession",
        ("classic",),
    ),
    Mode(
        "async",
        "trainer.asynchronous",
        "between-graph replication, gradients applied as they come",
        (*CLUSTER, "devices", "calls", "downpour", "delay"),
        PS,
    ),
    Mode(
        "sync",
        "trainer.synchronous",
        "between-graph replication, one update from the gradients of several workers",
        (*CLUSTER, "devices", "calls", "sync", "delay"),
        PS,
    ),
    Mode(
        "in-graph",
        "trainer.in_graph",
        "one client builds towers on all workers' devices and feeds them",
        (*CLUSTER, "devices", "calls"),
        PS,
        "chief",
    ),
    Mode(
        "towers",
        "trainer.towers",
        "one machine, a tower on each of its devices, variables on the CPU",
        ("data", "training", "devices", "logdir", "towers"),
        defaults={"log-every": 10},
    ),
    Mode(
        "ps-strategy",
        "trainer.ps_strategy",
        "ParameterServerStrategy: a chief schedules steps on workers, TensorFlow 2's way",
        (*CLUSTER, "devices", "calls"),
        ("chief", *PS),
        "chief",
    ),
    Mode(
        "all-reduce",
        "trainer.all_reduce",
        "MultiWorkerMirroredStrategy: no ps, workers average their gradients",
        (*CLUSTER, "devices"),
        ("worker",),
    ),
    Mode(
        "evaluate",
        "trainer.evaluate",
        "follows a checkpoint directory and tests the moving averages of each",
        ("following", "data"),
    ),
    Mode(
        "placement",
        "trainer.examples.placement",
        "on which device operations run: left alone, pinned, moved, impossible",
        ("devices",),
    ),
    Mode("convert", "trainer.convert", "IDX to TFRecord files and back", ("converting",)),
    Mode(
        "tour hello",
        "trainer.examples.hello",
        "the smallest cluster: one local server, one session",
    ),
    Mode(
        "tour two-tasks",
        "trainer.examples.two_tasks",
        "one job of two tasks, each a client: who waits, and where operations run",
        ("role",),
    ),
    Mode(
        "tour shared-variable",
        "trainer.examples.shared_variable",
        "plain sessions share no variable, sessions on a cluster do, by name",
    ),
    Mode(
        "tour trace",
        "trainer.examples.trace",
        "on which task each node ran, before and after variables are pinned",
        ("role",),
        PS,
    ),
    Mode(
        "tour graphs",
        "trainer.examples.graphs",
        "two clients, two graphs: the state is shared, the graph is not",
        ("role",),
        PS,
    ),
    Mode(
        "tour initialise",
        "trainer.examples.initialise",
        "a worker waits until the other has initialised",
        ("role",),
        PS,
    ),
    Mode(
        "tour data-service",
        "trainer.examples.data_service",
        "an input pipeline that runs on other tasks, by tf.data's service",
        ("service",),
    ),
    Mode(
        "tour keras-fit",
        "trainer.examples.keras_fit",
        "a Keras model on several workers: fit by legacy Keras, a loop by Keras 3",
        ("data",),
    ),
    Mode(
        "tour counter",
        "trainer.examples.counter",
        "two workers increment one variable: lost updates, and none",
        ("role",),
        PS,
    ),
)
MODES = {mode.name: mode for mode in _MODES}


def run(mode: Mode, options: Options) -> int:
    """Runs `mode` as this process's task; returns the exit status.

    Raises:
        TrainerError: What is wrong, in one line.
    """
    try:
        return _run(mode, options)
    except Exception as error:
        if type(error).__name__ == "DataLossError" and options.data:
            data.load(options.data, in_memory=True)  # says which file is broken
        raise


def _run(mode: Mode, options: Options) -> int:
    """TensorFlow's import takes seconds: whatever can be wrong without it is said before."""
    if not mode.needs:
        status: int = importlib.import_module(mode.module).run(options)
        return status
    me = role.resolve(options, os.environ, mode.needs)
    if "ps" in me.cluster and "ps" not in mode.needs:
        raise UsageError("this mode has no ps; leave it out of the cluster")
    needed = getattr(options, "replicas_to_aggregate", None) or 0
    if needed > me.trainers:
        raise UsageError(
            f"--replicas-to-aggregate={needed}, but the cluster has {me.trainers} workers"
        )
    server.check_port(me)
    clients = [me.chief] if mode.clients == "chief" else me.clients
    if (me.job, me.index) not in clients:
        return stop.run(lambda stop: server.serve(me, options, clients, stop), options.grace)
    dataset = data.load(options.data) if "data" in mode.flags else None

    def work(stop: stop.Stop) -> None:
        importlib.import_module(mode.module).train(me, options, dataset, stop)
        if not stop.requested:
            server.tell_done(me, clients)

    return stop.run(work, options.grace)
