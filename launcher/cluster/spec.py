"""Model of a cluster file: typed and frozen, one class for each table, one field for each key.

The classes check each value alone; `checks` checks what must hold between values (an undefined
host, a port used twice); `file.load` does both and finds the lines. A model made in code is
therefore well-formed, but not necessarily consistent.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PlainSerializer,
    PlainValidator,
    PrivateAttr,
)
from pydantic import Field as field

from ..ids import TaskId
from .addresses import LOCALHOST
from .fields import (
    Address,
    Bytes,
    Command,
    Count,
    Destination,
    Env,
    EnvNames,
    Flag,
    Gpus,
    Jump,
    Lease,
    MetricsPattern,
    Name,
    Python,
    Seconds,
    Steps,
    Tasks,
    Text,
    WordList,
    Words,
    nearest,
    one_of,
    pattern,
    seconds,
    wrong,
)

DEFAULT_LOGDIR = "~/tfmux-logs/{name}/{run_id}"
DEFAULT_LOG_LIMIT = 10 * 1024**3


class Success(StrEnum):
    """Tasks whose exit with status 0 makes a run a success."""

    CHIEF = "chief"
    ALL = "all"


class OnFailure(StrEnum):
    """Effect of a task's failure on the run."""

    STOP = "stop"
    KEEP = "keep"
    RESTART = "restart"


class OnDisconnect(StrEnum):
    """Whether a host stops its tasks when its lease has ended without a launcher."""

    STOP = "stop"
    KEEP = "keep"


class OnHangup(StrEnum):
    """Effect on the run when the program that launched it disappears without detaching: its
    terminal was closed, or it was killed."""

    KILL = "kill"
    DETACH = "detach"


@dataclass(frozen=True)
class Listening:
    """Ready when the task's own process tree listens on its port."""


@dataclass(frozen=True)
class Started:
    """Ready as soon as the process has been started."""


@dataclass(frozen=True)
class LogMatches:
    """Ready when a line of the log matches the regular expression (over bytes)."""

    pattern: str


@dataclass(frozen=True)
class After:
    """Ready a number of seconds after the start."""

    seconds: float


@dataclass(frozen=True)
class Finished:
    """Ready when it has exited with status 0. For `prepare` lines only, not in cluster files."""


Readiness = Listening | Started | LogMatches | After | Finished


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


def _ready(value: Any) -> Readiness:
    if isinstance(value, Listening | Started | LogMatches | After):
        return value
    if value == "listening":
        return Listening()
    if value == "started":
        return Started()
    if isinstance(value, dict) and set(value) == {"log"}:
        return LogMatches(pattern(value["log"]))
    if isinstance(value, dict) and set(value) == {"after"}:
        return After(seconds(value["after"]))
    hint = nearest(value, ("listening", "started")) if isinstance(value, str) else ""
    forms = 'write "listening", "started", { log = "regex" } or { after = 5.0 }'
    raise wrong(forms + (f"; {hint}" if hint else ""))


def ready_value(ready: Readiness) -> str | dict[str, str | float]:
    """Returns a readiness as a cluster file's value."""
    match ready:
        case Listening():
            return "listening"
        case Started():
            return "started"
        case LogMatches(regex):
            return {"log": regex}
        case After(delay):
            return {"after": delay}
        case Finished():
            return "finished"


def _order(value: Any) -> Any:
    form = 'write a list of stages, each a list: [["ps"], ["worker:0"], ["worker"]]'
    if not isinstance(value, list | tuple):
        raise wrong(form)
    if any(isinstance(stage, str) for stage in value):
        raise wrong(f"{form}: each stage needs brackets of its own")
    return tuple(value)


Ready = Annotated[Readiness, PlainValidator(_ready), PlainSerializer(ready_value)]
Order = Annotated[tuple[WordList, ...], BeforeValidator(_order)]


class Host(_Table):
    """`[hosts.NAME]`: a machine that runs tasks. `localhost` is this machine and has no `ssh`."""

    ssh: Destination | None = None
    identity: Words | None = None
    jump: Jump | None = None
    known_hosts: Words | None = None
    address: Address | None = None
    python: Python | None = None
    gpus: Gpus | None = None
    env: Env = field(default_factory=dict)


