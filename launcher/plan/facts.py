"""What a run's plan is made from beside the cluster file. It is part of a run's record, which is
read where no plan is made: this imports little."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import NamedTuple

from ..frozen import frozen
from ..ids import TaskId


@frozen
class HostFacts:
    """Facts that a host's agent reports at launch; what is empty is not known yet."""

    home: str = ""
    """The home directory."""
    workdir: str = ""
    """The folder with the copy of `workdir`; on this machine `workdir` itself."""
    trainer: str = ""
    """The folder with the bundled trainer package, put last on `PYTHONPATH`."""
    tools: str = ""
    """The folder with the scripts of `on_host`."""
    gpus: int = 0
    """Number of its GPUs."""
    ports: Mapping[TaskId, int] = field(default_factory=dict)
    """The ports picked for `auto`."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """The host's own values of the variables in `environment.EXTENDED`."""
    proxied: bool = False
    """A variable there names a proxy; its value may hold a password, and is not recorded."""
    address: str = ""
    """Its `HostName` in `ssh_config`, where that is what the other hosts know it by."""


class Resume(NamedTuple):
    """The run that another one goes on from."""

    run_id: str
    """The run that has written the checkpoint."""
    logdir_run_id: str
    """`{run_id}` in its log directory: the id of the first of the runs that went on in it."""
