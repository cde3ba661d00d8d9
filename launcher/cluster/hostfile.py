"""Lists of hosts that a scheduler or `mpirun` left, and the cluster files made from them.

`up --hosts-from` adds `[hosts.node0]`, `[hosts.node1]`, … to a file; `tfmux run` makes a whole
file of one command.

The lists are those of Open MPI (`tf1 slots=4`, `tf1:4`), of PBS (`$PBS_NODEFILE`: a line for each
slot) and what else has a host name in each line.
"""

from __future__ import annotations

import ipaddress
import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path, PurePath
from typing import Any

import tomlkit

from ..errors import ClusterFileError, Problem
from ..frozen import frozen
from ..printable import printable
from .addresses import LOCALHOST, SshDestination, TaskAddress
from .choices import Framework, HostSource, OnFailure
from .file_model import Slurm, node_name
from .shorthand import host_name
from .values import LONGEST_NAME, MOST_HOSTS

MOST_BYTES = 1 << 20
_MOST_SLOTS = 1_000_000
_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,252})")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_COUNT = re.compile(r"\d{1,7}")
_KEYS = frozenset({"slots", "max_slots", "max-slots", "user", "username", "port"})


@frozen
class ListedHost:
    """One host of a list. Its `slots` are how many tasks the list has room for."""

    login: SshDestination
    slots: int


def read(kind: HostSource, path: Path | None, environ: Mapping[str, str]) -> tuple[ListedHost, ...]:
    """Reads a list.

    Raises:
        ClusterFileError: there is none, or something in it is wrong.
    """
    given = [value for name in kind.variables if (value := environ.get(name))]
    if path is None and not given:
        names = " or ".join(kind.variables)
        raise _error("", None, f"write --hostfile FILE: {names} is not set here")
    path = path or Path(given[0])
    source = printable(str(path), 200)
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        raise _error(source, None, getattr(error, "strerror", None) or str(error)) from None
    if len(data) > MOST_BYTES:
        raise _error(source, None, "it is too long for a list of hosts")
    return parse(data.decode(errors="replace"), source)


def parse(text: str, source: str) -> tuple[ListedHost, ...]:
    """Reads the lines of a list; a login in several of them has the sum of their slots.

    Raises:
        ClusterFileError: a line is no host, or there is none.
    """
    lines = enumerate(text.splitlines(), 1)
    return _hosts(((n, line.partition("#")[0].split()) for n, line in lines), source)


def parse_option(text: str, source: str) -> tuple[ListedHost, ...]:
    """Reads the list of an option, such as `tf1,tf2:2`; see `parse`.

    Raises:
        ClusterFileError: an entry is no host, or there is none.
    """
    return _hosts(((None, entry.split()) for entry in text.split(",")), source)


def _hosts(
    entries: Iterable[tuple[int | None, Sequence[str]]], source: str
) -> tuple[ListedHost, ...]:
    found: dict[SshDestination, ListedHost] = {}
    for number, words in entries:
        if not words:
            continue
        try:
            host = _host(words)
        except ValueError as error:
            raise _error(source, number, str(error)) from None
        key = replace(host.login, host=host.login.host.lower())
        before = found.get(key)
        total = host.slots + (before.slots if before else 0)
        found[key] = replace(before or host, slots=total)
    if not found:
        raise _error(source, None, "there is no host in it")
    if len(found) > MOST_HOSTS:
        raise _error(source, None, f"more than {MOST_HOSTS:,} hosts, and a run has no more")
    return tuple(found.values())


def with_hosts(text: str, source: str, hosts: Sequence[ListedHost]) -> str:
    """Returns the text of a cluster file with the tables of these hosts behind it.

    Raises:
        ClusterFileError: the file has hosts of its own.
    """
    tables = (
        f"[hosts.{node_name(number)}]\nssh = {json.dumps(str(host.login))}\n"
        f"address = {json.dumps(host.login.host)}\n"
        for number, host in enumerate(hosts)
    )
    return with_table(text, source, "\n".join(tables))


