"""Model of a cluster file: typed and frozen, one class for each table, one field for each key.

The classes check each value alone; `checks` checks what must hold between values (an undefined
host, a port used twice); `file.load` does both and finds the lines. A model made in code is
therefore well-formed, but not necessarily consistent.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, get_args

from pydantic import BaseModel, PrivateAttr, model_validator
from pydantic import Field as field

from ..ids import TaskId
from .addresses import LOCALHOST
from .choices import Framework
from .fields import (
    Bytes,
    Command,
    Count,
    Env,
    EnvNames,
    Flag,
    Gpus,
    IgnorePatterns,
    Key,
    Lease,
    Name,
    Order,
    Seconds,
    Tasks,
    Text,
    Warm,
    WordList,
    Words,
    one_of,
)
from .hooks import Hooks
from .host import Defaults, Host
from .key_lines import UNKNOWN_LINES, FileLines
from .metrics_table import Metrics
from .rules import OnDisconnect, OnFailure, OnHangup, Ready, Shell, Success
from .slurm import PENDING, Slurm
from .table import Table

DEFAULT_LOGDIR = "~/tfmux-logs/{name}/{run_id}"
DEFAULT_LOG_LIMIT = 10 * 1024**3


_AS_RUN = "as in `[run]`"
_AS_HOST = "the host's, else as in `[run]`"


class Job(Table):
    """`[jobs.NAME]`: tasks with one purpose. What is left out is taken from `[run]`."""

    tasks: Annotated[
        Tasks,
        Key(
            "list of `host:port`. `host:auto` is a port that is free on that host at the launch, "
            "and picked for nobody else",
        ),
    ]
    command: Annotated[
        Command | None, Key("program and arguments. No shell reads them", "`[run] command`")
    ] = None
    env: Annotated[
        Env,
        Key("variables for its tasks. They win over the host's, and those over `[run] env`"),
    ] = field(default_factory=dict)
    gpus: Annotated[
        Gpus | None,
        Key(
            "GPUs for each task. By default ps and helpers get none, and what is left is split "
            "between the tasks that train",
            "its share",
        ),
    ] = None
    ready: Annotated[
        Ready | None,
        Key("when a task is ready and the next stage may start", "as in `[start.ready]`"),
    ] = None
    in_cluster: Annotated[
        Flag,
        Key(
            "part of the cluster spec. "
            "`false` makes the job a helper, whose failure never ends a run"
        ),
    ] = True
    forward: Annotated[
        Flag, Key("forward its port to this machine, over SSH, for a browser here")
    ] = False
    max_restarts: Annotated[Count | None, Key("restarts of each task", _AS_RUN)] = None
    setup: Annotated[
        Text | None, Key("shell lines before each task, such as `conda activate tf`", _AS_HOST)
    ] = None
    shell: Annotated[
        Annotated[Shell, one_of(Shell)] | None,
        Key("shell through which its tasks are started", _AS_HOST),
    ] = None
    data: Annotated[
        WordList, Key("directories for its hosts, copied whole. In addition to those of `[run]`")
    ] = ()
    collect: Annotated[
        WordList,
        Key("paths on its hosts that are fetched at the end. In addition to those of `[run]`"),
    ] = ()
    prepare: Annotated[
        WordList,
        Key("shell lines that run once on each of its hosts. In addition to those of `[run]`"),
    ] = ()
    env_from: Annotated[
        EnvNames,
        Key("variables of the launcher's environment to pass on. In addition to those of `[run]`"),
    ] = ()
    pty: Annotated[Flag | None, Key("give its tasks a terminal", _AS_RUN)] = None
    log_limit: Annotated[Bytes | None, Key("bytes of each task's log", _AS_RUN)] = None


class RunSettings(Table):
    """`[run]`: settings of all tasks, and the rules of the run. Times are seconds."""

    command: Annotated[
        Command | None, Key("program and arguments for every job that has no command of its own")
    ] = None
    workdir: Annotated[
        Text,
        Key(
            "directory that is copied to every remote host, and in which tasks run. "
            '`""` copies nothing'
        ),
    ] = "."
    logdir: Annotated[
        Words, Key("directory for checkpoints and summaries, on each host. It is `{logdir}`")
    ] = DEFAULT_LOGDIR
    env: Annotated[Env, Key("variables for every task. Texts or whole numbers")] = field(
        default_factory=dict
    )
    framework: Annotated[
        Framework,
        one_of(Framework),
        Key("whose variables the tasks get, such as `TF_CONFIG` or `RANK`. See *Ranks*"),
    ] = Framework.TENSORFLOW
    success: Annotated[
        Success,
        one_of(Success),
        Key(
            "whose clean exit makes the run a success. "
            "`all` means every task of the cluster except ps"
        ),
    ] = Success.CHIEF
    on_failure: Annotated[
        OnFailure, one_of(OnFailure), Key("what a task's failure does to the run")
    ] = OnFailure.STOP
    max_restarts: Annotated[Count, Key("restarts of each task")] = 3
    on_disconnect: Annotated[
        OnDisconnect,
        one_of(OnDisconnect),
        Key("what a host does when it has lost the launcher"),
    ] = OnDisconnect.STOP
    on_hangup: Annotated[
        OnHangup,
        one_of(OnHangup),
        Key(
            "what happens to the run when the program that launched it disappears without "
            "detaching. Its terminal was closed, or it was killed"
        ),
    ] = OnHangup.KILL
    lease: Annotated[
        Lease, Key("seconds for which a host waits for a lost launcher before it acts")
    ] = 600.0
    grace: Annotated[Seconds, Key("seconds between TERM and KILL")] = 10.0
    finish_timeout: Annotated[
        Seconds, Key("seconds of silence after which a task that hangs at its end is ended")
    ] = 60.0
    exclude: Annotated[
        IgnorePatterns, Key("patterns, as in `.gitignore`, of what is not copied")
    ] = ()
    data: Annotated[
        WordList, Key("directories that are copied whole. See *What goes to a host*")
    ] = ()
    collect: Annotated[
        WordList,
        Key("paths on the hosts that are fetched at the end. See *What comes back*"),
    ] = ()
    prepare: Annotated[
        WordList, Key("shell lines that run once for each host and content. See *`prepare`*")
    ] = ()
    setup: Annotated[
        Text,
        Key("shell lines before each task, such as `conda activate tf`. One that fails ends it"),
    ] = ""
    shell: Annotated[
        Shell,
        one_of(Shell),
        Key(
            "shell through which tasks are started. `login` is the account's own, with "
            "`/etc/profile` and what conda and modules put there. See `docs/environment.md`"
        ),
    ] = Shell.NONE
    env_from: Annotated[
        EnvNames,
        Key(
            "variables of the launcher's environment to pass on. For secrets: they are stored "
            "nowhere. A task starts without one that is not set: `check` warns and a note of the "
            "run names the tasks; so does a restart after `attach` from a shell that lacks it"
        ),
    ] = ()
    pty: Annotated[Flag, Key("give tasks a terminal")] = False
    log_limit: Annotated[Bytes, Key("bytes of each task's log", "10 GiB")] = DEFAULT_LOG_LIMIT


class StartSettings(Table):
    """`[start]`: the order of the stages, and when a task is ready."""

    order: Annotated[
        Order | None,
        Key(
            'stages, each a list of jobs and tasks: `[["ps"], ["worker:0"], ["worker"]]`. '
            "A job means its tasks that are not listed themselves",
            "ps, then chief, then all others",
        ),
    ] = None
    timeout: Annotated[Seconds, Key("seconds until a task that is not ready is a failure")] = 120.0
    warm: Annotated[
        Warm,
        Key(
            "modules that each task's Python imports while it waits for its stage. `true` means "
            "what the bundled trainer needs, and no other program; a list is for Python programs "
            "of your own. See *Warm start*"
        ),
    ] = True
    ready: Annotated[
        dict[str, Ready],
        Key(
            'for each job: `"listening"`, `"started"`, `"auto"`, `{ log = "regex" }` or '
            "`{ after = 5.0 }`",
            "see *When a task is ready*",
        ),
    ] = field(default_factory=dict)


class ClusterModel(Table):
    """A whole cluster file.

    `base` is the directory that relative paths in the file start from; it is not a key.
    """

    name: Annotated[
        Name,
        Key(
            "the cluster's name. Letters, digits, `.`, `_` and `-`; it is part of every run's id",
            "the file's name",
        ),
    ]
    defaults: Defaults = field(default_factory=Defaults)
    hosts: dict[str, Host] = field(default_factory=dict)
    jobs: dict[str, Job]
    run: RunSettings = field(default_factory=RunSettings)
    start: StartSettings = field(default_factory=StartSettings)
    metrics: Metrics = field(default_factory=Metrics)
    hooks: Hooks = field(default_factory=Hooks)
    slurm: Slurm | None = None
    _base: Path = PrivateAttr(default_factory=Path.cwd)
    _lines: FileLines = PrivateAttr(UNKNOWN_LINES)

    @model_validator(mode="after")
    def _with_defaults(self) -> ClusterModel:
        if "defaults" in self.model_fields_set:
            for name, host in self.hosts.items():
                self.hosts[name] = host.with_defaults(self.defaults.host)
        return self

    @property
    def base(self) -> Path:
        """The absolute directory that relative paths start from."""
        return self._base

    def based_on(self, folder: Path, lines: FileLines = UNKNOWN_LINES) -> ClusterModel:
        """Returns a copy whose relative paths start from `folder`, from the file of `lines`."""
        copy = self.model_copy()
        copy._base, copy._lines = folder.absolute(), lines
        return copy

    def line_of(self, *path: str) -> int | None:
        """Returns the line of a key in the file, or of the nearest table around it."""
        return self._lines.of(path)

    def where(self, *path: str) -> str:
        """Returns a key and where it stands: `run.workdir (c.toml:12)`."""
        line = self.line_of(*path)
        place = f" ({self._lines.source}:{line})" if line else ""
        return f"{'.'.join(path)}{place}"

    def with_hosts(self, hosts: dict[str, Host]) -> ClusterModel:
        """Returns a copy that has these hosts, too, or in place of those of the same names."""
        return self.model_copy(update={"hosts": {**self.hosts, **hosts}})

    def with_pending_nodes(self) -> ClusterModel:
        """Returns a copy with the hosts that Slurm has yet to give."""
        if self.slurm is None:
            return self
        missing = (name for name in self.slurm.node_names if name not in self.hosts)
        return self.with_hosts({name: self.node(name) for name in missing})

    def node(self, address: str, via: tuple[str, ...] = PENDING) -> Host:
        """Returns the host that a node of Slurm is; `via` is the command there."""
        table = self.slurm
        assert table is not None
        return Host(
            ssh=table.login if via != PENDING else None,
            via=via,
            address=address,
            python=table.python,
            gpus=table.gpus,
        )

    def local_path(self, path: str) -> Path:
        """Makes a path of this machine absolute; `~` is the user's home."""
        return Path(os.path.normpath(self._base / os.path.expanduser(path)))

    def address(self, host: str) -> str:
        """Returns the address of `host` for other hosts: `address`, else its SSH host name."""
        entry = self.hosts.get(host)
        if entry is not None and entry.address is not None:
            return entry.address
        if entry is None or self.is_local(host):
            return LOCALHOST
        return host if entry.ssh is None else entry.ssh.host

    def is_local(self, host: str) -> bool:
        """Whether `host` is this machine."""
        entry = self.hosts.get(host)
        return entry is None or (entry.ssh is None and entry.via is None)

    def in_spec(self, job: str) -> bool:
        """Whether the job is in the cluster spec; an evaluator is not."""
        return self.jobs[job].in_cluster and job != "evaluator"

    @property
    def chief(self) -> TaskId | None:
        """Task 0 of the `chief` job, else of `worker`, else none."""
        names = (j for j in ("chief", "worker") if j in self.jobs and self.in_spec(j))
        return next((TaskId(job, 0) for job in names), None)


def tables_in(model: type[BaseModel]) -> dict[str, type[BaseModel]]:
    """Returns the tables right below that of a model, with their own models."""
    return {
        name: inner
        for name, entry in model.model_fields.items()
        for inner in (entry.annotation, *get_args(entry.annotation))
        if isinstance(inner, type) and issubclass(inner, BaseModel)
    }


TABLES: dict[str, type[BaseModel]] = {
    f"{name}.{inner}".rstrip("."): table
    for name, model in tables_in(ClusterModel).items()
    for inner, table in (tables_in(model) or {"": model}).items()
}
"""The tables of a file with their models. Those of `NAMED_TABLES` are `[hosts.NAME]`."""
NAMED_TABLES = ("hosts", "jobs")
