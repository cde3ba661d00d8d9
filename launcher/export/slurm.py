"""Slurm batch script of a cluster: one node per host, the same order, the same rule of success.

The script is self-contained. It assumes that the workdir is on a file system that all nodes
share. Each task is a job step with an output file of its own. Time limits and killing all steps
when the job is cancelled are left to Slurm.

Which nodes, which home and which job number is known only when the script runs: the plan is made
with stand-ins for them, and `ShellQuoter` writes shell variables in their places.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count

from ..cluster.addresses import SshDestination, TaskAddress
from ..cluster.host import Host
from ..cluster.placeholders import expand
from ..cluster.rules import AUTO_SECONDS, After, Auto, Finished, LogMatches, PortListens, Success
from ..cluster.spec import ClusterModel
from ..engines.slurm_script import CORES
from ..errors import TfmuxError
from ..ids import TaskId
from ..paths import installed_trainer
from ..plan.model import HostFacts, Plan, Role, TaskPlan
from ..plan.plan import make_plan
from ..plan.shell import shell_prefix, with_exports

_HOME = "/tfmux-home-here"
_RUN = "tfmux-run-here"
_AUTO_PORT = 20000

_HEAD = r"""
set -u
mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
RUN_ID={name}-$SLURM_JOB_ID
{cores}
{hosts}
cd {workdir} || exit 1

finish() {{  # ends what still runs, and the job
    kill $(jobs -p) 2>/dev/null
    wait
    exit "$1"
}}
trap 'finish 143' TERM

alive() {{  # task, its pid
    kill -0 "$2" 2>/dev/null && return
    echo "$1 ended before it was ready; see $1.log" >&2
    finish 1
}}

listening() {{  # task, its pid, host, port
    for ((i = 0; i < {timeout}; i++)); do
        (exec 3<>"/dev/tcp/$3/$4") 2>/dev/null && return
        alive "$1" "$2"
        sleep 1
    done
    echo "$1 does not listen on $3:$4" >&2
    finish 1
}}

said() {{  # task, its pid, regular expression
    for ((i = 0; i < {timeout}; i++)); do
        LC_ALL=C grep -qaP -e "$3" "$1.log" 2>/dev/null && return
        alive "$1" "$2"
        sleep 1
    done
    echo "$1 never wrote what was waited for" >&2
    finish 1
}}
"""


@dataclass(frozen=True)
class ShellQuoter:
    """Quotes words for a POSIX shell; `variables` maps stand-ins to names of shell variables."""

    variables: Mapping[str, str]

    def word(self, text: str) -> str:
        """One word in quotes, in which the shell replaces its stand-ins by their variables."""
        names = sorted(self.variables, key=len, reverse=True)
        parts = re.split(f"({'|'.join(map(re.escape, names))})", text)
        quoted = [
            f'"${{{self.variables[part]}}}"' if part in self.variables else shlex.quote(part)
            for part in parts
            if part
        ]
        return "".join(quoted) or "''"

    def words(self, *texts: str) -> str:
        """Several words in quotes, with a blank between them."""
        return " ".join(map(self.word, texts))

    def command(self, task: TaskPlan) -> str:
        """A task's environment and command as one line; `setup` runs in a shell of its own."""
        variables = with_exports(task.env, task.shell)
        env = [f"{name}={value}" for name, value in variables.items()]
        return self.words("env", *env, *shell_prefix(task.setup, task.shell), *task.argv)


def script(cluster: ClusterModel) -> str:
    """Renders the batch script.

    Raises:
        TfmuxError: the hosts are containers.
    """
    if cluster.podman is not None:
        raise TfmuxError(
            "[podman] gives containers on one machine, which no Slurm script can start: "
            "write [slurm], or [hosts], instead of it"
        )
    names = {place.host: "" for job in cluster.jobs.values() for place in job.tasks}
    stand_ins = {host: f"tfmux-host-{number}-here" for number, host in enumerate(names)}
    wide = {"name": cluster.name, "run_id": _RUN}
    workdir = str(cluster.local_path(expand(cluster.run.workdir, wide) or "."))
    plan = _plan(cluster, stand_ins, workdir)
    variables = {name: f"HOST_{number}" for number, name in enumerate(stand_ins.values())}
    shell = ShellQuoter(variables | {_HOME: "HOME", _RUN: "RUN_ID"})
    hosts = "\n".join(
        f"HOST_{number}=${{nodes[{number}]}}  # {host}" for number, host in enumerate(names)
    )
    head = _HEAD.format(
        name=shlex.quote(cluster.name),
        hosts=hosts,
        cores=CORES,
        workdir=shell.word(workdir),
        timeout=round(cluster.start.timeout),
    )
    return "".join([*_options(cluster, plan), head, *_tasks(plan, shell), *_end(plan)])