def with_table(text: str, source: str, table: str) -> str:
    """Returns the text of a cluster file with a table that gives hosts behind it.

    Raises:
        ClusterFileError: the file has hosts of its own.
    """
    try:
        raw = tomllib.loads(text)
    except (ValueError, RecursionError):
        return text  # it is read again, and what is wrong is said with its line
    for own in ("hosts", Slurm.table):
        if own in raw:
            raise _error(source, None, f"the hosts come from --hosts-from: remove [{own}]")
    end = "" if text.endswith("\n") else "\n"
    return f"{text}{end}\n{table}"


def _host(words: Sequence[str]) -> ListedHost:
    """Reads a line.

    Raises:
        ValueError: with what is wrong.
    """
    user, at, place = words[0].rpartition("@")
    name, slots = _place(place)
    values: dict[str, str] = {}
    for word in words[1:]:
        key, equals, value = word.partition("=")
        if not equals or key not in _KEYS:
            known = ", ".join(f"{key}=" for key in ("slots", "max_slots", "user", "port"))
            raise ValueError(f"{printable(word, 60)!r} is not known behind a host: {known}")
        values[key] = value
    if "slots" in values:
        slots = _count(values["slots"], "slots")
    user = user if at else values.get("user") or values.get("username") or ""
    if (at or user) and not _USER.fullmatch(user):
        raise ValueError(f"{printable(user, 60)!r} is not a user name")
    port = _count(values["port"], "port") if "port" in values else None
    if port is not None and port > 65535:
        raise ValueError(f"port={port}: the highest port is 65535")
    return ListedHost(SshDestination(user or None, name, port), slots)


def _place(place: str) -> tuple[str, int]:
    """Name and slots of `tf1`, `tf1:4`, `fd00::1`, `[fd00::1]:4`."""
    if place.startswith("["):
        inner, bracket, rest = place[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError(f"{printable(place, 60)!r} has brackets that are not closed")
        return _ipv6(inner), _count(rest[1:], "slots") if rest else 1
    if place.count(":") > 1:
        return _ipv6(place), 1
    name, colon, count = place.partition(":")
    if not _NAME.fullmatch(name):
        raise ValueError(f"{printable(name, 60)!r} is not a host name")
    return name, _count(count, "slots") if colon else 1


def _ipv6(text: str) -> str:
    try:
        return str(ipaddress.IPv6Address(text))
    except ValueError:
        raise ValueError(f"{printable(text, 60)!r} is not an IPv6 address") from None


def _count(text: str, what: str) -> int:
    if not _COUNT.fullmatch(text) or not 0 < int(text) <= _MOST_SLOTS:
        raise ValueError(f"{what}={printable(text, 60)}: write a whole number from 1 on")
    return int(text)


def _error(source: str, line: int | None, message: str) -> ClusterFileError:
    return ClusterFileError(source or "--hosts-from", [Problem("", line, "", message)])


WORKER = "worker"


@frozen
class RunRequest:
    """A command, and for each job the hosts with the number of its tasks there (`slots`)."""

    command: Sequence[str]
    jobs: Mapping[str, Sequence[ListedHost]]
    name: str
    workdir: str
    framework: Framework = Framework.TENSORFLOW
    addresses: Mapping[str, str] = field(default_factory=dict)
    """Addresses of hosts for the other hosts, by their logins, where `ssh` knows other names."""
    max_restarts: int | None = None
    """How often all tasks start again where one fails; None: the run ends."""
    collect: Sequence[str] = ()
    """Paths that are brought back at the end."""
    directory: str = ""
    """The directory that the hosts have already; empty: there is `workdir`."""

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
    place = "directory" if request.directory else "workdir"
    file["run"] = {"command": list(request.command), place: getattr(request, place)}
    if request.collect:
        file["run"]["collect"] = list(request.collect)
    if request.framework is not Framework.TENSORFLOW:
        file["run"]["framework"] = str(request.framework)
    if request.max_restarts is not None:
        file["run"]["on_failure"] = str(OnFailure.RESTART_ALL)
        file["run"]["max_restarts"] = request.max_restarts
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
