"""Planner: makes the plan of a run from a cluster file.

Pure except for this machine's home, environment and the folder of the installed trainer: no
network, nothing is started. `tfmux plan` shows a plan made without facts; a launch makes it again
with the facts that the hosts' agents report (home, GPUs, free ports for `auto`).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from ..cluster.addresses import bracketed, join
from ..cluster.checks import PREPARE
from ..cluster.choices import Framework
from ..cluster.host import Host
from ..cluster.placeholders import expand, expanded
from ..cluster.ranks import ranks
from ..cluster.rules import Finished, Shell
from ..cluster.spec import ClusterModel, Job, RunSettings
from ..ids import TaskId
from ..paths import installed_scripts, installed_trainer
from . import environment, frameworks
from .environment import GpuRequest, GpuShare
from .model import HostFacts, HostPlan, Plan, Resume, Role, SshTarget, TaskPlan, WarmStart
from .order import stages
from .readiness import readiness, ready_key
from .texts import Text, composed, shared, written
from .warm import warm_start


def make_plan(
    cluster: ClusterModel,
    run_id: str,
    facts: Mapping[str, HostFacts] = MappingProxyType({}),
    resume: Resume | None = None,
) -> Plan:
    """Makes the plan of a cluster that `cluster.file` has checked.

    With `resume`, the log directory is that run's, and the tasks have its id in `TFMUX_RESUME`.
    """
    return _Planner(cluster, run_id, facts, resume).plan()


class _Planner:
    """State of `make_plan`: values that all tasks share are computed once."""

    def __init__(
        self,
        cluster: ClusterModel,
        run_id: str,
        facts: Mapping[str, HostFacts],
        resume: Resume | None,
    ) -> None:
        self._cluster = cluster
        self._run_id = run_id
        self._resume = resume
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
        self._spec_json = shared(json.dumps(self._spec))
        self._shared = self._shared_values()
        self._gpus = self._gpu_shares()
        self._no_proxy_hosts = ",".join(dict.fromkeys(cluster.address(host) for host in self._on))

    def plan(self) -> Plan:
        cluster, run = self._cluster, self._cluster.run
        tasks = tuple(self._task(task) for stage in self._stages for task in stage)
        first = tuple(self._prepare)
        return Plan(
            name=cluster.name,
            run_id=self._run_id,
            hosts=tuple(self._host(host) for host in self._on),
            tasks=(*map(self._prepare_task, first), *tasks),
            stages=(first, *self._stages) if first else self._stages,
            settings=run,
            start_timeout=cluster.start.timeout,
            total_steps=cluster.metrics.total,
            metrics_pattern=cluster.metrics.pattern,
            workdir=Path(self._local_workdir()) if run.workdir else None,
            exclude=run.exclude,
            cluster_spec=self._spec,
            chief=cluster.chief,
        )

    def _task(self, task: TaskId) -> TaskPlan:
        cluster, run, job = self._cluster, self._cluster.run, self._cluster.jobs[task.job]
        host = self._host_of(task)
        values = self._values(task)
        command = job.command or run.command or ()
        words = tuple(self._text(word, values) for word in command)
        pty = run.pty if job.pty is None else job.pty
        entry = self._entry(host)
        shell = job.shell or entry.shell or run.shell
        cold = pty or shell is Shell.LOGIN  # what is between reads the input by which it would wait
        return TaskPlan(
            id=task,
            role=self._role(task),
            host=host,
            port=self._ports[task],
            address=self._place(task),
            words=words,
            variables=self._variables(task, values),
            ready=readiness(cluster, task.job),
            ready_key=ready_key(cluster, task.job),
            in_cluster=cluster.in_spec(task.job),
            forward=job.forward,
            cwd=values["workdir"],
            logdir=values["logdir"],
            max_restarts=run.max_restarts if job.max_restarts is None else job.max_restarts,
            log_limit=run.log_limit if job.log_limit is None else job.log_limit,
            setup=next(s for s in (job.setup, entry.setup, run.setup) if s is not None),
            shell=shell,
            pty=pty,
            env_from=tuple(dict.fromkeys((*run.env_from, *job.env_from))),
            warm=None if cold else self._warm_start(task, words, values["python"]),
        )

    def _text(self, text: str, values: Mapping[str, str]) -> Text:
        return composed(expanded(text, values, self._shared))

    def _warm_start(self, task: TaskId, words: tuple[Text, ...], python: str) -> WarmStart | None:
        key = self._cluster.start.warm
        helper = not isinstance(key, bool) and self._role(task) is Role.HELPER
        if helper or not key or task in self._first:  # another program, or nothing to wait for
            return None
        argv = tuple(map(written, words))
        start = warm_start(argv, python, key, self._facts[self._host_of(task)])
        if start is None:
            return None
        texts = dict(zip(argv, words, strict=True))  # none is written in full in the plan
        return replace(start, words=tuple(texts.get(word, (word,)) for word in start.argv))

    def _prepare_task(self, task: TaskId) -> TaskPlan:
        """Makes a task of a host's `prepare` lines, so that it has a log and a pane, and can be
        killed, like any other."""
        cluster, run, host = self._cluster, self._cluster.run, self._prepare[task]
        values = self._values(task)
        tables = [job.env_from for job in self._jobs_on(host)]
        kind = "lasting" if cluster.is_local(host) else "fresh"
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
            shell=self._entry(host).shell or run.shell,
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
        share = self._gpus.get(task)
        own = {"PYTHONUNBUFFERED": "1"} | (share.env(self._given(host)) if share else {})
        if (rank := self._ranks.get(task)) is not None:
            address = cluster.address(self._host_of(rank.master))
            port = self._port_text(rank.master)
            own |= frameworks.variables(cluster.run.framework, rank, address, port, share)
        env: dict[str, Text] = {name: (value,) for name, value in own.items()}
        for table in (cluster.run.env, self._entry(host).env, job.env if job else {}):
            env |= {name: self._text(value, values) for name, value in table.items()}
        facts = self._facts[host]
        env = environment.with_tf_env(env, facts.environ, facts.trainer, self._no_proxy_hosts)
        tensorflow = cluster.run.framework is Framework.TENSORFLOW
        if tensorflow and job is not None and job.in_cluster:
            env["TF_CONFIG"] = environment.tf_config(self._spec_json, task)
        env["TFMUX_RUN_ID"] = (self._run_id,)
        if self._resume is not None:
            env["TFMUX_RESUME"] = (self._resume.run_id,)
        return env

    def _host(self, name: str) -> HostPlan:
        cluster, entry = self._cluster, self._entry(name)
        tables: list[RunSettings | Job] = [cluster.run, *self._jobs_on(name)]
        facts = self._facts[name]
        collect = {
            os.path.join(
                facts.workdir,
                _expand_home(expand(path, self._values(task), self._shared), facts.home),
            )
            for task in self._on[name]
            for path in (*cluster.run.collect, *cluster.jobs[task.job].collect)
        }
        data = dict.fromkeys(path for table in tables for path in table.data)
        return HostPlan(
            name=name,
            ssh=self._target(entry),
            python=self._python(name),
            address=cluster.address(name),
            env=entry.env,
            gpus=entry.gpus,
            data=tuple(self._cluster.local_path(path) for path in data),
            collect=tuple(sorted(collect)),
            prepare=self._prepare_lines(name),
            via=_expand_program(entry.via or ()),
            has_agent=self._by_slurm(name),
        )

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
            )
        home = facts.home or "~"
        folder = f"{home}/.local/state/tfmux/{self._run_id}/{host}"
        run = self._cluster.run
        copied = run.workdir or run.data or any(job.data for job in self._jobs_on(host))
        return replace(
            facts,
            home=home,
            workdir=facts.workdir or (f"{folder}/work" if copied else home),
            trainer=facts.trainer or f"{folder}/trainer",
            tools=facts.tools or f"{folder}/tools",
        )

    def _jobs_on(self, host: str) -> list[Job]:
        names = dict.fromkeys(task.job for task in self._on[host])
        return [self._cluster.jobs[name] for name in names]

    def _local_workdir(self) -> str:
        wide = {"name": self._cluster.name, "run_id": self._run_id}
        return str(self._cluster.local_path(expand(self._cluster.run.workdir, wide) or "."))

    def _file(self, path: str | None) -> str | None:
        return None if path is None else str(self._cluster.local_path(path))

    def _logdir(self, host: str, values: Mapping[str, str]) -> str:
        """The host's log directory; with `resume`, that of the resumed run."""
        run_id = {"run_id": self._resume.logdir_run_id if self._resume else self._run_id}
        path = _expand_home(
            expand(self._cluster.run.logdir, run_id, values, self._shared), self._facts[host].home
        )
        return str(self._cluster.local_path(path)) if self._cluster.is_local(host) else path

    def _shared_values(self) -> dict[str, str]:
        cluster = self._cluster
        values = {"name": cluster.name, "run_id": self._run_id, "cluster": self._spec_json}
        for job, entry in cluster.jobs.items():
            places = [self._place(TaskId(job, index)) for index in range(len(entry.tasks))]
            values[f"hosts.{job}"] = shared(",".join(places))
            values[f"num.{job}"] = str(len(places))
            for index, place in enumerate(entry.tasks):
                values[f"host.{job}.{index}"] = place.host
                values[f"port.{job}.{index}"] = self._port_text(TaskId(job, index))
                values[f"address.{job}.{index}"] = bracketed(cluster.address(place.host))
        values["ps_hosts"] = values.get("hosts.ps", "")
        values["worker_hosts"] = values.get("hosts.worker", "")
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
            "workdir": self._facts[host].workdir,
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
        return values | {"logdir": self._logdir(host, values)}

    def _gpu_shares(self) -> dict[TaskId, GpuShare]:
        shares: dict[TaskId, GpuShare] = {}
        for host, tasks in self._on.items():
            requests = [
                GpuRequest(task, self._cluster.jobs[task.job].gpus, self._trains(task))
                for task in tasks
            ]
            given = self._entry(host).gpus
            assigned = self._by_slurm(host)
            known = self._facts[host].gpus
            if assigned or environment.VISIBLE in self._facts[host].environ:
                visible = len(self._given(host))
                known = visible if assigned else min(known, visible)
            supply = known if given is None else given
            split = environment.split_gpus(requests, supply)
            ranked = [task for task in tasks if task in self._ranks]
            shares |= frameworks.pooled(self._cluster.run.framework, split, ranked)
        return shares

    def _by_slurm(self, host: str) -> bool:
        return self._cluster.slurm is not None and not self._cluster.is_local(host)

    def _given(self, host: str) -> tuple[str, ...]:
        """The GPUs that the environment there lets a task see; none where all are there, or the
        file counts more of them."""
        names = environment.given_gpus(self._facts[host].environ)
        more = (self._entry(host).gpus or 0) > len(names)
        return () if more and not self._by_slurm(host) else names

    def _trains(self, task: TaskId) -> bool:
        return self._role(task) in (Role.CHIEF, Role.WORKER)

    def _role(self, task: TaskId) -> Role:
        if task.job == "evaluator":
            return Role.EVALUATOR
        if not self._cluster.in_spec(task.job):
            return Role.HELPER
        if task == self._cluster.chief:
            return Role.CHIEF
        return Role.PS if task.job == "ps" else Role.WORKER

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
