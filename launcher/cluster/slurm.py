"""`[slurm]` table of a cluster file: the allocation whose nodes are the cluster's hosts.

The nodes are called `node0`, `node1`, … in the file. Until Slurm has given them they are hosts that
nothing reaches.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict

from .fields import Destination, Gpus, Key, Nodes, Python, Rule, text, wrong

_TIME = re.compile(r"(?:\d{1,5}-\d{1,2}(?::\d{1,2}){0,2}|\d{1,7}(?::\d{1,2}){0,2})")
_PARTITION = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.-]*(?:,[A-Za-z0-9_.][A-Za-z0-9_.-]*)*")
_OPTION = re.compile(r"--[a-z][a-z0-9-]*(?:=.*)?", re.DOTALL)
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


def _option(value: Any) -> str:
    option = text(value)
    if not _OPTION.fullmatch(option) or not option.isprintable():
        raise wrong('write an option of sbatch as one text, such as "--account=proj42"')
    name = option.partition("=")[0]
    if why := _OURS.get(name):
        raise wrong(f"{name} is tfmux's own ({why}): remove it")
    return option


def _options(value: Any) -> Any:
    if not isinstance(value, list | tuple):
        raise wrong('write a list, such as ["--account=proj42", "--constraint=a100"]')
    return tuple(value)


TimeLimit = Annotated[str, Rule(_time, {"type": "string", "pattern": f"^(?:{_TIME.pattern})$"})]
Partition = Annotated[
    str, Rule(_partition, {"type": "string", "pattern": f"^(?:{_PARTITION.pattern})$"})
]
Option = Annotated[str, Rule(_option, {"type": "string", "pattern": "^--[a-z]"})]
Options = Annotated[tuple[Option, ...], BeforeValidator(_options)]


class Slurm(BaseModel):
    """`[slurm]`: the allocation whose nodes are the hosts `node0`, `node1`, …"""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    nodes: Annotated[
        Nodes, Key("number of nodes. The hosts of the file are then `node0`, `node1`, …")
    ]
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
    python: Annotated[
        Python | None,
        Key("interpreter on the nodes, for `{python}` and the agents", "`python3`"),
    ] = None


PENDING = ("false",)
"""Command in place of the one that reaches a node, before there is a node: it only fails."""


def node_name(number: int) -> str:
    """Name of a node as a host of the cluster file."""
    return f"node{number}"
