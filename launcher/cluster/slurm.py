"""`[slurm]` table of a cluster file: the allocation whose nodes are the cluster's hosts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import ConfigDict

from .addresses import SshDestination
from .engine_table import EngineTable, option_list, option_rule
from .fields import Destination, Gpus, Key, Rule, text, wrong

_TIME = re.compile(r"(?:\d{1,5}-\d{1,2}(?::\d{1,2}){0,2}|\d{1,7}(?::\d{1,2}){0,2})")
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


def _partition(value: Any) -> str:
    if not _PARTITION.fullmatch(text(value)):
        raise wrong("write the partition's name; several with commas")
    return text(value)


TimeLimit = Annotated[str, Rule(_time, {"type": "string", "pattern": f"^(?:{_TIME.pattern})$"})]
Partition = Annotated[
    str, Rule(_partition, {"type": "string", "pattern": f"^(?:{_PARTITION.pattern})$"})
]
JobId = Annotated[str, Rule(_job, {"type": "string", "pattern": f"^{_JOB.pattern}$"})]
Option = Annotated[str, option_rule("sbatch", "--account=proj42", _OURS)]
Options = Annotated[tuple[Option, ...], option_list("--account=proj42", "--constraint=a100")]


class Slurm(EngineTable):
    """`[slurm]`: the allocation whose nodes are the hosts `node0`, `node1`, …"""

    table = "slurm"
    label = "Slurm"
    reached_by = "srun"
    model_config = ConfigDict(
        json_schema_extra={"anyOf": [{"required": ["time"]}, {"required": ["job"]}]}
    )

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
    def relay(self) -> SshDestination | None:
        return self.login

    @property
    def node_gpus(self) -> int | None:
        return self.gpus

    def problems(self) -> Iterator[tuple[str, object, str]]:
        yield from super().problems()
        if self.job is None and self.time is None:
            yield "time", None, 'the time limit is missing: write such as time = "04:00:00"'
        asked = (("time", self.time), ("partition", self.partition), ("options", self.options))
        for key, value in asked if self.job is not None else ():
            if value:
                yield key, None, f'nothing is asked of Slurm with job = "{self.job}": remove {key}'
