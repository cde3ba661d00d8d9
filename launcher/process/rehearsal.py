"""Rehearsal of a launch in memory, by a launcher process that has no order yet.

Most of what a launch takes after its imports is done once a process: models of the cluster file, of
records and of frames are compiled, the agent's modules packed, modules imported that only a launch
needs. A process that waits does it beforehand. No host is contacted, nothing is written.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import MAGIC_NUMBER
from pathlib import Path

from ..cluster.read import loads
from ..hosts import bootstrap, frames
from ..run import events as ev
from ..run.machine import RunStateMachine
from ..store.stream import encode

_CLUSTER = """
name = "rehearsal"
[jobs.worker]
tasks = ["localhost:auto"]
[run]
command = ["true"]
workdir = ""
"""
_OF_EVERY_RUN = ("launcher.plan.mpi",)
_OF_OTHER_HOSTS = (
    "launcher.files.collecting",
    "launcher.files.trees",
    "launcher.hosts.programs",
)
"""What a launcher imports for hosts beside this machine (`launcher`)."""


def make_ready(waits: Callable[[], bool], *, ssh: bool) -> None:
    """Does what every launch does first, or (with `ssh`) every launch on other hosts, step by step,
    for as long as the process `waits`."""
    modules = (*_OF_EVERY_RUN, *(_OF_OTHER_HOSTS if ssh else ()))
    steps: list[Callable[[], object]] = [_begin_run, frames.compile_messages, _pack]
    steps += [partial(import_module, name) for name in modules]
    for step in steps:
        if not waits():
            return
        try:
            step()
        except Exception:  # a launch that needs it says what is wrong
            traceback.print_exc()


def _begin_run() -> None:
    """Reads a cluster file, plans a run of it, and writes its first records down nowhere."""
    cluster = loads(_CLUSTER, "rehearsal.toml", Path("/"), for_launch=True)
    machine = RunStateMachine(cluster, "rehearsal", 0.0)
    machine.handle(ev.Begin(0.0))
    for record in machine.data.pop_changed(0.0):
        encode(record)


def _pack() -> None:
    for pack in (bootstrap.payload, bootstrap.program_payload):
        pack({}, MAGIC_NUMBER)