def _plan(cluster: ClusterModel, stand_ins: Mapping[str, str], workdir: str) -> Plan:
    """The plan with every host under the name that stands in for its node."""
    hosts: dict[str, Host] = {}
    for name, stand_in in stand_ins.items():
        entry = cluster.hosts.get(name) or Host()
        ssh = SshDestination(None, stand_in, None)
        python = entry.python or "python3"
        hosts[stand_in] = entry.model_copy(update={"ssh": ssh, "via": None, "python": python})
    jobs = {}
    fixed = {place.port for job in cluster.jobs.values() for place in job.tasks}
    auto = (port for port in count(_AUTO_PORT + 1) if port not in fixed)
    for name, job in cluster.jobs.items():
        places = [
            TaskAddress(stand_ins[place.host], place.port or next(auto)) for place in job.tasks
        ]
        jobs[name] = job.model_copy(update={"tasks": tuple(places)})
    copy = cluster.model_copy(update={"hosts": hosts, "jobs": jobs})
    facts = HostFacts(home=_HOME, workdir=workdir, trainer=installed_trainer())
    return make_plan(copy, _RUN, dict.fromkeys(hosts, facts))


def _options(cluster: ClusterModel, plan: Plan) -> Iterator[str]:
    yield "#!/bin/bash\n"
    table = cluster.slurm
    where = f" (on {table.login})" if table is not None and table.login is not None else ""
    yield f"# The cluster {cluster.name!r} as a Slurm job: sbatch THIS_FILE{where}\n"
    yield f"#SBATCH --job-name={cluster.name}\n"
    yield f"#SBATCH --nodes={len(plan.hosts)}\n"
    yield f"#SBATCH --ntasks={len(plan.tasks)}\n"
    if table is not None:
        yield f"#SBATCH --time={table.time}\n" if table.time is not None else ""
        yield f"#SBATCH --partition={table.partition}\n" if table.partition is not None else ""
        yield from (f"#SBATCH {shlex.quote(option)}\n" for option in table.options)
    wanted = Counter[str]()
    for job in cluster.jobs.values():
        for place in job.tasks:
            wanted[place.host] += job.gpus or 0
    gpus = max(*(host.gpus or 0 for host in plan.hosts), *wanted.values())
    if gpus:
        yield f"#SBATCH --gpus-per-node={gpus}\n"


def _tasks(plan: Plan, shell: ShellQuoter) -> Iterator[str]:
    for number, stage in enumerate(plan.stages, 1):
        tasks = [plan.task(task) for task in stage]
        yield f"\n# stage {number}: {', '.join(map(str, stage))}\n"
        for task in tasks:
            yield f"srun --nodes=1 --ntasks=1 --overlap $cores --nodelist={shell.word(task.host)} "
            yield f"--output={task.id.stem}.log \\\n    {_command(plan, task, shell)} &\n"
            yield f"{_pid(task.id)}=$!\n"
        for task in tasks:
            yield _gate(task, shell)


def _command(plan: Plan, task: TaskPlan, shell: ShellQuoter) -> str:
    if task.role is Role.PREPARE:  # without the stamps: a batch job runs the lines each time
        lines = "\n".join(plan.host(task.host).prepare)
        return shell.words("env", *(f"{k}={v}" for k, v in task.env.items()), "sh", "-ec", lines)
    return shell.command(task)


def _gate(task: TaskPlan, shell: ShellQuoter) -> str:
    who = f'{task.id.stem} "${_pid(task.id)}"'
    match task.ready:
        case PortListens():
            return f"listening {who} {shell.word(task.host)} {task.port}\n"
        case LogMatches(pattern):
            return f"said {who} {shlex.quote(pattern)}\n"
        case After(seconds):
            return f"sleep {seconds:g}\n"
        case Auto():
            return f"sleep {AUTO_SECONDS:g}\n"
        case Finished():
            return f'wait "${_pid(task.id)}" || finish 1\n'
        case _:
            return ""


def _end(plan: Plan) -> Iterator[str]:
    deciding = [t.id for t in plan.tasks if t.role in (Role.CHIEF, Role.WORKER)]
    deciding = deciding or [t.id for t in plan.tasks if t.role is not Role.PREPARE]
    first = plan.chief if plan.settings.success is Success.CHIEF else None
    order = sorted(deciding, key=lambda task: task != first)
    yield "\n# the end: success is a clean exit of "
    yield f"{first if first else 'all of them'}; ps and helpers are then ended\n"
    for task in order:
        yield f'wait "${_pid(task)}" || {{ echo "{task} failed" >&2; finish 1; }}\n'
    yield "finish 0\n"


def _pid(task: TaskId) -> str:
    """Variable of a shell; no two tasks have the same."""
    return f"pid_{task.job.replace('_', '__').replace('-', '_d')}_{task.index}"
