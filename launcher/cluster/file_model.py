"""Model of a cluster file: typed and frozen, one class for each table, one field for each key.

The classes check each value alone; `problems` checks what must hold between values (an undefined
host, a port used twice); `read.load` does both and finds the lines. A model made in code is
therefore well-formed, but not necessarily consistent.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar, get_args

from pydantic import BaseModel, ConfigDict, PrivateAttr, model_validator
from pydantic import Field as field

from ..agent.executables import program_problem
from ..ids import TaskId
from ..start_problems import problem_text
from .addresses import LOCALHOST
from .choices import (
    Framework,
    OnDisconnect,
    OnFailure,
    OnHangup,
    Shell,
    Stop,
    StopSignal,
    Success,
)
from .key_lines import NO_FILE, SourceFile
from .roles import ROLES, Role, jobs_with
from .values import (
    BACKGROUND_LEASE,
    Address,
    Bytes,
    Command,
    Count,
    Destination,
    Directory,
    Env,
    EnvNames,
    Flag,
    GpuNumber,
    Gpus,
    IgnorePatterns,
    JobId,
    Jump,
    Key,
    Lease,
    MetricsPattern,
    Name,
    Nodes,
    Options,
    Order,
    Partition,
    Python,
    Ready,
    Seconds,
    Steps,
    Tasks,
    Text,
    TimeLimit,
    User,
    Via,
    Warm,
    WordList,
    Words,
)


class FileTable(BaseModel):
    """A table: frozen, without keys that are not known, and quiet about values, which may be
    secrets."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, defer_build=True
    )


DEFAULT_LOGDIR = "~/tfmux-logs/{name}/{run_id}"
DEFAULT_LOG_LIMIT = 10 * 1024**3

_AS_HOST = "the host's, else as in `[run]`"
PENDING = ("false",)
"""Command in place of the one that reaches a node, before there is a node: it only fails."""

_AS_SSH = "as `ssh` does"
_AS_RUN = "as in `[run]`"
SSH_OPTIONS = ("user", "identity", "jump", "known_hosts")
"""Keys that only a host with `ssh` has."""


class _Place(FileTable):
    ssh: Annotated[
        Destination | None,
        Key(
            "`user@host:port`, `host`, or an alias of `~/.ssh/config`. "
            "IPv6 is written `user@[fd00::1]:22`",
        ),
    ] = None
    address: Annotated[
        Address | None,
        Key(
            "name or IP address that the *other* hosts use for it, without a port",
            "its `HostName` in `~/.ssh/config`, else the name in `ssh`",
        ),
    ] = None


class HostDefaults(FileTable):
    """`[defaults.host]`: values for every `[hosts.NAME]` that has none of its own."""

    python: Annotated[
        Python | None,
        Key(
            "interpreter for `{python}` and for tfmux's agent. On this machine: tfmux's own",
            "`python3`",
        ),
    ] = None
    gpus: Annotated[
        Gpus | None,
        Key(
            'number of GPUs for this cluster, or their numbers or ids, such as `"0,2"`',
            "as reported",
        ),
    ] = None
    user: Annotated[User | None, Key("account to log in as, where `ssh` names none", _AS_SSH)] = (
        None
    )
    identity: Annotated[
        Words | None,
        Key("file with the private key to log in with", _AS_SSH),
    ] = None
    jump: Annotated[
        Jump | None,
        Key(
            "`user@host:port` of a host to go through. Several with commas, in their order",
            _AS_SSH,
        ),
    ] = None
    known_hosts: Annotated[
        Words | None,
        Key("file with the host's key. Keys that were accepted in tfmux count, too", _AS_SSH),
    ] = None
    setup: Annotated[
        Text | None,
        Key("shell lines before each of its tasks. A job's own wins", _AS_RUN),
    ] = None
    shell: Annotated[
        Shell | None,
        Key("shell through which its tasks are started. A job's own wins", _AS_RUN),
    ] = None
    env: Annotated[Env, Key("variables for its tasks")] = field(default_factory=dict)


