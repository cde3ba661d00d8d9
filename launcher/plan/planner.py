"""Plan of a run, made from a cluster file: each task's exact command and environment, the hosts.

Pure except for this machine's home, environment and the folder of the installed trainer: no
network, nothing is started. `tfmux plan` shows a plan made without facts; a launch makes it again
with the facts that the hosts' agents report (home, GPUs, free ports for `auto`).

The second plan is made anew, not completed from the first, which says which hosts to ask and what
screens show meanwhile. A fact changes the text of every task: its folders, its share of the GPUs,
and in `TF_CONFIG` and the like the ports of all others. That text is more than half of what a plan
takes (1.7 ms for 16 tasks, 0.1 s for 1,000), and would need the same rules in a second form: with
placeholders that wait in each word, and for a third plan with Slurm's nodes, a fourth with the
ports of a restart.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

from ..cluster.addresses import bracketed, join
from ..cluster.choices import Framework, OnFailure, Shell, Stop
from ..cluster.file_model import ClusterModel, Host, Job, RunSettings
from ..cluster.placeholders import expand, expanded, names_in
from ..cluster.problems import PREPARE
from ..cluster.ranks import ranks
from ..cluster.readiness import Auto, Finished, PortListens, ProcessStarted, Readiness
from ..cluster.roles import ADDRESS_LISTS, ROLES, Role, jobs_with
from ..cluster.values import gpu_count
from ..ids import TaskId, split_run_id
from ..paths import installed_scripts, installed_trainer
from . import environment
from .ending import ending
from .environment import GpuRequest, GpuShare, Text, written
from .facts import HostFacts, Resume
from .run_plan import HostPlan, Plan, SshTarget, TaskPlan
from .shell import WarmStart, warm_start
from .tilde import command_with_home, value_with_home


def make_plan(
    cluster: ClusterModel,
    run_id: str,
    facts: Mapping[str, HostFacts] = MappingProxyType({}),
    resume: Resume | None = None,
    attempt: int = 1,
) -> Plan:
    """Makes the plan of a cluster that `cluster.read` has checked.

    With `resume`, the log directory is that run's, and the tasks have its id in `TFMUX_RESUME`.
    `attempt` is the number of the start of all tasks.
    """
    return _Planner(cluster, run_id, facts, resume, attempt).plan()


class _Planner:
    """State of `make_plan`: values that all tasks share are computed once."""

    def __init__(
        self,
        cluster: ClusterModel,
        run_id: str,
        facts: Mapping[str, HostFacts],
        resume: Resume | None,
        attempt: int,
    ) -> None:
        addresses = {host: each.address for host, each in facts.items() if each.address}
        self._cluster = cluster = cluster.with_addresses(addresses)
        self._run_id = run_id
        self._resume = resume
        self._attempt = attempt
        # As torchrun does: helpers that load data must outlive the last checkpoint.
        self._stop = Stop.FIRST if cluster.run.framework is Framework.TORCH else Stop.ALL
        self._stages = stages(cluster)
        self._first = frozenset(self._stages[0])
        self._ranks = ranks(cluster)
        self._on: dict[str, list[TaskId]] = {}
        self._prepare: dict[TaskId, str] = {}
        for task in (task for stage in self._stages for task in stage):
            self._on.setdefault(self._host_of(task), []).append(task)
        prepared = [host for host in self._on if self._prepare_lines(host)]
        self._prepare = {TaskId(PREPARE, at): host for at, host in enumerate(prepared)}
        self._facts = {host: self._complete(host, facts.get(host)) for host in self._on}
        self._ports = {task: self._port(task) for stage in self._stages for task in stage}
        self._spec = {
            job: [self._place(TaskId(job, index)) for index in range(len(entry.tasks))]
            for job, entry in cluster.jobs.items()
            if cluster.in_spec(job)
        }
        self._spec_json = json.dumps(self._spec)
        self._shared = self._shared_values()
        self._gpus, self._visible = self._gpu_shares()
        self._no_proxy_hosts = ",".join(dict.fromkeys(cluster.address(host) for host in self._on))

    def plan(self) -> Plan:
        cluster, run = self._cluster, self._cluster.run
        tasks = tuple(self._task(task) for stage in self._stages for task in stage)
        first = tuple(self._prepare)
        prepare = tuple(map(self._prepare_task, first))
        roles = [(task.id, task.role) for task in (*prepare, *tasks)]
        return Plan(
            name=cluster.name,
            run_id=self._run_id,
            hosts=tuple(self._host(host) for host in self._on),
            tasks=(*prepare, *tasks),
            stages=(first, *self._stages) if first else self._stages,
            settings=run,
            start_timeout=cluster.start.timeout,
            total_steps=cluster.metrics.total,
            metrics_pattern=cluster.metrics.pattern,
            workdir=Path(self._local_workdir()) if run.workdir and not run.directory else None,
            exclude=run.exclude,
            exclude_places=tuple(
                cluster.place("run", "exclude", number) for number in range(len(run.exclude))
            ),
            workdir_named=run.workdir.startswith(("/", "~")),
            cluster_spec=self._spec,
            chief=cluster.chief,
            ending=ending(roles, run.success, run.framework),
        )

    def _task(self, task: TaskId) -> TaskPlan:
        cluster, run, job = self._cluster, self._cluster.run, self._cluster.jobs[task.job]
        host = self._host_of(task)
        values = self._values(task)
        command = job.command or run.command or ()
        words = tuple(self._text(word, values) for word in command_with_home(command))
        argv = tuple(map(written, words))
        pty = run.pty if job.pty is None else job.pty
        setup, shell = self._shells(host, job)
        cold = pty or shell is Shell.LOGIN  # what is between reads the input by which it would wait
        variables = self._variables(task, values)
        return TaskPlan(
            id=task,
            role=self._role(task),
            host=host,
            port=self._ports[task],
            address=self._place(task),
            words=words,
            variables=variables,
            gpus=self._gpu_names(task, variables),
            ready=readiness(cluster, task.job),
            in_cluster=cluster.in_spec(task.job),
            forward=job.forward,
            cwd=values["workdir"],
            logdir=values["logdir"],
            max_restarts=run.max_restarts if job.max_restarts is None else job.max_restarts,
            log_limit=run.log_limit if job.log_limit is None else job.log_limit,
            setup=setup,
            shell=shell,
            pty=pty,
            stop=job.stop or run.stop or self._stop,
            stop_signal=job.stop_signal or run.stop_signal,
            directory=self._written_directory(task) is not None,
            env_from=tuple(dict.fromkeys((*run.env_from, *job.env_from))),
            warm=None if cold else self._warm_start(task, argv, values["python"]),
            makes_logdir=self._names_logdir,
        )

    def _text(self, text: str, values: Mapping[str, str]) -> Text:
        return tuple(filter(None, expanded(text, values, self._shared)))

    def _warm_start(self, task: TaskId, argv: tuple[str, ...], python: str) -> WarmStart | None:
        key = self._cluster.start.warm
        helper = not isinstance(key, bool) and self._role(task) is Role.HELPER
        if helper or not key or task in self._first:  # another program, or nothing to wait for
            return None
        facts = self._facts[self._host_of(task)]
        return warm_start(argv, python, key, facts.trainer, facts.tools)

    def _prepare_task(self, task: TaskId) -> TaskPlan:
        """Makes a task of a host's `prepare` lines, so that it has a log and a pane, and can be
        killed, like any other."""
        cluster, run, host = self._cluster, self._cluster.run, self._prepare[task]
        values = self._values(task)
        tables = [job.env_from for job in self._jobs_on(host)]
        directory = self._written_directory(task) is not None
        kind = "lasting" if directory or cluster.is_local(host) else "fresh"
        script = f"{self._facts[host].tools}/prepare.py"
        return TaskPlan(
            id=task,
            role=Role.PREPARE,
            host=host,
            port=None,
            address=bracketed(cluster.address(host)),
            # -I: a queue.py of the user's on PYTHONPATH is not Python's
            words=tuple(
                (word,)
                for word in (values["python"], "-I", script, kind, *self._prepare_lines(host))
            ),
            variables=self._variables(task, values) | {"TFMUX_PYTHON": (values["python"],)},
            ready=Finished(),
            directory=directory,
            shell=self._shells(host, None)[1],
            cwd=values["workdir"],
            logdir=values["logdir"],
            log_limit=run.log_limit,
            env_from=tuple(dict.fromkeys((*run.env_from, *(n for t in tables for n in t)))),
        )

    def _prepare_lines(self, host: str) -> tuple[str, ...]:
        tables: list[RunSettings | Job] = [self._cluster.run, *self._jobs_on(host)]
        return tuple(dict.fromkeys(line for table in tables for line in table.prepare))

    def _variables(self, task: TaskId, values: Mapping[str, str]) -> dict[str, Text]:
        cluster, host = self._cluster, self._host_of(task)
        job = cluster.jobs.get(task.job)  # None: a `prepare` task
        share = self._visible.get(task)
        tables = (cluster.run.env, self._entry(host).env, job.env if job else {})
        own = {"PYTHONUNBUFFERED": "1"}
        if share is not None:
            said = {
                *self._facts[host].environ,
                *cluster.run.env_from,
                *(job.env_from if job else ()),
            }
            said |= {name for table in tables for name in table}
            own |= share.env(self._given(host))
            own |= share.order_env(self._given(host), said)
            own |= share.memory_env(cluster.run.framework, said)
        if (rank := self._ranks.get(task)) is not None:
            address = cluster.address(self._host_of(rank.master))
            port = self._port_text(rank.master)
            own |= environment.rank_variables(cluster.run.framework, rank, address, port, share)
            if cluster.run.framework is Framework.TORCH and self._restarts_all:
                own |= environment.elastic_variables(self._attempt, cluster.run.max_restarts)
        env: dict[str, Text] = {name: (value,) for name, value in own.items()}
        for table in tables:
            env |= {n: self._text(value_with_home(value), values) for n, value in table.items()}
        facts = self._facts[host]
        asked = job is not None and written(env.get(environment.STACKS, ())) != "0"
        hook = f"{facts.tools}/{environment.STACKS_FOLDER}" if asked else ""
        setup, shell = self._shells(host, job)
        env = environment.with_tf_env(
            env,
            facts.environ,
            hook,
            facts.trainer,
            self._no_proxy_hosts,
            proxied=self._proxied(host, job, env),
            by_shell=bool(setup) or shell is Shell.LOGIN,
        )
        tensorflow = cluster.run.framework is Framework.TENSORFLOW
        if tensorflow and job is not None and job.in_cluster:
            env["TF_CONFIG"] = environment.tf_config(self._spec_json, task)
        env["TFMUX_RUN_ID"] = (self._run_id,)
        if self._restarts_all:
            env["TFMUX_ATTEMPT"] = (str(self._attempt),)
        if self._resume is not None:
            env["TFMUX_RESUME"] = (self._resume.run_id,)
        return env

    def _proxied(self, host: str, job: Job | None, env: Mapping[str, Text]) -> bool:
        """Whether a variable that is known here names a proxy to a task."""
        named = {*self._cluster.run.env_from, *(job.env_from if job else ())}
        own = {name for name, value in env.items() if any(value)}
        return self._facts[host].proxied or not {*named, *own}.isdisjoint(environment.PROXIES)

    def _shells(self, host: str, job: Job | None) -> tuple[str, Shell]:
        """The `setup` of a job's tasks on a host, and their shell; of its `prepare` task: None."""
        entry, run = self._entry(host), self._cluster.run
        if job is None:
            return "", entry.shell or run.shell
        setup = next(text for text in (job.setup, entry.setup, run.setup) if text is not None)
        return setup, job.shell or entry.shell or run.shell

    def _host(self, name: str) -> HostPlan:
        cluster, entry = self._cluster, self._entry(name)
        tables: list[RunSettings | Job] = [cluster.run, *self._jobs_on(name)]
        facts = self._facts[name]
        collect = {
            os.path.join(
                values["workdir"],
                _expand_home(expand(path, values, self._shared), facts.home),
            )
            for task, values in ((task, self._values(task)) for task in self._on[name])
            for path in (*cluster.run.collect, *cluster.jobs[task.job].collect)
        }
        data = dict.fromkeys(path for table in tables for path in table.data)
        return HostPlan(
            name=name,
            ssh=self._target(entry),
            python=self._python(name),
            address=cluster.address(name),
            env=entry.env,
            gpus=gpu_count(entry.gpus),
            gpu_names=entry.gpus if isinstance(entry.gpus, tuple) else (),
            data=tuple(self._cluster.local_path(path) for path in data),
            collect=tuple(sorted(collect)),
            prepare=self._prepare_lines(name),
            via=_expand_program(entry.via or ()),
            has_agent=self._by_slurm(name),
            uses_trainer=any("trainer" in text for text in self._texts(name)),
        )

    def _texts(self, host: str) -> Iterator[str]:
        """The texts of the file, as they are written, of which a host's tasks are made."""
        run = self._cluster.run
        for job in self._jobs_on(host):
            yield from job.command or run.command or ()
            yield self._shells(host, job)[0]
            yield from job.env.values()
        yield from (*run.env.values(), *self._entry(host).env.values())
        yield from self._prepare_lines(host)

    def _target(self, entry: Host) -> SshTarget | None:
        if entry.ssh is None:
            return None
        return SshTarget(
            user=entry.ssh.user or entry.user,
            host=entry.ssh.host,
            port=entry.ssh.port,
            identity=self._file(entry.identity),
            jump=entry.jump,
            known_hosts=self._file(entry.known_hosts),
        )

    def _complete(self, host: str, facts: HostFacts | None) -> HostFacts:
        """Completes the facts of a host with what is known without its agent."""
        facts = facts or HostFacts()
        if self._cluster.is_local(host):
            own = {n: os.environ[n] for n in environment.EXTENDED if n in os.environ}
            return replace(
                facts,
                home=facts.home or os.path.expanduser("~"),
                workdir=facts.workdir or self._local_workdir(),
                trainer=facts.trainer or installed_trainer(),
                tools=facts.tools or installed_scripts(),
                environ=facts.environ or own,
                proxied=facts.proxied or any(map(os.environ.get, environment.PROXIES)),
            )
        home = facts.home or "~"
        folder = f"{home}/.local/state/tfmux/{self._run_id}/{host}"
        return replace(
            facts,
            home=home,
            workdir=facts.workdir or (f"{folder}/work" if self._copies(host) else home),
            trainer=facts.trainer or f"{folder}/trainer",
            tools=facts.tools or f"{folder}/tools",
        )

    def _copies(self, host: str) -> bool:
        """As `Plan.copies`, before there is a plan."""
        run, jobs = self._cluster.run, self._jobs_on(host)
        if run.data or any(job.data for job in jobs):
            return True
        return bool(run.workdir) and not run.directory and any(not job.directory for job in jobs)

    def _written_directory(self, task: TaskId) -> str | None:
        """The directory in which a task starts by the file; None: in its host's workdir. `prepare`
        lines start where all jobs of their host do."""
        run = self._cluster.run
        if task.job in self._cluster.jobs:
            return self._cluster.jobs[task.job].directory or run.directory
        places = {job.directory or run.directory for job in self._jobs_on(self._host_of(task))}
        return places.pop() if len(places) == 1 else run.directory

    def _workdir(self, task: TaskId, values: Mapping[str, str]) -> str:
        host = self._host_of(task)
        written = self._written_directory(task)
        if written is None:
            return self._facts[host].workdir
        path = _expand_home(expand(written, values, self._shared), self._facts[host].home)
        return str(self._cluster.local_path(path)) if self._cluster.is_local(host) else path

    def _jobs_on(self, host: str) -> list[Job]:
        names = dict.fromkeys(task.job for task in self._on[host])
        return [self._cluster.jobs[name] for name in names]

    def _local_workdir(self) -> str:
        wide = {"name": self._cluster.name, "run_id": self._run_id}
        return str(self._cluster.local_path(expand(self._cluster.run.workdir, wide) or "."))

    def _file(self, path: str | None) -> str | None:
        return None if path is None else str(self._cluster.local_path(path))

    @cached_property
    def _names_logdir(self) -> bool:
        """Whether a command or a variable of any task has the log directory."""
        return "logdir" in named_placeholders(self._cluster)

    def _logdir(self, host: str, values: Mapping[str, str]) -> str:
        """The host's log directory; with `resume`, that of the resumed run."""
        of_run = {"run_id": self._resume.logdir_run_id if self._resume else self._run_id}
        name, rest = split_run_id(of_run["run_id"])
        if rest:  # the cluster may have got another name since
            of_run["name"] = name
        path = _expand_home(
            expand(self._cluster.run.logdir, of_run, values, self._shared), self._facts[host].home
        )
        return str(self._cluster.local_path(path)) if self._cluster.is_local(host) else path

    def _shared_values(self) -> dict[str, str]:
        cluster = self._cluster
        values = {"name": cluster.name, "run_id": self._run_id, "cluster": self._spec_json}
        for job, entry in cluster.jobs.items():
            places = [self._place(TaskId(job, index)) for index in range(len(entry.tasks))]
            values[f"hosts.{job}"] = ",".join(places)
            values[f"num.{job}"] = str(len(places))
            for index, place in enumerate(entry.tasks):
                values[f"host.{job}.{index}"] = place.host
                values[f"port.{job}.{index}"] = self._port_text(TaskId(job, index))
                values[f"address.{job}.{index}"] = bracketed(cluster.address(place.host))
        for name, role in ADDRESS_LISTS.items():
            job = next(iter(jobs_with(role, cluster.jobs)), "")
            values[name] = values.get(f"hosts.{job}", "")
        return values

    def _values(self, task: TaskId) -> dict[str, str]:
        host = self._host_of(task)
        values = {
            "python": self._python(host),
            "job": task.job,
            "index": str(task.index),
            "host": host,
            "port": self._port_text(task),
            "address": bracketed(self._cluster.address(host)),
            "home": self._facts[host].home,
            "trainer": f"{self._facts[host].trainer}/trainer",
        }
        if (rank := self._ranks.get(task)) is not None:
            values |= {
                "rank": str(rank.rank),
                "world_size": str(rank.world_size),
                "local_rank": str(rank.local_rank),
                "local_world_size": str(rank.local_world_size),
                "node_rank": str(rank.node_rank),
                "master_addr": bracketed(self._cluster.address(self._host_of(rank.master))),
                "master_port": self._port_text(rank.master),
            }
        values["workdir"] = self._workdir(task, values)
        return values | {"logdir": self._logdir(host, values)}

    def _gpu_names(self, task: TaskId, variables: Mapping[str, Text]) -> tuple[str, ...]:
        share, given = self._gpus.get(task), self._given(self._host_of(task))
        seen = self._visible.get(task)
        visible = written(variables.get(environment.VISIBLE, ()))
        if seen is not None and share is not None and visible == ",".join(seen.names(given)):
            return share.names(given)
        return environment.given_gpus({environment.VISIBLE: visible})  # the file says it itself

    def _gpu_shares(self) -> tuple[dict[TaskId, GpuShare], dict[TaskId, GpuShare]]:
        """The GPUs of each task, and those that each sees."""
        own: dict[TaskId, GpuShare] = {}
        seen: dict[TaskId, GpuShare] = {}
        for host, tasks in self._on.items():
            requests = [
                GpuRequest(task, self._cluster.jobs[task.job].gpus, self._trains(task))
                for task in tasks
            ]
            given = gpu_count(self._entry(host).gpus)
            assigned = self._by_slurm(host)
            known = self._facts[host].gpus
            if assigned or environment.VISIBLE in self._facts[host].environ:
                visible = len(self._given(host))
                known = visible if assigned else min(known, visible)
            supply = known if given is None else given
            split = environment.split_gpus(requests, supply, self._given(host))
            ranked = [task for task in tasks if task in self._ranks]
            own |= split
            seen |= environment.pooled(self._cluster.run.framework, split, ranked)
        return own, seen

    def _by_slurm(self, host: str) -> bool:
        return self._cluster.slurm is not None and not self._cluster.is_local(host)

    def _given(self, host: str) -> tuple[str, ...]:
        """The GPUs that the file names, or the environment there lets a task see; none where all
        are there, or the file counts more of them."""
        said = self._entry(host).gpus
        if isinstance(said, tuple):
            return said
        names = environment.given_gpus(self._facts[host].environ)
        more = (said or 0) > len(names)
        return () if more and not self._by_slurm(host) else names

    @property
    def _restarts_all(self) -> bool:
        return self._cluster.run.on_failure is OnFailure.RESTART_ALL

    def _trains(self, task: TaskId) -> bool:
        return self._role(task).trains

    def _role(self, task: TaskId) -> Role:
        return Role.CHIEF if task == self._cluster.chief else self._cluster.role(task.job)

    def _python(self, host: str) -> str:
        local = self._cluster.is_local(host)
        default = (sys.executable if local else "") or "python3"
        return _expand_home(self._entry(host).python or default, self._facts[host].home)

    def _entry(self, host: str) -> Host:
        return self._cluster.hosts.get(host) or Host()

    def _host_of(self, task: TaskId) -> str:
        if task in self._prepare:
            return self._prepare[task]
        return self._cluster.jobs[task.job].tasks[task.index].host

    def _port(self, task: TaskId) -> int | None:
        port = self._cluster.jobs[task.job].tasks[task.index].port
        return self._facts[self._host_of(task)].ports.get(task) if port is None else port

    def _port_text(self, task: TaskId) -> str:
        return str(self._ports.get(task) or "auto")

    def _place(self, task: TaskId) -> str:
        return join(self._cluster.address(self._host_of(task)), self._ports[task])