class Job(_Table):
    """`[jobs.NAME]`: None means the value of `[run]`."""

    tasks: Tasks
    command: Command | None = None
    env: Env = field(default_factory=dict)
    gpus: Gpus | None = None
    """GPUs for each task of the job; None = its share of what the host has."""
    ready: Ready | None = None
    in_cluster: Flag = True
    forward: Flag = False
    max_restarts: Count | None = None
    data: WordList = ()
    collect: WordList = ()
    prepare: WordList = ()
    setup: Text | None = None
    env_from: EnvNames = ()
    pty: Flag | None = None
    log_limit: Bytes | None = None


class RunSettings(_Table):
    """`[run]`: settings of all tasks, and the rules of the run. Times are seconds."""

    command: Command | None = None
    workdir: Text = "."
    logdir: Words = DEFAULT_LOGDIR
    exclude: WordList = ()
    env: Env = field(default_factory=dict)
    success: Annotated[Success, one_of(Success)] = Success.CHIEF
    on_failure: Annotated[OnFailure, one_of(OnFailure)] = OnFailure.STOP
    max_restarts: Count = 3
    on_disconnect: Annotated[OnDisconnect, one_of(OnDisconnect)] = OnDisconnect.STOP
    on_hangup: Annotated[OnHangup, one_of(OnHangup)] = OnHangup.KILL
    lease: Lease = 600.0
    grace: Seconds = 10.0
    finish_timeout: Seconds = 60.0
    data: WordList = ()
    collect: WordList = ()
    prepare: WordList = ()
    setup: Text = ""
    env_from: EnvNames = ()
    pty: Flag = False
    log_limit: Bytes = DEFAULT_LOG_LIMIT


class Start(_Table):
    """`[start]`: the order of the stages, and when a task is ready."""

    order: Order | None = None
    """Jobs and tasks of each stage; a job means its tasks that are not listed themselves. None: ps,
    then chief, then every other job."""
    timeout: Seconds = 120.0
    ready: dict[str, Ready] = field(default_factory=dict)


class Metrics(_Table):
    """`[metrics]`: how a script's log lines give step and loss."""

    pattern: MetricsPattern | None = None
    total: Steps | None = None


class Cluster(_Table):
    """A whole cluster file.

    `base` is the directory that relative paths in the file start from; it is not a key.
    """

    name: Name
    hosts: dict[str, Host] = field(default_factory=dict)
    jobs: dict[str, Job]
    run: RunSettings = field(default_factory=RunSettings)
    start: Start = field(default_factory=Start)
    metrics: Metrics = field(default_factory=Metrics)
    _base: Path = PrivateAttr(default_factory=Path.cwd)

    @property
    def base(self) -> Path:
        """The absolute directory that relative paths start from."""
        return self._base

    def based_on(self, folder: Path) -> Cluster:
        """Returns a copy whose relative paths start from `folder`."""
        copy = self.model_copy()
        copy._base = folder.absolute()
        return copy

    def local_path(self, path: str) -> Path:
        """Makes a path of this machine absolute; `~` is the user's home."""
        return Path(os.path.normpath(self._base / os.path.expanduser(path)))

    def address(self, host: str) -> str:
        """Returns the address of `host` for other hosts: `address`, else its SSH host name."""
        entry = self.hosts.get(host)
        if entry is not None and entry.address is not None:
            return entry.address
        return LOCALHOST if entry is None or entry.ssh is None else entry.ssh.host

    def is_local(self, host: str) -> bool:
        """Whether `host` is this machine."""
        entry = self.hosts.get(host)
        return entry is None or entry.ssh is None

    def in_spec(self, job: str) -> bool:
        """Whether the job is in the cluster spec; an evaluator is not."""
        return self.jobs[job].in_cluster and job != "evaluator"

    @property
    def chief(self) -> TaskId | None:
        """Task 0 of the `chief` job, else of `worker`, else none."""
        names = (j for j in ("chief", "worker") if j in self.jobs and self.in_spec(j))
        return next((TaskId(job, 0) for job in names), None)
