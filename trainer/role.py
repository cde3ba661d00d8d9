"""This process's role in the cluster, from the classic flags or from TF_CONFIG."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import TYPE_CHECKING, Any

from trainer.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainer.flags import Options

_ADDRESS = re.compile(r"(?P<host>\[[0-9a-fA-F:.]+\]|[^\s:'\"/,]+):(?P<port>\d{1,9})")
_JOBS = ("ps", "worker", "chief")


@dataclasses.dataclass(frozen=True)
class Role:
    """One task of a cluster spec. `cluster` maps a job to its tasks' `host:port`, in order."""

    cluster: Mapping[str, tuple[str, ...]]
    job: str
    index: int

    @property
    def address(self) -> str:
        """This task's own `host:port`."""
        return self.cluster[self.job][self.index]

    @property
    def port(self) -> int:
        """The port of `address`."""
        return int(self.address.rpartition(":")[2])

    @property
    def device(self) -> str:
        """This task as the beginning of a device name, such as `/job:worker/task:1`."""
        return self.device_of(self.job, self.index)

    @property
    def clients(self) -> list[tuple[str, int]]:
        """Job and index of each task that trains, the chief first."""
        return [*self.tasks("chief"), *self.tasks("worker"), *self.tasks(ALONE)]

    @property
    def chief(self) -> tuple[str, int]:
        """The task that initialises and saves: the chief job, else worker:0."""
        return self.clients[0]

    @property
    def is_chief(self) -> bool:
        """Whether this task is the chief."""
        return (self.job, self.index) == self.chief

    @property
    def trainers(self) -> int:
        """How many tasks train: the workers and a chief beside them."""
        return len(self.clients)

    @property
    def trainer_number(self) -> int:
        """This task's place among those that train, the chief first."""
        return self.clients.index((self.job, self.index))

    @property
    def neighbours(self) -> int:
        """How many tasks of the cluster have this task's host name, this one included."""
        host = self.address.rpartition(":")[0]
        tasks = [task for addresses in self.cluster.values() for task in addresses]
        return sum(task.rpartition(":")[0] == host for task in tasks)

    def tasks(self, *jobs: str) -> list[tuple[str, int]]:
        """Job and index of the tasks of `jobs`."""
        return [(job, index) for job in jobs for index in range(len(self.cluster.get(job, ())))]

    def others(self, tasks: list[tuple[str, int]]) -> list[tuple[str, int]]:
        """Those of `tasks` that are not this one."""
        return [task for task in tasks if task != (self.job, self.index)]

    def device_of(self, job: str, index: int) -> str:
        """A task as the beginning of a device name."""
        return f"/job:{job}/task:{index}"

    def address_of(self, job: str, index: int) -> str:
        """A task with its address, for people: `ps:0 (tf1:2222)`."""
        return f"{job}:{index} ({self.cluster[job][index]})"

    def __str__(self) -> str:
        return f"{self.job}:{self.index}"


# A process by itself, as TensorFlow calls it in the names of its devices.
ALONE = "localhost"
LOCAL = Role({ALONE: ("localhost:0",)}, ALONE, 0)


def resolve(options: Options, environment: Mapping[str, str], needs: tuple[str, ...] = ()) -> Role:
    """This process's role: from the flags when any of them is given, else from TF_CONFIG.

    Raises:
        UsageError: What is wrong with them, or which of the jobs that a mode `needs` is missing.
    """
    role = _resolve(options, environment)
    for job in needs:
        if not role.cluster.get(job):
            raise UsageError(f"the cluster has no {job} task; this mode needs one")
    return role


def _resolve(options: Options, environment: Mapping[str, str]) -> Role:
    if options.job_name is not None:
        return _from_flags(options)
    given = [f"--{job}_hosts" for job in _JOBS if getattr(options, f"{job}_hosts") is not None]
    if given or options.task_index is not None:
        raise UsageError(f"--job_name is missing beside {(given or ['--task_index'])[0]}")
    if environment.get("TF_CONFIG"):
        return _from_tf_config(environment["TF_CONFIG"])
    raise UsageError(
        "no role: give --job_name, --task_index, --ps_hosts and --worker_hosts, or set TF_CONFIG"
    )


def _from_flags(options: Options) -> Role:
    cluster = {}
    for job in _JOBS:
        hosts = getattr(options, f"{job}_hosts")
        if hosts is not None:
            cluster[job] = _addresses(hosts.split(","), f"--{job}_hosts")
    job = options.job_name or ""
    if options.task_index is None:
        raise UsageError("--task_index is missing")
    return _checked(cluster, job, options.task_index, "--job_name", "--task_index")


def _from_tf_config(text: str) -> Role:
    try:
        config: Any = json.loads(text)
        jobs = dict(config["cluster"])
        task = config["task"]
        job, index = task["type"], int(task["index"])
    except (ValueError, KeyError, TypeError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise UsageError(f"TF_CONFIG: {reason}") from None
    cluster = {}
    for name, addresses in jobs.items():
        if not isinstance(addresses, list) or not all(isinstance(word, str) for word in addresses):
            raise UsageError(f"TF_CONFIG: cluster.{name} is not a list of addresses")
        cluster[name] = _addresses(addresses, f"TF_CONFIG: cluster.{name}")
    return _checked(cluster, str(job), index, "TF_CONFIG: task.type", "TF_CONFIG: task.index")


def _addresses(words: list[str], where: str) -> tuple[str, ...]:
    for word in words:
        match = _ADDRESS.fullmatch(word)
        if match and 0 < int(match["port"]) < 65536:
            continue
        clean = re.sub(r"[\s'\"]", "", word)
        if match:
            bound = "above 65535" if int(match["port"]) else "0, which is no port of a cluster"
            raise UsageError(f"{where}: {word}: the port is {bound}")
        if not word.strip():
            raise UsageError(f"{where}: an empty address; two commas, or one at the end?")
        if clean != word:
            raise UsageError(f"{where}: {word!r} has blanks or quotes in it; write {clean}")
        raise UsageError(f"{where}: {word!r} is not host:port")
    twice = next((word for word in words if words.count(word) > 1), None)
    if twice:
        raise UsageError(f"{where}: {twice} is listed twice")
    return tuple(words)


def _checked(
    cluster: dict[str, tuple[str, ...]], job: str, index: int, job_from: str, index_from: str
) -> Role:
    clean = re.sub(r"[\s'\"]", "", job)
    if clean != job:
        raise UsageError(f"{job_from}: {job!r} has blanks or quotes in it; write {clean}")
    if job not in cluster:
        known = ", ".join(cluster) or "none"
        if job in _JOBS and job_from.startswith("--"):
            raise UsageError(f"{job_from}={job}, but --{job}_hosts is missing")
        meant = f"; write {job.lower()}" if job.lower() in cluster else ""
        raise UsageError(f"{job_from}: unknown job {job!r}{meant or f'; the cluster has {known}'}")
    if not 0 <= index < len(cluster[job]):
        raise UsageError(
            f"{index_from}={index}, but {job} has {len(cluster[job])} "
            f"task{'s' if len(cluster[job]) != 1 else ''}: {','.join(cluster[job])}"
        )
    return Role(cluster, job, index)