class Host(HostDefaults, _Place):
    """`[hosts.NAME]`: a machine that runs tasks. `localhost` is this machine and has no `ssh`.

    A host is reached by `ssh` or by `via`.
    """

    via: Annotated[
        Via | None,
        Key(
            'command that reaches the host instead of `ssh`, such as `["podman", "exec", "-i", '
            '"tf1"]`. See `docs/hosts.md`'
        ),
    ] = None

    def with_defaults(self, defaults: HostDefaults) -> Host:
        """Returns a copy with the defaults for what it does not say itself; `env` is merged."""
        given = {
            key: value
            for key, value in defaults
            if value is not None and getattr(self, key) is None
            if self.ssh is not None or key not in SSH_OPTIONS
        }
        return self.model_copy(update=given | {"env": {**defaults.env, **self.env}})


class Defaults(FileTable):
    """`[defaults]`: values that tables of the same kind have in common."""

    host: HostDefaults = field(default_factory=HostDefaults)


class Job(FileTable):
    """`[jobs.NAME]`: tasks with one purpose. What is left out is taken from `[run]`."""

    tasks: Annotated[
        Tasks,
        Key(
            "list of `host:port`. `host:auto` is a port that is free there at the launch",
        ),
    ]
    command: Annotated[
        Command | None, Key("program and arguments. No shell reads them", "`[run] command`")
    ] = None
    env: Annotated[
        Env,
        Key("variables for its tasks. They win over the variables of the host and of `[run]`"),
    ] = field(default_factory=dict)
    gpus: Annotated[
        Gpus | None,
        Key(
            "number of GPUs for each task, or GPUs for all of its tasks on a host, such as "
            '`"0,2"`. See *GPUs*',
            "its share",
        ),
    ] = None
    ready: Annotated[
        Ready | None,
        Key("when a task is ready and the next stage may start", "as in `[start.ready]`"),
    ] = None
    in_cluster: Annotated[
        Flag,
        Key("part of the cluster spec. `false` makes a helper, whose failure ends no run"),
    ] = True
    forward: Annotated[
        Flag, Key("forward its port to this machine, over SSH, for a browser here")
    ] = False
    max_restarts: Annotated[Count | None, Key("restarts of each task", _AS_RUN)] = None
    setup: Annotated[
        Text | None, Key("shell lines before each task, such as `conda activate tf`", _AS_HOST)
    ] = None
    shell: Annotated[
        Shell | None,
        Key("shell through which its tasks are started", _AS_HOST),
    ] = None
    directory: Annotated[
        Directory | None,
        Key("directory that its hosts have already, in which its tasks start", _AS_RUN),
    ] = None
    data: Annotated[
        WordList, Key("directories for its hosts, copied whole. `[run]` adds its own")
    ] = ()
    collect: Annotated[
        WordList,
        Key("paths on its hosts that are fetched at the end. `[run]` adds its own"),
    ] = ()
    prepare: Annotated[
        WordList,
        Key("shell lines that run once on each of its hosts. `[run]` adds its own"),
    ] = ()
    env_from: Annotated[
        EnvNames,
        Key("variables of the launcher's environment to pass on. `[run]` adds its own"),
    ] = ()
    pty: Annotated[Flag | None, Key("give its tasks a terminal", _AS_RUN)] = None
    log_limit: Annotated[Bytes | None, Key("bytes of each task's log", _AS_RUN)] = None
    stop: Annotated[
        Stop | None, Key("which of a task's processes get the stop signal", _AS_RUN)
    ] = None
    stop_signal: Annotated[StopSignal | None, Key("signal that asks a task to end", _AS_RUN)] = None


