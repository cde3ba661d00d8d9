"""Data model of a plan: its tasks and hosts, and the facts of the hosts that it is made from."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from ..cluster.addresses import SshDestination
from ..cluster.rules import Readiness, Shell, ready_value
from ..cluster.spec import RunSettings
from ..ids import TaskId
from ..printable import printable
from .texts import Text, written

_LONGEST = 100
"""Characters of a command that are shown."""


class Role(StrEnum):
    """Role of a task in the run. The chief is task 0 of `chief`, else of `worker`."""

    PS = "ps"
    CHIEF = "chief"
    WORKER = "worker"
    EVALUATOR = "evaluator"
    HELPER = "helper"
    PREPARE = "prepare"
    """The `prepare` lines of one host; they run first, and the run fails if they fail."""


@dataclass(frozen=True)
class HostFacts:
    """Facts that a host's agent reports at launch; what is empty is not known yet."""

    home: str = ""
    workdir: str = ""
    """The folder with the copy of `workdir`; on this machine `workdir` itself."""
    trainer: str = ""
    """The folder with the bundled trainer package, put last on `PYTHONPATH`."""
    tools: str = ""
    """The folder with the scripts of `on_host`."""
    gpus: int = 0
    ports: Mapping[TaskId, int] = field(default_factory=dict)
    """The ports picked for `auto`."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """The host's own values of the variables in `environment.EXTENDED`."""


class Resume(NamedTuple):
    """The run that another one goes on from."""

    run_id: str
    """It has written the checkpoint."""
    logdir_run_id: str
    """`{run_id}` in its log directory: the id of the first of the runs that went on in it."""


@dataclass(frozen=True)
class SshTarget(SshDestination):
    """Login options of a host; what is None is left to ssh_config. Paths are absolute."""

    identity: str | None = None
    jump: str | None = None
    """`user@host:port`, or several separated by commas, the first one first."""
    known_hosts: str | None = None


@dataclass(frozen=True)
class WarmStart:
    """A start before the task's stage has come: the modules that are imported, and the command,
    the task's behind the runner that imports them and waits."""

    modules: tuple[str, ...]
    words: tuple[Text, ...]

    @property
    def argv(self) -> tuple[str, ...]:
        """The words of the command."""
        return tuple(map(written, self.words))


@dataclass(frozen=True)
class TaskPlan:
    """One task, ready to be started."""

    id: TaskId
    role: Role
    host: str
    port: int | None
    """None: `auto`, not picked yet."""
    address: str
    """`host:port` in the cluster spec."""
    words: tuple[Text, ...]
    """The command; `argv` is the same in full."""
    variables: Mapping[str, Text]
    """The environment; `env` is the same in full."""
    ready: Readiness
    cwd: str
    logdir: str
    log_limit: int
    env_from: tuple[str, ...]
    """Names of this machine's variables to pass on; their values are secrets and not stored."""
    in_cluster: bool = False
    """Whether it is in the cluster spec (an evaluator is not)."""
    forward: bool = False
    max_restarts: int = 0
    setup: str = ""
    shell: Shell = Shell.NONE
    pty: bool = False
    ready_key: str = ""
    """Key of the cluster file that says when it is ready, and its line, for people."""
    warm: WarmStart | None = None
    """None: it always starts cold."""

    @property
    def argv(self) -> tuple[str, ...]:
        """The words of the command."""
        return tuple(map(written, self.words))

    @property
    def env(self) -> dict[str, str]:
        """The variables of the environment."""
        return {name: written(value) for name, value in self.variables.items()}


@dataclass(frozen=True)
class HostPlan:
    """One host that has tasks."""

    name: str
    ssh: SshTarget | None
    python: str
    address: str
    """Its address for other hosts, without a port."""
    env: Mapping[str, str]
    gpus: int | None
    """The number in the file; None: what the host reports."""
    data: tuple[Path, ...] = ()
    collect: tuple[str, ...] = ()
    prepare: tuple[str, ...] = ()
    via: tuple[str, ...] = ()
    """The command that reaches the host instead of SSH; with `ssh`, it is run there."""
    has_agent: bool = False
    """An engine has started its agent: bridges only look for it."""

    @property
    def local(self) -> bool:
        """Whether the host is this machine, reached by a pipe."""
        return self.ssh is None and not self.via

    @property
    def destination(self) -> str:
        """Text of the way to the host: an address, a command or `this machine`."""
        if self.has_agent:
            return self.address
        if self.via:
            return printable(shlex.join(self.via), _LONGEST)
        return str(self.ssh or "this machine")


@dataclass(frozen=True)
class Plan:
    """All tasks and hosts of a run with everything that the launch needs."""

    name: str
    run_id: str
    hosts: tuple[HostPlan, ...]
    tasks: tuple[TaskPlan, ...]
    """In start order."""
    stages: tuple[tuple[TaskId, ...], ...]
    settings: RunSettings
    start_timeout: float
    total_steps: int | None
    metrics_pattern: str | None
    workdir: Path | None
    """The local directory to copy to the other hosts; None = copy nothing."""
    exclude: tuple[str, ...]
    cluster_spec: Mapping[str, list[str]]
    chief: TaskId | None

    def task(self, task: TaskId) -> TaskPlan:
        """Returns the plan of one task.

        Raises:
            KeyError: there is no such task.
        """
        try:
            return self._by_id[task]
        except KeyError:
            raise KeyError(str(task)) from None

    @cached_property
    def _by_id(self) -> Mapping[TaskId, TaskPlan]:
        return {task.id: task for task in self.tasks}

    def host(self, name: str) -> HostPlan:
        """Returns the host of that name."""
        return self._hosts[name]

    @cached_property
    def _hosts(self) -> Mapping[str, HostPlan]:
        return {host.name: host for host in self.hosts}

    def stage_of(self, task: TaskId) -> int:
        """Returns the number of a task's stage."""
        return self._stage_of[task]

    @cached_property
    def _stage_of(self) -> Mapping[TaskId, int]:
        return {task: number for number, stage in enumerate(self.stages) for task in stage}

    def on_host(self, host: str) -> tuple[TaskPlan, ...]:
        """Lists a host's tasks, in start order."""
        return self._by_host.get(host, ())

    @cached_property
    def _by_host(self) -> Mapping[str, tuple[TaskPlan, ...]]:
        found: dict[str, list[TaskPlan]] = {}
        for task in self.tasks:
            found.setdefault(task.host, []).append(task)
        return {host: tuple(tasks) for host, tasks in found.items()}


def plan_json(plan: Plan) -> dict[str, Any]:
    """Makes the output of `tfmux plan --json`, the same for every run of a file.

    The tasks stand in start order; `prepare` lines are tasks that must have finished. A port that
    is picked at launch reads `auto`. `docs/schemas/plan.schema.json` describes all of it.
    """
    return {
        "name": plan.name,
        "stages": [[str(task) for task in stage] for stage in plan.stages],
        "tasks": [
            {
                "task": str(task.id),
                "host": task.host,
                "address": task.address,
                "argv": list(task.argv),
                "env": dict(task.env),
                "ready": ready_value(task.ready),
                "cwd": task.cwd,
                "warm": list(task.warm.modules) if task.warm else [],
            }
            for task in plan.tasks
        ],
    }
