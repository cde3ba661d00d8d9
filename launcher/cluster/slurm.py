"""`[slurm]` table of a cluster file: the allocation whose nodes are the cluster's hosts.

The nodes are called `node0`, `node1`, … in the file. Until Slurm has given them they are hosts that
nothing reaches.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, ConfigDict

from .fields import Destination, Gpus, Key, Nodes, Python, Rule, text, wrong
from .table import Table

PENDING = ("false",)
"""Command in place of the one that reaches a node, before there is a node: it only fails."""
_TIME = re.compile(r"(?:\d{1,5}-\d{1,2}(?::\d{1,2}){0,2}|\d{1,7}(?::\d{1,2}){0,2})")
_OPTION = re.compile(r"--[a-z][a-z0-9-]*(?:=.*)?", re.DOTALL)
_JOB = re.compile(r"[1-9]\d{0,14}")
_PARTITION = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.-]*(?:,[A-Za-z0-9_.][A-Za-z0-9_.-]*)*")
_OURS = {
    "--array": "one run is one job",
    "--clusters": "for another cluster write a machine of it as login in [slurm]",
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


def _job(value: Any) -> str:
    if not isinstance(value, str) or not _JOB.fullmatch(value):
        raise wrong('write the id of a job in quotes, such as "8123"')
    return value


def _option(value: Any) -> str:
    given = text(value)
    if not _OPTION.fullmatch(given) or not given.isprintable():
        raise wrong('write an option of sbatch as one text, such as "--account=proj42"')
    name = given.partition("=")[0]
    if why := _OURS.get(name):
        raise wrong(f"{name} is tfmux's own ({why}): remove it")
    return given


def _options(value: Any) -> Any:
    if not isinstance(value, list | tuple):
        raise wrong('write a list, such as ["--account=proj42", "--constraint=a100"]')
    return tuple(value)


def _partition(value: Any) -> str:
    if not _PARTITION.fullmatch(text(value)):
        raise wrong("write the partition's name; several with commas")
    return text(value)


TimeLimit = Annotated[str, Rule(_time, {"type": "string", "pattern": f"^(?:{_TIME.pattern})$"})]
Partition = Annotated[
    str, Rule(_partition, {"type": "string", "pattern": f"^(?:{_PARTITION.pattern})$"})
]
JobId = Annotated[str, Rule(_job, {"type": "string", "pattern": f"^{_JOB.pattern}$"})]
Option = Annotated[str, Rule(_option, {"type": "string", "pattern": "^--[a-z]"})]
Options = Annotated[tuple[Option, ...], BeforeValidator(_options)]


class Slurm(Table):
    """`[slurm]`: the allocation whose nodes are the hosts `node0`, `node1`, …"""

    table: ClassVar[str] = "slurm"
    """Its name in the file."""
    label: ClassVar[str] = "Slurm"
    """Slurm's name for people."""
    model_config = ConfigDict(
        json_schema_extra={"anyOf": [{"required": ["time"]}, {"required": ["job"]}]}
    )

    nodes: Annotated[
        Nodes, Key("number of nodes. The hosts of the file are then `node0`, `node1`, …")
    ]
    python: Annotated[
        Python | None,
        Key("interpreter on the nodes, for `{python}` and the agents", "`python3`"),
    ] = None
    time: Annotated[
        TimeLimit | None,
        Key(
            'time limit, as `sbatch` takes it: `"30"` (minutes), `"04:00:00"`, `"2-12"` (days and '
            "hours). It is the last thing that frees the nodes when all else fails",
            "required, unless there is `job`",
        ),
    ] = None
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
    job: Annotated[
        JobId | None,
        Key(
            "id of a job of yours that runs, such as one of `salloc`: its first `nodes` are used. "
            "Nothing is submitted, and the job stays when the run has ended",
            "a new job",
        ),
    ] = None

    @property
    def node_names(self) -> tuple[str, ...]:
        """The nodes as hosts of the cluster file."""
        return tuple(map(node_name, range(self.nodes)))

    @property
    def span(self) -> str:
        """First and last node as people write them: `node0 … node3`."""
        first, last = node_name(0), node_name(self.nodes - 1)
        return first if self.nodes == 1 else f"{first} … {last}"

    def problems(self) -> Iterator[tuple[str, object, str]]:
        """Contradictions between values: key, value and what to write."""
        if self.python is not None and self.python.startswith("~"):
            yield "python", self.python, '"~/" is not expanded by srun: write an absolute path'
        if self.job is None and self.time is None:
            yield "time", None, 'the time limit is missing: write such as time = "04:00:00"'
        asked = (("time", self.time), ("partition", self.partition), ("options", self.options))
        for key, value in asked if self.job is not None else ():
            if value:
                yield key, None, f'nothing is asked of Slurm with job = "{self.job}": remove {key}'

    @classmethod
    def missing(cls, key: str) -> str:
        """Advice for a required key that is missing."""
        return {"nodes": "the number of nodes is missing: write such as nodes = 4"}[key]


def node_name(number: int) -> str:
    """Name of a node as a host of the cluster file."""
    return f"node{number}"
