"""Cluster files made of a command and hosts (`tfmux run`), or of what a text was understood as
(`tfmux import`)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import PurePath
from typing import Any

import tomlkit

from ..frozen import frozen
from ..printable import printable
from .addresses import LOCALHOST, TaskAddress
from .choices import Framework, OnFailure
from .host_names import host_name
from .shorthand import WORKER, ListedHost, ListedTask, Understood
from .values import LONGEST_NAME


@frozen
class RunRequest:
    """A command, and the tasks of each job."""

    command: Sequence[str]
    jobs: Mapping[str, Sequence[ListedTask]]
    name: str
    workdir: str
    framework: Framework = Framework.TENSORFLOW
    addresses: Mapping[str, str] = field(default_factory=dict)
    """Addresses of hosts for the other hosts, by their logins, where `ssh` knows other names."""
    max_restarts: int | None = None
    """How often all tasks start again where one fails; None: the run ends."""
    collect: Sequence[str] = ()
    """Paths that are fetched at the end."""
    directory: str = ""
    """The directory that the hosts have already; empty: there is `workdir`."""

    env: Mapping[str, str] = field(default_factory=dict)
    env_from: Sequence[str] = ()
    """Variables whose values are those of this machine."""
    identity: str = ""
    """The key for all hosts; empty: those of `ssh`."""
    logins: Sequence[ListedHost] = ()
    """What a list says of its hosts beside their logins."""

    @property
    def equal(self) -> bool:
        """All tasks are of one job."""
        return set(self.jobs) == {WORKER}


def render(request: RunRequest) -> str:
    """Renders the file; it may still have problems, which reading it names."""
    jobs: dict[str, dict[str, Any]] = {}
    hosts, places = _hosts(request.jobs, request.logins, request.addresses)
    for job, tasks in places.items():
        jobs[job] = {"tasks": tasks}
    file: dict[str, Any] = {"name": request.name}
    if hosts:
        file["hosts"] = hosts
    if request.identity:
        file["defaults"] = {"host": {"identity": request.identity}}
    file["jobs"] = jobs
    place = "directory" if request.directory else "workdir"
    file["run"] = {"command": list(request.command), place: getattr(request, place)}
    if request.env:
        file["run"]["env"] = dict(request.env)
    if request.env_from:
        file["run"]["env_from"] = list(request.env_from)
    if request.collect:
        file["run"]["collect"] = list(request.collect)
    if request.framework is not Framework.TENSORFLOW:
        file["run"]["framework"] = str(request.framework)
    if request.max_restarts is not None:
        file["run"]["on_failure"] = str(OnFailure.RESTART_ALL)
        file["run"]["max_restarts"] = request.max_restarts
    if request.equal:
        _start_at_once(file, request.framework)
    return f"# made by tfmux run\n{tomlkit.dumps(file).rstrip()}\n"


def _start_at_once(file: dict[str, Any], framework: Framework) -> None:
    """All workers start at once and all must end well, as with mpirun and torchrun."""
    if not framework.meets:
        file["run"]["success"] = "all"
        file["jobs"][WORKER]["ready"] = "auto"
        file["start"] = {"order": [[WORKER]]}


def _hosts(
    jobs: Mapping[str, Sequence[ListedTask]],
    logins: Sequence[ListedHost] = (),
    addresses: Mapping[str, str] | None = None,
) -> tuple[dict[str, dict[str, str]], dict[str, list[str]]]:
    """The tables of the hosts, and the places of the tasks on them."""
    hosts: dict[str, dict[str, str]] = {}
    names = {LOCALHOST: LOCALHOST}
    described = {str(host.login): host for host in logins}
    places: dict[str, list[str]] = {}
    for job, tasks in jobs.items():
        for task in tasks:
            login = str(task.login)
            if login not in names:
                about = described.get(login, ListedHost(task.login))
                taken = {LOCALHOST: {}, **hosts}
                names[login] = host_name(about.name or task.login.host, taken)
                hosts[names[login]] = about.table
            if address := (addresses or {}).get(login):
                hosts.setdefault(names[login], {})["address"] = address
            places.setdefault(job, []).append(str(TaskAddress(names[login], task.port)))
    return hosts, places


EXAMPLE = ("{python}", "train.py")
"""The command of an imported cluster whose text names none."""


def render_import(understood: Understood, name: str) -> str:
    """Renders a cluster file of what a text was understood as; what it says and what was left out
    stands above it."""
    tasks = understood.tasks()
    hosts, places = _hosts(tasks, understood.logins())
    file: dict[str, Any] = {"name": name}
    if hosts:
        file["hosts"] = hosts
    file["jobs"] = {job: {"tasks": listed} for job, listed in places.items()}
    for job, command in understood.commands.items():
        file["jobs"][job]["command"] = list(command)
    for job, values in understood.env.items():
        if values:
            file["jobs"][job]["env"] = dict(values)
    file["run"] = {}
    if not set(places) <= set(understood.commands):
        file["run"]["command"] = list(understood.command or EXAMPLE)
    framework = Framework.TENSORFLOW if understood.jobs else understood.framework
    if framework is not Framework.TENSORFLOW:
        file["run"]["framework"] = str(framework)
    if not understood.jobs:
        _start_at_once(file, framework)
    above = [f"# {printable(understood.what)}"]
    above += [f"# {printable(each, 200)}" for each in (*understood.notes, *understood.left_out)]
    if understood.lacks_command:
        above.append(f"# {NO_COMMAND}")
    if not file["run"]:
        del file["run"]
    return "\n".join([*above, tomlkit.dumps(file).rstrip(), ""])


NO_COMMAND = "it names no program: the command is an example, write yours"


def default_name(command: Sequence[str]) -> str:
    """Makes a cluster's name of a command: that of its script, module or program."""
    script = next((word for word in command if word.endswith(".py")), "")
    if not script and "-m" in command[:-1]:
        script = command[command.index("-m") + 1].rpartition(".")[2]
    stem = PurePath(script or command[0]).stem
    return re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-._")[: LONGEST_NAME // 2] or "run"


def first_tasks(tasks: Sequence[ListedTask], count: int | None) -> tuple[ListedTask, ...]:
    """Returns the first `count` of the tasks for which a list of hosts has room; None: all.

    Raises:
        ValueError: there is room for fewer.
    """
    total = len(tasks)
    if count is not None and count > total:
        first = sum(task.login == tasks[0].login for task in tasks)
        raise ValueError(
            f"{count} tasks need {count} slots, and the hosts have {total}: "
            f"write such as {tasks[0].login.host}:{count - total + first}"
        )
    return tuple(tasks[:count])
