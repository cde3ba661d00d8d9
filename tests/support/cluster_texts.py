"""The builder of cluster files, and those that several modules of tests need."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from launcher.cluster.file_model import ClusterModel
from launcher.cluster.read import loads
from launcher.errors import ClusterFileError, Problem
from tests.support.command import python_task

Table = Mapping[str, Any]
Job = int | str | Sequence[str] | Table
TABLES = ("defaults", "slurm", "start", "metrics", "hooks")


def cluster_text(
    jobs: Mapping[str, Job],
    name: str = "",
    hosts: str | Table = "",
    more: str = "",
    **settings: Any,
) -> str:
    """A cluster file; its last table is `[run]`, so lines of `more` or behind it go on there.

    A job is its places (`"a:2222 b here"`: without a port it is `auto`, `here` is this machine), or
    how many tasks it has here, or a table whose `tasks` say so. Hosts are tables, or their text.
    Settings are keys of `[run]`, or other tables.
    """
    lines = [f"name = {_toml(name)}"] if name else []
    lines += [hosts] if isinstance(hosts, str) else _tables("hosts.", hosts)
    lines += _tables("", {key: settings.pop(key) for key in TABLES if key in settings})
    tables = {key: job if isinstance(job, Mapping) else {"tasks": job} for key, job in jobs.items()}
    lines += _tables(
        "jobs.", {k: {**job, "tasks": _places(job["tasks"])} for k, job in tables.items()}
    )
    lines += _tables("", {"run": {"command": ["true"], **settings}})
    return "\n".join([*lines, more]) + "\n"


def _places(places: int | str | Sequence[str]) -> list[str]:
    if isinstance(places, int):
        return ["localhost:auto"] * places
    words = places.split() if isinstance(places, str) else places
    found = ["localhost" if word == "here" else word for word in words]
    return [word if ":" in word else f"{word}:auto" for word in found]


def _tables(prefix: str, tables: Mapping[str, Table]) -> list[str]:
    lines = []
    for name, table in tables.items():
        lines.append(f"[{prefix}{name}]")
        lines += [f"{key} = {_toml(value)}" for key, value in table.items() if value is not None]
    return lines


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{_toml(key)} = {_toml(of)}' for key, of in value.items())} }}"
    return json.dumps(value, ensure_ascii=False)


KEPT = cluster_text(
    {"worker": 1},
    "kept",
    command=["sleep", "1000"],
    workdir="",
    grace=1,
    on_disconnect="keep",
    start={"ready": {"worker": "started"}},
)
"""One task that sleeps, and goes on without a launcher for ever."""
SLEEPERS = cluster_text({"ps": 1, "worker": 2}, "{name}", command=["sleep", "{{port}}"], workdir="")
"""Three tasks here that sleep, of a cluster with a name; to be formatted."""
UNLISTED_HOSTS = cluster_text({"worker": "node0:2222 node1:2222"}, "c")
"""Two tasks on hosts that a list is to name."""
SALLOC = {"SLURM_JOB_ID": "8123", "SLURM_JOB_NODELIST": "n[1-3]"}
"""Variables of the shell of a job with three nodes."""


def on_slurm(slurm: str = "", second: str = "node1", time: str = 'time = "10"') -> str:
    """Two tasks on nodes of Slurm, with further lines of `[slurm]`."""
    return cluster_text({"worker": ["node0", second]}, hosts=f"[slurm]\nnodes = 2\n{time}\n{slurm}")


def cluster_on_slurm(slurm: str = "", second: str = "node1", more: str = "") -> ClusterModel:
    """A cluster on Slurm, read, with more lines below."""
    return loads(on_slurm(slurm, second) + more, "c.toml", Path("/srv"))


def one_task(
    script: str,
    *,
    ready: str | dict[str, str] = "started",
    settings: str = "",
    tasks: int | str = 1,
    hosts: str = "",
) -> str:
    """A cluster of one worker, on this machine or where `tasks` says, that runs a script."""
    return cluster_text(
        {"worker": tasks},
        "one",
        hosts,
        command=python_task(script),
        workdir="",
        grace=2.0,
        start={"ready": {"worker": ready}},
        more=settings,
    )


GOOD = """\
name = "mnist-async"

[hosts.tf1]
ssh = "root@10.77.0.1:22"
address = "tf1"

[hosts.tf2]
ssh = "root@10.77.0.2"

[jobs.ps]
tasks = ["tf1:2222"]

[jobs.worker]
tasks = ["tf2:2222", "tf2:auto"]

[run]
command = ["{python}", "-m", "trainer", "async", "--job_name={job}"]
success = "chief"

[start]
order = [["ps"], ["worker:0"], ["worker"]]
"""


def problems(text: str, *, for_launch: bool = False, base: Path = Path("/")) -> list[Problem]:
    """Everything that is wrong in a text."""
    with pytest.raises(ClusterFileError) as caught:
        loads(text, "cluster.toml", base, for_launch=for_launch)
    return list(caught.value.problems)


def changed(old: str, new: str) -> str:
    """The good file with one thing replaced."""
    assert old in GOOD
    return GOOD.replace(old, new, 1)


TRAINING = """
name = "mission"
{hosts}
[jobs.ps]
tasks = ["tf1:2222"]
[jobs.worker]
tasks = ["tf2:2222", "tf3:2222", "tf4:2222"]
[run]
command = ["{{python}}", "-m", "trainer", "async", "--job_name={{job}}", "--task_index={{index}}",
           "--ps_hosts={{ps_hosts}}", "--worker_hosts={{worker_hosts}}", "--logdir={{logdir}}",
           "--data=/opt/data", "--steps=400"]
workdir = ""
[metrics]
total = 400
"""

STAGED = cluster_text({"worker": "far:2222"}, "staged", {"far": {"ssh": "10.0.0.1"}}, workdir=".")