def _expand_program(via: tuple[str, ...]) -> tuple[str, ...]:
    """Replaces `~` of a program on this machine."""
    return (os.path.expanduser(via[0]), *via[1:]) if via else ()


def _expand_home(path: str, home: str) -> str:
    """Replaces `~` by the host's home, without a shell."""
    return home + path[1:] if path == "~" or path.startswith("~/") else path


def readiness(cluster: ClusterModel, job: str) -> Readiness:
    """Returns when the tasks of a job are ready."""
    ready = cluster.jobs[job].ready or cluster.start.ready.get(job)
    if ready is not None:
        return ready
    if not cluster.in_spec(job):
        return ProcessStarted()
    tensorflow = cluster.run.framework is Framework.TENSORFLOW
    runs_server = tensorflow and job in ROLES  # as far as anybody knows
    return PortListens(by_default=True) if runs_server else Auto()


# --- start order ----------------------------------------------------------------------------
#
# The default is ps, then chief, then all others. Ranks of torch, jax and mpi-like wait for each
# other by themselves and start at once. A stage never waits for training progress: without device
# filters a chief's session waits for all workers, so that would be a deadlock.


def stages(cluster: ClusterModel) -> tuple[tuple[TaskId, ...], ...]:
    """Lists the tasks of each stage, every task once; tasks that are not in `order` come last.

    A job in `order` means those of its tasks that are not in `order` themselves, so that
    `[["worker:0"], ["worker"]]` is the chief and then the others.
    """
    order = cluster.start.order
    wanted = default_order(cluster) if order is None else order
    named = {entry for stage in wanted for entry in stage if ":" in entry}
    seen: set[TaskId] = set()
    result: list[tuple[TaskId, ...]] = []
    for stage in (*wanted, tuple(_cluster_jobs_first(cluster))):
        tasks = [task for entry in stage for task in _tasks(cluster, entry, named)]
        fresh = tuple(dict.fromkeys(task for task in tasks if task not in seen))
        seen.update(fresh)
        if fresh:
            result.append(fresh)
    return tuple(result)


