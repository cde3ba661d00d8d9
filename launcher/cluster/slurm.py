"""`[slurm]` table of a cluster file: the allocation whose nodes are the cluster's hosts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from .addresses import SshDestination
from .engine_table import EngineTable, option_list, option_rule
from .fields import Destination, Gpus, Key, Rule, text, wrong

_TIME = re.compile(r"(?:\d{1,5}-\d{1,2}(?::\d{1,2}){0,2}|\d{1,7}(?::\d{1,2}){0,2})")
_PARTITION = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.-]*(?:,[A-Za-z0-9_.][A-Za-z0-9_.-]*)*")
_OURS = {
    "--array": "one run is one job",
    "--error": "the agents report errors",
    "--export": "the environment is passed on without env_from",
    "--gpus-per-node": "write gpus in [slurm]",
    "--input": "tfmux sends the script",
    "--job-name": "the run is found by it",
    "--nodes": "write nodes in [slurm]",
    "--no-kill": "it is always given",
    "--no-requeue": "it is always given",
    "--ntasks": "each node has one agent",
    "--ntasks-per-node": "each node has one agent",
    "--output": "the agents report errors",
    "--parsable": "it is always given",
    "--partition": "write partition in [slurm]",
    "--requeue": "a run that has ended must not start again",
    "--time": "write time in [slurm]",
    "--wait": "tfmux waits by itself",
    "--wrap": "tfmux sends the script",
}


def _time(value: Any) -> str:
    if not isinstance(value, str) or not _TIME.fullmatch(value):
        raise wrong('write a time in quotes, as sbatch does: "30" (minutes), "04:00:00", "2-12"')
    return value


def _partition(value: Any) -> str:
    if not _PARTITION.fullmatch(text(value)):
        raise wrong("write the partition's name; several with commas")
    return text(value)


TimeLimit = Annotated[str, Rule(_time, {"type": "string", "pattern": f"^(?:{_TIME.pattern})$"})]
Partition = Annotated[
    str, Rule(_partition, {"type": "string", "pattern": f"^(?:{_PARTITION.pattern})$"})
]
Option = Annotated[str, option_rule("sbatch", "--account=proj42", _OURS)]
Options = Annotated[tuple[Option, ...], option_list("--account=proj42", "--constraint=a100")]


class Slurm(EngineTable):
    """`[slurm]`: the allocation whose nodes are the hosts `node0`, `node1`, …"""

    table = "slurm"
    label = "Slurm"
    reached_by = "srun"
    required: ClassVar[Mapping[str, str]] = {
        "time": 'the time limit is missing: write such as time = "04:00:00"'
    }

    time: Annotated[
        TimeLimit,
        Key(
            'time limit, as `sbatch` takes it: `"30"` (minutes), `"04:00:00"`, `"2-12"` (days and '
            "hours). It is required: the last thing that frees the nodes when all else fails"
        ),
    ]
    partition: Annotated[
        Partition | None, Key("partition, or several with commas", "the site's default")
    ] = None
    gpus: Annotated[
        Gpus | None, Key("GPUs on each node (`--gpus-per-node`), split among its tasks", "none")
    ] = None
    login: Annotated[
        Destination | None,
        Key(
            "`user@host:port`, or an alias of `~/.ssh/config`, of a machine that has `sbatch`. "
            "Everything then goes through it",
            "this machine",
        ),
    ] = None
    options: Annotated[
        Options,
        Key(
            'further options of `sbatch`, such as `["--account=proj42", "--constraint=a100"]`. '
            "They are passed on as they are"
        ),
    ] = ()

    @property
    def relay(self) -> SshDestination | None:
        return self.login

    @property
    def node_gpus(self) -> int | None:
        return self.gpus
