"""Cluster files in the shell of a Slurm job (`salloc`, `sbatch`): they get that job's nodes, as
`job` in `[slurm]`. The job is the person's: nothing cancels it."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from collections.abc import Callable, Mapping

import tomlkit
from tomlkit.exceptions import TOMLKitError

from ..agent.processes import read_process
from ..cluster.file_model import Slurm
from ..cluster.host_sources import with_table
from ..printable import printable
from .job import node_names
from .login import SlurmError

_SECONDS = 20.0
_ASKED = ("time", "partition", "options")
"""Keys of a request, which is not made."""
_MOST_PARENTS = 100
_JOB = re.compile(r"\d{1,15}")


def job_of(environ: Mapping[str, str]) -> str:
    """The id of the job in whose shell this process is; empty where there is none."""
    job = environ.get("SLURM_JOB_ID", "")
    return job if _JOB.fullmatch(job) and environ.get("SLURM_JOB_NODELIST") else ""


def element_of(environ: Mapping[str, str]) -> str:
    """What scancel takes for this process's job alone: it takes the id of an array's last element
    for the whole array."""
    array, task = (environ.get(f"SLURM_ARRAY_{name}", "") for name in ("JOB_ID", "TASK_ID"))
    named = _JOB.fullmatch(array) and _JOB.fullmatch(task)
    return f"{array}_{task}" if named else job_of(environ)


def in_batch_script(environ: Mapping[str, str]) -> bool:
    """Whether this process is below the shell of a batch script, not in its place. The end of that
    shell, which a signal to the job brings, is the end of all that it has started."""
    shell = environ.get("SLURM_TASK_PID", "")
    pid, seen = os.getpid(), 0
    if environ.get("ENVIRONMENT") != "BATCH" or not shell.isdecimal() or pid == int(shell):
        return False
    while pid > 1 and pid != int(shell) and seen < _MOST_PARENTS:
        process, seen = read_process(pid), seen + 1
        pid = process.ppid if process is not None else 0
    return pid == int(shell)


def has_slurm(text: str) -> bool:
    """Whether a cluster file has `[slurm]`; False where it is no TOML."""
    try:
        return Slurm.table in tomllib.loads(text)
    except (ValueError, RecursionError):
        return False


def expand(nodes: str) -> str:
    """The output of `scontrol show hostnames`.

    Raises:
        SlurmError: it did not answer, or refused.
    """
    argv = ["scontrol", "show", "hostnames", nodes]
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, errors="replace", timeout=_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SlurmError(f"scontrol: {printable(str(error), 200)}") from error
    if done.returncode:
        said = printable(done.stderr.strip(), 200)
        raise SlurmError(said or f"scontrol ended with {done.returncode}")
    return done.stdout


def with_job_nodes(
    text: str,
    source: str,
    table: Slurm | None,
    environ: Mapping[str, str],
    names: Callable[[str], str] = expand,
) -> str:
    """Returns the text of a cluster file whose hosts are the nodes of this shell's job. `table` is
    the file's `[slurm]`, if there is one.

    Raises:
        SlurmError: there is no job, it has fewer nodes, or Slurm did not name them.
        ClusterFileError: the file has hosts of its own.
    """
    job = job_of(environ)
    if not job:
        raise SlurmError("not in a Slurm job: SLURM_JOB_ID is not set")
    nodes = node_names(names(environ["SLURM_JOB_NODELIST"]))
    if table is None:
        return with_table(text, source, f'[{Slurm.table}]\nnodes = {len(nodes)}\njob = "{job}"\n')
    if len(nodes) < table.nodes:
        what = f"Slurm {job} has {len(nodes)} nodes, [slurm] asks for {table.nodes}"
        raise SlurmError(what, "ask salloc for more, or write fewer")
    try:
        document = tomlkit.parse(text)
    except TOMLKitError as error:
        raise SlurmError(f"{source}: {error}") from error
    entry = document[table.table]
    for key in _ASKED:
        entry.pop(key, None)
    entry["job"] = job
    return document.as_string()
