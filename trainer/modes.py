"""The modes of `python -m trainer`: one table, read without importing any of them."""

import importlib
import os
from argparse import Namespace
from collections.abc import Mapping
from typing import Any, NamedTuple

from trainer import data, role, stop
from trainer.exceptions import UsageError
from trainer.role import Role
from trainer.stop import Stop

CLUSTER = ("role", "data", "training", "checkpoints")
GRAPH = (*CLUSTER, "devices")
ASYNC = (*GRAPH, "calls of the session", "Downpour SGD", "a slow worker")
SYNC = (*GRAPH, "synchronous updates", "a slow worker")
TOWERS = ("data", "training", "devices", "checkpoints", "towers")
PS = ("ps", "worker")


class Context(NamedTuple):
    """One task's part in a training; `dataset` is None where the mode takes no data."""

    role: Role
    options: Namespace
    dataset: Any
    stop: Stop


class Mode(NamedTuple):
    """One mode.

    Attributes:
        module: Has `train(context)` where the mode `needs` jobs, else `run(options)`, which returns
            the exit status.
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
    defaults: Mapping[str, object] = {}


_MODES = (
    Mode("classic", "classic", "the program of the tutorials, in one file", ("classic",)),
    Mode("async", "asynchronous", "between-graph replication, asynchronous updates", ASYNC, PS),
    Mode("sync", "synchronous", "between-graph replication, synchronous updates", SYNC, PS),
    Mode(
        "in-graph",
        "in_graph",
        "one client computes on the devices of all workers",
        GRAPH,
        PS,
        "chief",
    ),
    Mode(
        "towers",
        "towers",
        "one machine, a tower on each device",
        TOWERS,
        defaults={"log-every": 10},
    ),
    Mode(
        "ps-strategy",
        "ps_strategy",
        "ParameterServerStrategy: a chief schedules steps on workers",
        GRAPH,
        ("chief", *PS),
        "chief",
    ),
    Mode(
        "all-reduce",
        "all_reduce",
        "MultiWorkerMirroredStrategy: all-reduce, no ps",
        GRAPH,
        ("worker",),
    ),
    Mode("evaluate", "evaluate", "test each checkpoint of a directory", ("following",)),
    Mode("tf1", "tf1", "run a program for TensorFlow 1 unchanged: tf1 SCRIPT ARGUMENTS…"),
    Mode("convert", "convert", "convert IDX files to TFRecord files, or back", ("conversion",)),
    Mode("placement", "examples.placement", "on which devices operations run", ("devices",)),
    Mode("tour hello", "examples.hello", "the smallest cluster: one server, one session"),
    Mode("tour two-tasks", "examples.two_tasks", "one job of two tasks, each a client", ("role",)),
    Mode(
        "tour shared-variable", "examples.shared_variable", "variables that sessions share by name"
    ),
    Mode("tour trace", "examples.trace", "on which task each node of a graph ran", ("role",), PS),
    Mode("tour graphs", "examples.graphs", "two clients, two graphs, one state", ("role",), PS),
    Mode(
        "tour initialise",
        "examples.initialise",
        "one worker initialises the variables, the others wait",
        ("role",),
        PS,
    ),
    Mode(
        "tour counter",
        "examples.counter",
        "lost updates of a variable, and how to avoid them",
        ("role",),
        PS,
    ),
    Mode("tour data-service", "examples.data_service", "the tf.data service", ("tf.data service",)),
    Mode("tour keras-fit", "examples.keras_fit", "a Keras model on several workers", ("data",)),
)
MODES = {mode.name: mode for mode in _MODES}


def run(mode: Mode, options: Namespace) -> int:
    """Runs `mode` as this process's task; returns the exit status.

    TensorFlow's import takes seconds: whatever can be wrong without it is said before.
    """
    if not mode.needs:
        status: int = importlib.import_module(f"trainer.{mode.module}").run(options)
        return status
    me = role.resolve(options, os.environ, mode.needs)
    if "ps" in me.cluster and "ps" not in mode.needs:
        raise UsageError("this mode has no ps; leave it out of the cluster")
    needed, workers = getattr(options, "replicas_to_aggregate", None) or 0, len(me.clients)
    if needed > workers:
        raise UsageError(f"--replicas-to-aggregate={needed}, but the cluster has {workers} workers")
    slow, count = getattr(options, "slow_worker", None), len(me.tasks("worker"))
    if slow is not None and slow >= count:
        raise UsageError(f"--slow-worker={slow}, but the cluster has {count} worker tasks")
    me.check_port()
    clients = [me.chief] if mode.clients == "chief" else me.clients

    def work(stop: Stop) -> None:
        from trainer import server  # imports TensorFlow

        if me.task not in clients:
            server.serve(me, options, clients, stop)
            return
        dataset = data.load(options.data) if "data" in mode.flags else None
        importlib.import_module(f"trainer.{mode.module}").train(Context(me, options, dataset, stop))
        if not stop.requested:
            server.announce_done(me, clients, stop)

    return stop.run(work, options.grace)
