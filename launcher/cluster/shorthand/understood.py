"""What a text of hosts or tasks was understood as, and the sentence that says so."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import field

from ...frozen import frozen
from ...printable import printable
from ...quantities import and_list, counted, thousands
from ..addresses import LOCALHOST, SshDestination, join
from ..choices import Framework
from ..roles import ROLES, plural

WORKER = "worker"
_MOST_SHOWN = 8
_SERIES = re.compile(r"(.*?)(\d+)")
_ORDER = tuple(ROLES)


class ShorthandError(ValueError):
    """The text is refused; the message says what is wrong with it, and in which line of several."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message if line is None else f"line {line}: {message}")
        self.message = message
        self.line = line


@frozen
class ListedHost:
    """A host of a list. Its `slots` are how many tasks the list has room for there."""

    login: SshDestination
    slots: int = 1
    name: str = ""
    """The name that the text gives it; empty: that of the login."""
    identity: str = ""
    jump: str = ""

    @property
    def table(self) -> dict[str, str]:
        """Table of the host in a cluster file."""
        table = {"ssh": str(self.login), "identity": self.identity, "jump": self.jump}
        return {key: value for key, value in table.items() if value}


@frozen
class ListedTask:
    """A task and the host that it is on; its port is None where a free one is to be picked."""

    login: SshDestination
    port: int | None = None

    def __str__(self) -> str:
        return join(str(self.login), self.port) if self.login.user else self._address

    @property
    def _address(self) -> str:
        return join(self.login.host, self.port)


@frozen
class Understood:
    """Jobs with tasks, or hosts alone."""

    form: str
    """Kind of the text, such as "a TF_CONFIG"; empty: a list."""
    jobs: Mapping[str, tuple[ListedTask, ...]] = field(default_factory=dict)
    hosts: tuple[ListedHost, ...] = ()
    notes: tuple[str, ...] = ()
    """How it was read where it could mean two things."""
    left_out: tuple[str, ...] = ()
    """Parts of the text that were not taken."""
    command: tuple[str, ...] = ()
    """Command of all tasks."""
    commands: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Commands of single jobs."""
    env: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Variables of single jobs."""
    framework: Framework = Framework.TENSORFLOW
    name: str = ""

    def tasks(self) -> dict[str, tuple[ListedTask, ...]]:
        """Returns the tasks of each job; of hosts alone a worker for each slot."""
        if self.jobs:
            return dict(self.jobs)
        return {WORKER: tuple(ListedTask(h.login) for h in self.hosts for _ in range(h.slots))}

    def logins(self) -> tuple[ListedHost, ...]:
        """Returns the hosts of all tasks, each once, in the order of the text."""
        found = {host.login: host for host in self.hosts}
        for task in (task for job in self.jobs.values() for task in job):
            found.setdefault(task.login, ListedHost(task.login))
        return tuple(found.values())

    @property
    def lacks_command(self) -> bool:
        """Whether there are tasks whose command the text does not name."""
        return not self.command and not set(self.tasks()) <= set(self.commands)

    @property
    def sentence(self) -> str:
        """Says what was understood, how, and what was left out."""
        said = [self.what, *self.notes]
        if self.left_out:
            shown = [printable(each, 100) for each in self.left_out[:_MOST_SHOWN]]
            more = len(self.left_out) - len(shown)
            said += [*shown, *([f"and {more} more"] if more else [])]
        return "; ".join(said)

    @property
    def what(self) -> str:
        """Says what was understood, without how."""
        return f"{self.form}: {self._what()}" if self.form else self._what()

    def _names(self) -> str:
        """The hosts, and how they are logged in at."""
        hosts = self.logins()
        users, ports = ({getattr(h.login, each) for h in hosts} for each in ("user", "port"))
        if len(users) > 1 or len(ports) > 1:
            return shown_names(str(host.login) for host in hosts)
        names = [host.name or host.login.host for host in hosts]
        shown = shown_names(sorted(names, key=_natural) if self.jobs else names)
        user, port = users.pop(), ports.pop()
        shown += f" as {printable(user, 40)}" if user else ""
        return shown + (f" (SSH port {port})" if port else "")

    def _what(self) -> str:
        names = self._names()
        if not self.jobs:
            slots = [host.slots for host in self.hosts]
            room = "" if set(slots) == {1} else f", {sum(slots):,} slots"
            if len(set(slots)) == 1 and room:
                room = f", {counted(slots[0], 'slot')}{' each' if len(slots) > 1 else ''}"
            return f"{counted(len(self.hosts), 'host')}, {names}{room}"
        jobs = sorted(
            self.jobs, key=lambda job: _ORDER.index(job) if job in _ORDER else len(_ORDER)
        )
        counts = [job_count(job, len(self.jobs[job])) for job in jobs]
        given = [task.port is not None for tasks in self.jobs.values() for task in tasks]
        ports = "ports as given" if all(given) else "free ports are picked at the launch"
        if any(given) and not all(given):
            ports = "ports where they are given"
        return f"{and_list(counts)} on {names}, {ports}"


def job_count(job: str, count: int) -> str:
    """Writes `2 workers`, `1 ps`, `3 of gpu`."""
    shown = printable(job, 40)
    return f"{thousands(count)} {plural(job, count)}" if job in ROLES else f"{count} of {shown}"


def shown_names(names: Iterable[str], here: str = "this machine") -> str:
    """Writes names of hosts, series of them as `tf1–tf3`, of many the first; `here` is what this
    machine is called."""
    shown: list[tuple[str, str]] = []
    for name in dict.fromkeys(printable(each, 60) for each in names):
        first, last = shown[-1] if shown else ("", "")
        if shown and _follows(last, name):
            shown[-1] = (first, name)
        else:
            shown.append((name, name))
    words = []
    for first, last in shown:
        near = _follows(first, last)
        words += [first] if first == last else [first, last] if near else [f"{first}–{last}"]
    more = len(words) - _MOST_SHOWN
    words = [here if word == LOCALHOST else word for word in words]
    return ", ".join(words) if more <= 0 else f"{', '.join(words[:_MOST_SHOWN])} and {more} more"


def _natural(name: str) -> tuple[str, int]:
    match = _SERIES.fullmatch(name)
    return (match[1], int(match[2][:16])) if match else (name, -1)


def _follows(one: str, other: str) -> bool:
    before, after = _SERIES.fullmatch(one), _SERIES.fullmatch(other)
    return bool(
        before and after and before[1] == after[1] and len(after[2]) < 16
        and int(after[2]) == int(before[2][:16]) + 1
    )  # fmt: skip