class RunSettings(FileTable):
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
    directory: Annotated[
        Directory | None,
        Key(
            "directory that the hosts have already, such as `~/proj`: tasks start there, and "
            "nothing is copied. Instead of `workdir`"
        ),
    ] = None
    logdir: Annotated[
        Words, Key("directory for checkpoints and summaries, on each host. It is `{logdir}`")
    ] = DEFAULT_LOGDIR
    env: Annotated[Env, Key("variables for every task. Values are texts or whole numbers")] = field(
        default_factory=dict
    )
    framework: Annotated[
        Framework,
        Key("framework whose variables the tasks get, such as `TF_CONFIG` or `RANK`. See *Ranks*"),
    ] = Framework.TENSORFLOW
    success: Annotated[
        Success | None,
        Key(
            "tasks whose clean exit makes the run a success. `all`: every cluster task except ps. "
            "See *When a run ends*",
            '`"chief"`. With `framework = "torch"`, `"jax"` or `"mpi-like"` `"all"`',
        ),
    ] = None
    on_failure: Annotated[
        OnFailure,
        Key("what a task's failure does to the run. See *When a task fails*"),
    ] = OnFailure.STOP
    max_restarts: Annotated[
        Count, Key("restarts of each task; with `restart-all`, of all of them together")
    ] = 3
    on_disconnect: Annotated[
        OnDisconnect,
        Key("what a host does when it has lost the launcher"),
    ] = OnDisconnect.STOP
    on_hangup: Annotated[
        OnHangup,
        Key(
            "what happens to the run when the program that launched it disappears without detaching"
        ),
    ] = OnHangup.KILL
    lease: Annotated[
        Lease, Key("seconds for which a host waits for a lost launcher before it acts")
    ] = 600.0
    detached_lease: Annotated[
        Lease | None,
        Key("`lease` of a run that goes on without a screen", "86400 (24 h), or a longer `lease`"),
    ] = None
    grace: Annotated[Seconds, Key("seconds between the stop signal and KILL")] = 10.0
    stop: Annotated[
        Stop | None,
        Key(
            "which of a task's processes get the stop signal. See *How a task is ended*",
            '`all`. With `framework = "torch"` `first`',
        ),
    ] = None
    stop_signal: Annotated[
        StopSignal,
        Key("signal that asks a task to end"),
    ] = StopSignal.TERM
    finish_timeout: Annotated[
        Seconds, Key("seconds of silence after which a task that hangs at its end is ended")
    ] = 60.0
    exclude: Annotated[
        IgnorePatterns, Key("patterns of files that are not copied, as in `.gitignore`")
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
        Key(
            "shell through which tasks are started. `login` is the account's own: "
            "`docs/environment.md`"
        ),
    ] = Shell.NONE
    env_from: Annotated[
        EnvNames,
        Key("variables of the launcher's environment to pass on. For secrets: see *Secrets*"),
    ] = ()
    pty: Annotated[Flag, Key("give tasks a terminal")] = False
    log_limit: Annotated[
        Bytes, Key("bytes of each task's log: its beginning and its end", "10 GiB")
    ] = DEFAULT_LOG_LIMIT

    @property
    def background_lease(self) -> float:
        """Seconds for which hosts wait for the launcher of a run that nobody has on a screen. Under
        `keep` a lease ends no task, and stays as it is."""
        if self.on_disconnect is OnDisconnect.KEEP:
            return self.lease
        return self.detached_lease or max(self.lease, BACKGROUND_LEASE)