def default_order(cluster: ClusterModel) -> tuple[tuple[str, ...], ...]:
    """Makes the entries of `[start] order` for ps → chief → every other job; without the chief's
    own stage where the framework's tasks wait for each other by themselves."""
    chief = None if cluster.run.framework.meets else cluster.chief
    first = tuple(job for job in cluster.jobs if cluster.role(job) is Role.PS)
    second = () if chief is None else (str(chief),)
    return (first, second, tuple(job for job in _cluster_jobs_first(cluster) if job not in first))


def _cluster_jobs_first(cluster: ClusterModel) -> Sequence[str]:
    # The evaluator and helpers watch what the others do.
    return sorted(cluster.jobs, key=lambda job: not cluster.in_spec(job))


def _tasks(cluster: ClusterModel, entry: str, named: set[str]) -> list[TaskId]:
    if ":" in entry:
        return [TaskId.parse(entry)]
    tasks = (TaskId(entry, index) for index in range(len(cluster.jobs[entry].tasks)))
    return [task for task in tasks if str(task) not in named]


def named_placeholders(cluster: ClusterModel) -> set[str]:
    """Finds the placeholders in the commands and variables of all tasks."""
    commands = [cluster.run.command, *(job.command for job in cluster.jobs.values())]
    tables = [cluster.run.env, *(job.env for job in cluster.jobs.values())]
    tables += [host.env for host in cluster.hosts.values()]
    texts = [word for command in commands for word in command or ()]
    texts += [text for table in tables for text in table.values()]
    return {name for text in texts for name in names_in(text)}
