"""A plan whose hosts, home and run are not known yet: words stand in for them.

What another engine decides only when it starts (which node, which pod, which job number) is a
shell variable there. The plan is made as for a launch, with stand-ins where those will be, and
`Shell` puts the variables in their places when it quotes a word.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..cluster.addresses import SshDestination, TaskAddress
from ..cluster.spec import Cluster, Host
from ..ids import TaskId
from ..plan.plan import HostFacts, Plan, TaskPlan, make_plan

HOME = "/tfmux-home-here"
RUN = "tfmux-run-here"
_AUTO_PORT = 20000


@dataclass(frozen=True)
class Shell:
    """Quotes words for a POSIX shell; `variables` says which one a stand-in becomes."""

    variables: Mapping[str, str]

    def word(self, text: str) -> str:
        """One word."""
        names = sorted(self.variables, key=len, reverse=True)
        parts = re.split(f"({'|'.join(map(re.escape, names))})", text)
        quoted = [
            f'"${{{self.variables[part]}}}"' if part in self.variables else shlex.quote(part)
            for part in parts
            if part
        ]
        return "".join(quoted) or "''"

    def words(self, *texts: str) -> str:
        """Several words."""
        return " ".join(map(self.word, texts))

    def command(self, task: TaskPlan, drop: tuple[str, ...] = ()) -> str:
        """A task's environment and command as one line; `setup` is a shell of its own."""
        env = [f"{name}={value}" for name, value in task.env.items() if name not in drop]
        argv = [*task.argv]
        if task.setup:
            argv = ["/bin/sh", "-c", f'{task.setup}\nexec "$@"', "tfmux", *argv]
        return self.words("env", *env, *argv)


def plan_of(
    cluster: Cluster,
    address: Callable[[TaskId, str], str],
    *,
    workdir: str,
    trainer: str,
    port: int | None = None,
) -> Plan:
    """The plan with `address(task, its host)` for every task's host; the port is `port` or, None,
    the file's. Two tasks with different addresses are on different hosts."""
    hosts: dict[str, Host] = {}
    jobs = {}
    number = 0
    for name, job in cluster.jobs.items():
        places = []
        for index, place in enumerate(job.tasks):
            number += 1
            where = address(TaskId(name, index), place.host)
            old = cluster.hosts.get(place.host) or Host()
            hosts[where] = Host(
                ssh=SshDestination(None, where, None),
                python=old.python or "python3",
                gpus=old.gpus,
                env=old.env,
            )
            places.append(TaskAddress(where, port or place.port or _AUTO_PORT + number))
        jobs[name] = job.model_copy(update={"tasks": tuple(places)})
    copy = cluster.model_copy(update={"hosts": hosts, "jobs": jobs})
    facts = HostFacts(home=HOME, workdir=workdir, trainer=trainer)
    return make_plan(copy, RUN, dict.fromkeys(hosts, facts))