class StartSettings(FileTable):
    """`[start]`: the order of the stages, and when a task is ready."""

    order: Annotated[
        Order | None,
        Key(
            'stages, each a list of jobs and tasks: `[["ps"], ["worker:0"], ["worker"]]`. '
            "A job means its tasks that are not listed themselves",
            "ps, then chief, then all others",
        ),
    ] = None
    timeout: Annotated[Seconds, Key("seconds for which a stage waits for the one before")] = 120.0
    warm: Annotated[
        Warm,
        Key(
            "modules that each task's Python imports while it waits for its stage. See *Warm start*"
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


class Metrics(FileTable):
    """`[metrics]`: how a script with a format of its own says its step and loss."""

    pattern: Annotated[
        MetricsPattern | None,
        Key(
            r"regular expression with a group `step`, such as `iter (?P<step>\d+)`. `step` is the "
            "global one; `loss` and any other groups are read, too",
            "known formats",
        ),
    ] = None
    total: Annotated[Steps | None, Key("last step. It makes the step a progress bar")] = None


def hook_problem(command: Sequence[str], base: Path) -> str:
    """Reason for which the program of a hook cannot be run; empty if it can. A relative path starts
    from `base`."""
    problem = program_problem(os.path.expanduser(command[0]), None, str(base))
    return "" if problem is None else problem_text(problem)


class Hooks(FileTable):
    """`[hooks]`: programs that the launcher process runs on the launching machine."""

    on_success: Annotated[
        Command | None,
        Key(
            "program and arguments, run on this machine when the run has ended with exit code 0. "
            "See `docs/hooks.md`"
        ),
    ] = None
    on_failure: Annotated[
        Command | None, Key("program for a run that has ended with exit code 1, 3 or 4")
    ] = None
    on_stall: Annotated[
        Command | None, Key("program for tasks whose next metric line is long overdue")
    ] = None
    on_end: Annotated[
        Command | None,
        Key("program for every end of a run. It runs in addition to the other hooks"),
    ] = None


class Slurm(FileTable):
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
            "hours)",
            "required, unless there is `job`",
        ),
    ] = None
    partition: Annotated[
        Partition | None, Key("partition, or several with commas", "the site's default")
    ] = None
    gpus: Annotated[
        GpuNumber | None,
        Key("GPUs on each node (`--gpus-per-node`), split among its tasks", "none"),
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
        Key('further options of `sbatch`, such as `["--account=proj42", "--constraint=a100"]`'),
    ] = ()
    job: Annotated[
        JobId | None,
        Key(
            "id of a job of yours that runs, such as one of `salloc`: its first `nodes` are used. "
            "It stays when the run has ended",
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


def node_name(number: int) -> str:
    """Name of a node as a host of the cluster file."""
    return f"node{number}"


class ClusterModel(FileTable):
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
    _file: SourceFile = PrivateAttr(NO_FILE)

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

    @property
    def file(self) -> SourceFile:
        """The file that it was read from."""
        return self._file

    def based_on(self, folder: Path, file: SourceFile = NO_FILE) -> ClusterModel:
        """Returns a copy whose relative paths start from `folder`, as read from `file`."""
        copy = self.model_copy()
        copy._base, copy._file = folder.absolute(), file
        return copy

    def place(self, *path: str | int) -> str:
        """Returns where a key or an element of a list stands: `exclude in [run], line 12`; the same
        for a run's own copy of its file."""
        *tables, key = (part for part in path if isinstance(part, str))
        line = self._file.line(path)
        return f"{key} in [{'.'.join(tables)}]{f', line {line}' if line else ''}"

    def where(self, *path: str) -> str:
        """Returns a key and where it stands: `run.workdir (c.toml:12)`."""
        line = self._file.line(path)
        place = f" ({self._file.name}:{line})" if line else ""
        return f"{'.'.join(path)}{place}"

    def with_hosts(self, hosts: dict[str, Host]) -> ClusterModel:
        """Returns a copy that has these hosts, too, or in place of those of the same names."""
        return self.model_copy(update={"hosts": {**self.hosts, **hosts}})

    def with_addresses(self, addresses: Mapping[str, str]) -> ClusterModel:
        """Returns a copy in which these hosts have addresses."""
        if not addresses:
            return self
        return self.with_hosts(
            {
                name: self.hosts[name].model_copy(update={"address": address})
                for name, address in addresses.items()
            }
        )

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
        """Returns the address of `host` for other hosts: `address`, else the name in `ssh`, until
        `ssh_config` has been read (`hosts.other_names`)."""
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

    @property
    def uses_ssh(self) -> bool:
        """Hosts are reached over SSH, as far as the file says: nodes of Slurm may be."""
        return self.slurm is not None or any(host.ssh for host in self.hosts.values())

    def in_spec(self, job: str) -> bool:
        """Whether the job is in the cluster spec; an evaluator is not."""
        return self.jobs[job].in_cluster and ROLES.get(job) is not Role.EVALUATOR

    @property
    def chief(self) -> TaskId | None:
        """Task 0 of the chief's job, else of the workers', else none."""
        names = (*jobs_with(Role.CHIEF, self.jobs), *jobs_with(Role.WORKER, self.jobs))
        return next((TaskId(job, 0) for job in names if self.in_spec(job)), None)

    def role(self, job: str) -> Role:
        """Returns the role of a job's tasks; one of the workers may be the chief all the same."""
        named = ROLES.get(job, Role.WORKER)
        if named is Role.EVALUATOR or self.jobs[job].in_cluster:
            return named
        return Role.HELPER


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
