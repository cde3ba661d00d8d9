"""Cluster file of one command on some hosts, as `tfmux run` makes it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

import tomlkit

from .addresses import LOCALHOST, TaskAddress
from .choices import Framework
from .fields import LONGEST_NAME
from .host_list import ListedHost
from .shorthand import host_name

WORKER = "worker"


@dataclass(frozen=True)
class RunRequest:
    """A command, and for each job the hosts with the number of its tasks there (`slots`)."""

    command: Sequence[str]
    jobs: Mapping[str, Sequence[ListedHost]]
    name: str
    workdir: str
    framework: Framework = Framework.TENSORFLOW
    addresses: Mapping[str, str] = field(default_factory=dict)
    """Addresses of hosts for the other hosts, by their logins, where `ssh` knows other names."""

    @property
    def equal(self) -> bool:
        """All tasks are of one job."""
        return set(self.jobs) == {WORKER}


def render(request: RunRequest) -> str:
    """Renders the file; it may still have problems, which reading it names."""
    hosts: dict[str, dict[str, str]] = {}
    names = {LOCALHOST: LOCALHOST}
    jobs: dict[str, dict[str, Any]] = {}
    for job, listed in request.jobs.items():
        places = []
        for host in listed:
            login = str(host.login)
            if login not in names:
                names[login] = host_name(host.login.host, {LOCALHOST: {}, **hosts})
                hosts[names[login]] = {"ssh": login}
            if address := request.addresses.get(login):
                hosts.setdefault(names[login], {})["address"] = address
            places += [str(TaskAddress(names[login], None))] * host.slots
        jobs[job] = {"tasks": places}
    file: dict[str, Any] = {"name": request.name}
    if hosts:
        file["hosts"] = hosts
    file["jobs"] = jobs
    file["run"] = {"command": list(request.command), "workdir": request.workdir}
    if request.framework is not Framework.TENSORFLOW:
        file["run"]["framework"] = str(request.framework)
    if request.equal:  # as mpirun and torchrun do: all at once, and all must end well
        file["run"]["success"] = "all"
        if not request.framework.meets:
            jobs[WORKER]["ready"] = "auto"
            file["start"] = {"order": [[WORKER]]}
    return f"# made by tfmux run\n{tomlkit.dumps(file).rstrip()}\n"


def default_name(command: Sequence[str]) -> str:
    """Makes a cluster's name of a command: that of its script, module or program."""
    script = next((word for word in command if word.endswith(".py")), "")
    if not script and "-m" in command[:-1]:
        script = command[command.index("-m") + 1].rpartition(".")[2]
    stem = PurePath(script or command[0]).stem
    return re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-._")[: LONGEST_NAME // 2] or "run"


def first_slots(hosts: Sequence[ListedHost], count: int | None) -> tuple[ListedHost, ...]:
    """Returns the hosts with room for `count` tasks, the first ones first; None: all slots.

    Raises:
        ValueError: there are fewer slots.
    """
    total = sum(host.slots for host in hosts)
    if count is not None and count > total:
        raise ValueError(
            f"{count} tasks need {count} slots, and the hosts have {total}: "
            f"write such as {hosts[0].login.host}:{count - total + hosts[0].slots}"
        )
    left = total if count is None else count
    found = []
    for host in hosts:
        if taken := min(host.slots, left):
            found.append(ListedHost(host.login, taken))
            left -= taken
    return tuple(found)
