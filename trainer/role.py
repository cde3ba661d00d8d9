"""This process's role in the cluster, from the classic flags or from TF_CONFIG."""

import dataclasses
import json
import os
import re
import socket
from argparse import Namespace
from collections.abc import Iterable, Mapping
from typing import Any

from trainer.exceptions import TrainerError, UsageError

Task = tuple[str, int]  # job and index
_ADDRESS = re.compile(r"(?P<host>\[[0-9a-fA-F:.]+\]|[^\s:'\"/,]+):(?P<port>\d{1,9})")
_JOBS = ("ps", "worker", "chief")


@dataclasses.dataclass(frozen=True)
class Role:
    """One task of a cluster spec. `cluster` maps a job to its tasks' `host:port`, in order."""

    cluster: Mapping[str, tuple[str, ...]]
    job: str
    index: int

    @property
    def task(self) -> Task:
        return self.job, self.index

    @property
    def port(self) -> int:
        return int(self.address_of(self.task).rpartition(":")[2])

    @property
    def device(self) -> str:
        """This task as the beginning of a device name, such as `/job:worker/task:1`."""
        return self.device_of(self.task)

    @property
    def clients(self) -> list[Task]:
        """The tasks that train, the chief first."""
        return self.tasks("chief", "master", "worker", ALONE)

    @property
    def chief(self) -> Task:
        """The task that initialises and saves."""
        return self.clients[0]

    @property
    def is_chief(self) -> bool:
        return self.task == self.chief

    @property
    def number(self) -> int:
        """This task's place among those that train, the chief first."""
        return self.clients.index(self.task)

    @property
    def neighbours(self) -> int:
        """Number of tasks of the cluster on this task's host name, this one included."""
        hosts = [self.address_of(task).rpartition(":")[0] for task in self.tasks()]
        return hosts.count(self.address_of(self.task).rpartition(":")[0])

    def tasks(self, *jobs: str) -> list[Task]:
        """The tasks of `jobs`; of all jobs when none is named."""
        jobs = jobs or tuple(self.cluster)
        return [(job, index) for job in jobs for index in range(len(self.cluster.get(job, ())))]

    def others(self, tasks: Iterable[Task]) -> list[Task]:
        """Tasks of `tasks` other than this one."""
        return [task for task in tasks if task != self.task]

    def address_of(self, task: Task) -> str:
        return self.cluster[task[0]][task[1]]

    def device_of(self, task: Task) -> str:
        """A task as the beginning of a device name."""
        return f"/job:{task[0]}/task:{task[1]}"

    def label(self, *tasks: Task) -> str:
        """Tasks with their addresses, for people: `ps:0 (tf1:2222)`."""
        return ", ".join(f"{task[0]}:{task[1]} ({self.address_of(task)})" for task in tasks)

    def cannot_listen(self, reason: str) -> TrainerError:
        """The error of a task whose port is taken."""
        return TrainerError(f"{self}: cannot listen on {self.address_of(self.task)}: {reason}")

    def check_port(self) -> None:
        """Fails early, before TensorFlow's import, when this task's port is taken."""
        try:
            socket.create_server(("", self.port)).close()
        except OSError as error:
            raise self.cannot_listen(os.strerror(error.errno or 0)) from None

    def __str__(self) -> str:
        return f"{self.job}:{self.index}"


# A process by itself, as TensorFlow calls it in the names of its devices.
ALONE = "localhost"
LOCAL = Role({ALONE: ("localhost:0",)}, ALONE, 0)


def resolve(options: Namespace, environment: Mapping[str, str], needs: Iterable[str] = ()) -> Role:
    """This process's role: from the flags when any of them is given, else from TF_CONFIG.

    Raises:
        UsageError: What is wrong with them, or which of the jobs that a mode `needs` is missing.
    """
    hosts = {job: getattr(options, f"{job}_hosts") for job in _JOBS}
    given = {job: words.split(",") for job, words in hosts.items() if words is not None}
    if options.job_name is not None:
        if options.task_index is None:
            raise UsageError("--task_index is missing")
        names = ("--{}_hosts", "--job_name", "--task_index")
        role = _checked(given, options.job_name, options.task_index, *names)
    elif given or options.task_index is not None:
        flags = [f"--{job}_hosts" for job in given] or ["--task_index"]
        raise UsageError(f"--job_name is missing beside {flags[0]}")
    elif environment.get("TF_CONFIG"):
        names = ("TF_CONFIG: cluster.{}", "TF_CONFIG: task.type", "TF_CONFIG: task.index")
        role = _checked(*_read_tf_config(environment["TF_CONFIG"]), *names)
    else:
        raise UsageError(
            "no role: give --job_name, --task_index, --ps_hosts and --worker_hosts, or set "
            "TF_CONFIG"
        )
    for job in needs:
        if not role.cluster.get(job):
            raise UsageError(f"the cluster has no {job} task; this mode needs one")
    return role


def _read_tf_config(text: str) -> tuple[dict[str, list[str]], str, int]:
    """Cluster spec, job name and task index of a `TF_CONFIG`.

    Raises:
        UsageError: It is not JSON, or a key is missing or wrong.
    """
    try:
        config: Any = json.loads(text)
        cluster, task = dict(config["cluster"]), config["task"]
        job, index = str(task["type"]), int(task["index"])
    except (ValueError, KeyError, TypeError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise UsageError(f"TF_CONFIG: {reason}") from None
    for name, words in cluster.items():
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise UsageError(f"TF_CONFIG: cluster.{name} is not a list of addresses")
    return cluster, job, index


def _checked(jobs: dict[str, list[str]], job: str, index: int, *names: str) -> Role:
    """The role, when all is right; `names` are those of a job's hosts, of the job, of the index."""
    hosts_from, job_from, index_from = names
    cluster = {name: addresses(words, hosts_from.format(name)) for name, words in jobs.items()}
    _refuse_blanks(job, job_from)
    if job not in cluster:
        if job in _JOBS and job_from.startswith("--"):
            raise UsageError(f"{job_from}={job}, but --{job}_hosts is missing")
        known = f"the cluster has {', '.join(cluster) or 'none'}"
        meant = f"write {job.lower()}" if job.lower() in cluster else known
        raise UsageError(f"{job_from}: unknown job {job!r}; {meant}")
    count = len(cluster[job])
    if not 0 <= index < count:
        tasks = f"{count} task{'s' if count != 1 else ''}: {','.join(cluster[job])}"
        raise UsageError(f"{index_from}={index}, but {job} has {tasks}")
    return Role(cluster, job, index)


def addresses(words: list[str], where: str) -> tuple[str, ...]:
    """`words`, each checked to be `host:port`; `where` they come from is named if one is not."""
    for word in words:
        match = _ADDRESS.fullmatch(word)
        if match and 0 < int(match["port"]) < 65536:
            continue
        if match:
            bound = "above 65535" if int(match["port"]) else "0, which is not a valid port"
            raise UsageError(f"{where}: {word}: the port is {bound}")
        if not word.strip():
            raise UsageError(f"{where}: an empty address; two commas, or one at the end?")
        _refuse_blanks(word, where)
        raise UsageError(f"{where}: {word!r} is not host:port")
    if twice := [word for word in words if words.count(word) > 1]:
        raise UsageError(f"{where}: {twice[0]} is listed twice")
    return tuple(words)


def _refuse_blanks(word: str, where: str) -> None:
    clean = re.sub(r"[\s'\"]", "", word)
    if clean != word:
        raise UsageError(f"{where}: {word!r} has blanks or quotes in it; write {clean}")
