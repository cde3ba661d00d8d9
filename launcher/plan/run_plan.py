"""Plan of a run, as `planner` makes it: its tasks and hosts, and sentences about them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from ..cluster.addresses import SshDestination
from ..cluster.choices import Shell, Stop, StopSignal
from ..cluster.file_model import ClusterModel, RunSettings
from ..cluster.readiness import After, LogMatches, PortListens, Readiness
from ..cluster.roles import Role
from ..frozen import frozen
from ..ids import TaskId
from ..printable import printable
from .ending import Ending, Endless, endless
from .environment import Text, written
from .shell import WarmStart

_LONGEST = 100
"""Characters of a command that are shown."""
_MAX_LISTED = 4
"""Tasks that a note lists."""


@frozen
class SshTarget(SshDestination):
    """Login options of a host; what is None is left to ssh_config. Paths are absolute."""

    identity: str | None = None
    jump: str | None = None
    """`user@host:port`, or several separated by commas, the first one first."""
    known_hosts: str | None = None


@frozen
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
    """The command in parts; `argv` is the same in full."""
    variables: Mapping[str, Text]
    """The environment in parts; `env` is the same in full."""
    ready: Readiness
    cwd: str
    logdir: str
    log_limit: int
    env_from: tuple[str, ...]
    """Names of this machine's variables to pass on; their values are secrets and not stored."""
    in_cluster: bool = False
    """Whether it is in the cluster spec (an evaluator is not)."""
    gpus: tuple[str, ...] = ()
    """The GPUs that are its own, as `CUDA_VISIBLE_DEVICES` names them; none where it sees all of
    the host's, or none."""
    forward: bool = False
    max_restarts: int = 0
    setup: str = ""
    shell: Shell = Shell.NONE
    pty: bool = False
    stop: Stop = Stop.ALL
    stop_signal: StopSignal = StopSignal.TERM
    directory: bool = False
    """The task starts in a directory that the host has, not in a copy of the workdir."""
    warm: WarmStart | None = None
    """None: it always starts cold."""
    makes_logdir: bool = False
    """A command or a variable of the cluster names the log directory, so that it is there on every
    host that has a task: a program may write on another host than the one that reads."""

    @property
    def argv(self) -> tuple[str, ...]:
        """The words of the command."""
        return tuple(map(written, self.words))

    @property
    def env(self) -> dict[str, str]:
        """The variables of the environment."""
        return {name: written(value) for name, value in self.variables.items()}


def elsewhere_text(machine: str) -> str:
    """Says that `localhost` of a run is another machine, of which nothing can be known here."""
    return f"localhost of this run is {machine}, which launched it: use tfmux there"


@frozen
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
    gpu_names: tuple[str, ...] = ()
    """The GPUs in the file, where it names them."""
    data: tuple[Path, ...] = ()
    collect: tuple[str, ...] = ()
    prepare: tuple[str, ...] = ()
    via: tuple[str, ...] = ()
    """The command that reaches the host instead of SSH; with `ssh`, it is run there."""
    has_agent: bool = False
    """An engine has started its agent: bridges only look for it."""
    elsewhere: str = ""
    """Name of the machine that `localhost` is, where that is not this one: it has launched the
    run."""
    uses_trainer: bool = False
    """The bundled trainer is named for one of its tasks, as `{trainer}` or otherwise."""

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


@frozen
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
    exclude_places: tuple[str, ...]
    """Where people find each of these patterns."""
    workdir_named: bool
    """The file has the whole path of the workdir: it is copied even if it is a home."""
    cluster_spec: Mapping[str, list[str]]
    chief: TaskId | None
    ending: Ending

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

    def copies(self, host: HostPlan) -> bool:
        """Whether files are copied to a host for its tasks to start in."""
        if host.local:
            return False
        started = any(not task.directory for task in self.on_host(host.name))
        return bool(host.data or (self.workdir is not None and started))

    def endless(self) -> Iterator[Endless]:
        """Finds tasks because of which the run would never end by itself."""
        return endless(((task.id, task.role, task.argv) for task in self.tasks), self.ending)

    def sends_files(self, host: HostPlan) -> bool:
        """Whether a host is sent any files: to start in, or the bundled trainer."""
        return self.copies(host) or (host.uses_trainer and not host.local)

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


def missing(cluster: ClusterModel, task: TaskPlan, *, started: bool) -> str:
    """Says what a task has not done that was waited for, and which key of the file changes it."""
    match task.ready:
        case _ if not started:
            return "its process was not started"
        case PortListens():
            todo = 'for a program that opens no port write ready = "auto", for a slow one a longer '
            todo += "timeout in [start]"
            what = f"it does not listen on port {task.port}; {todo}"
        case LogMatches(pattern):
            what = f"no line of its log matches {pattern!r}"
        case After(seconds):
            what = f"it was to live for {seconds:g} s"
        case _:
            return "its process was not started"
    job = task.id.job
    in_start = cluster.jobs[job].ready is None and job in cluster.start.ready
    place = ("start", "ready", job) if in_start else ("jobs", job, "ready")
    return f"{what} ({cluster.place(*place)})"


def cannot_run(tasks: Sequence[TaskId], host: str, why: str) -> str:
    """Writes a sentence about tasks whose command, or directory, a host does not have."""
    named = ", ".join(map(str, tasks[:_MAX_LISTED])) + (", …" if len(tasks) > _MAX_LISTED else "")
    return f"{named} cannot run on {host}: {why}"


def unset_names(
    tasks: Iterable[TaskPlan], environ: Mapping[str, str]
) -> dict[str, tuple[TaskId, ...]]:
    """Finds the names in `env_from` that are not set in the launcher's environment, with the tasks
    that need them."""
    found: dict[str, tuple[TaskId, ...]] = {}
    for task in tasks:
        for name in task.env_from:
            if name not in environ:
                found[name] = (*found.get(name, ()), task.id)
    return found


def unset_note(name: str, tasks: Sequence[TaskId]) -> str:
    """Writes a sentence about a name in `env_from` that is not set."""
    more = f" and {len(tasks) - _MAX_LISTED} more" if len(tasks) > _MAX_LISTED else ""
    named = ", ".join(str(task) for task in tasks[:_MAX_LISTED])
    return f"{name} (env_from) is not set in the launcher's environment: {named}{more}"
