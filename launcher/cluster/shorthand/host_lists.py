"""Parser of host lists: the host files of Open MPI, MPICH, DeepSpeed, Horovod, PBS, Grid Engine and
GNU parallel, rankfiles, inventories of Ansible, files of `ssh`, `/etc/hosts`, and lists with commas
or blanks.

A line with a word that is no host is refused, and the whole text with it.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from ...frozen import frozen
from ..addresses import AddressError, SshDestination, check_host, is_loopback, parse_user
from ..roles import JOB_WORDS
from ..values import MOST_HOSTS, MOST_TASKS
from .entries import Entry, expanded, looks_like_host, parse, quoted, split, this_machine
from .understood import WORKER, ListedHost, ListedTask, ShorthandError, Understood

_MOST_SLOTS = 1_000_000
_MOST_WORDS = 16_384
_SLOTS = frozenset({"slots", "slot", "cpu", "cpus", "ppn", "ncpus", "mpiprocs"})
_USERS = frozenset({"user", "username", "ansible_user", "ansible_ssh_user"})
_PORTS = frozenset({"port", "ansible_port", "ansible_ssh_port"})
_NAMES = frozenset({"ansible_host", "ansible_ssh_host", "hostname"})
_IGNORED = frozenset(
    {"max_slots", "binding", "ifname", "weight", "gpus", "ansible_connection"}
    | {"ansible_python_interpreter", "ansible_ssh_private_key_file"}
)
_OF_LOGINS = _USERS | _PORTS | _NAMES
_ANY_VALUE = re.compile(r"(?<!\s)(?:\s++=\s*|=\s+)")
_PBS = re.compile(r"[\w.-]+/\d+(?:\*\d+)?(?:\+[\w.-]+/\d+(?:\*\d+)?)*")
_PBS_NODES = re.compile(r"(?:nodes=)?[\w.-]+:ppn=\d+(?:\+[\w.-]+:ppn=\d+)*")
_PARALLEL = re.compile(r"(\d{1,5})/(\S+)")
_GROUP = re.compile(r"\[([A-Za-z][\w.-]*)(?::(vars|children))?\]")
_HEAD = re.compile(r"[\"']?([A-Za-z][\w-]*)[\"']?:")
_QUEUE = re.compile(r"\S+@\S+")


@frozen
class _HostLine:
    """One host of a list."""

    entry: Entry
    task: bool
    number: int
    job: str


def find(text: str, known: Collection[str] = ()) -> Understood | None:
    """Parses a list of hosts; None where there is nothing in it. `known` are names that are hosts
    though they look like words.

    Raises:
        ShorthandError: a line has a word that is no host.
    """
    for form in (_ssh_config, _rankfile, _etc_hosts):
        if (found := form(text)) is not None:
            return found
    group, variables_of = "", ""
    lines: list[_HostLine] = []
    logins: dict[SshDestination, None] = {}
    read: dict[str, tuple[Entry, ...]] = {}
    groups: dict[str, dict[str, str]] = {}
    notes: dict[str, None] = {}
    for number, line in enumerate(text.splitlines(), 1):
        line = re.sub(r"^\s*[-*\u2022]\s+", "", line).strip()
        line = re.sub(r"^(?:-l\s+)?(?:nodes|select)=(?=\w[\w.-]*:ppn=)", "", line)
        if not line or line == "---":
            continue
        if heading := _GROUP.fullmatch(line) or (_HEAD.fullmatch(line)):
            kind = heading[2] if heading.re is _GROUP else None
            group, variables_of = heading[1], heading[1] if kind == "vars" else ""
            if kind == "children":
                variables_of = group
            continue
        if variables_of:
            key, equals, value = line.partition("=")
            if equals:
                groups.setdefault(variables_of, {})[key.strip()] = value.strip()
            continue
        try:
            if line not in read:
                read[line] = tuple(_entries(line, known))
            for entry in read[line]:
                if entry.note:
                    notes[entry.note] = None
                lines.append(_HostLine(entry, entry.is_task, number, group))
                logins[entry.login] = None
                if len(logins) > MOST_HOSTS:
                    raise ShorthandError(f"more than {MOST_HOSTS:,} hosts, and a run has no more")
        except (ShorthandError, AddressError) as error:
            many = "\n" in text.strip()
            raise ShorthandError(str(error), number if many else None) from None
    if not lines:
        return None
    lines = [replace(line, entry=_with_group(line, groups)) for line in lines]
    return _understood(lines, tuple(notes))


def _understood(lines: Sequence[_HostLine], notes: tuple[str, ...]) -> Understood:
    roles = [job_of(line.job) for line in lines]
    if all(roles):
        jobs: dict[str, list[ListedTask]] = {}
        for line, role in zip(lines, roles, strict=True):
            jobs.setdefault(role, []).extend(_tasks(line.entry))
        return Understood("hosts of jobs", _frozen(jobs), notes=notes)
    if any(line.task for line in lines):
        tasks = [task for line in lines for task in _tasks(line.entry)]
        return Understood("", _frozen({WORKER: tasks}), notes=notes)
    return Understood("", hosts=merged(line.entry for line in lines), notes=notes)


def job_of(group: str) -> str:
    """The job after which a group of hosts is called; empty if there is none."""
    return JOB_WORDS.get(group.lower().replace("-", "_").removesuffix("_hosts"), "")


def of_inventory(hosts: Sequence[tuple[str, Mapping[str, str], str]]) -> Understood | None:
    """Makes hosts of the names, variables and groups of an inventory; other variables than those of
    logins are left out. None: there are none.

    Raises:
        ShorthandError, AddressError: a name or a variable is none of a host.
    """
    lines = []
    for number, (name, variables, group) in enumerate(hosts, 1):
        known = {key: value for key, value in variables.items() if key in _OF_LOGINS}
        lines.append(_HostLine(_with_values(parse(name), known), False, number, group))
    if not lines:
        return None
    found = _understood(lines, ())
    return replace(found, form=found.form or "an inventory of Ansible")


def _frozen(jobs: dict[str, list[ListedTask]]) -> dict[str, tuple[ListedTask, ...]]:
    if sum(map(len, jobs.values())) > MOST_TASKS:
        raise ShorthandError(f"more than {MOST_TASKS:,} tasks, and a run has no more")
    return {job: tuple(tasks) for job, tasks in jobs.items()}


def _tasks(entry: Entry) -> list[ListedTask]:
    return (
        [entry.task]
        if entry.is_task
        else [ListedTask(entry.login)] * min(entry.slots, MOST_TASKS + 1)
    )


def merged(entries: Iterator[Entry] | Sequence[Entry]) -> tuple[ListedHost, ...]:
    """Makes hosts of entries; a login in several of them has the sum of their slots.

    Raises:
        ShorthandError: there are more than a run has.
    """
    found: dict[SshDestination, ListedHost] = {}
    for entry in entries:
        login = this_machine(entry.login)
        key = replace(login, host=login.host.lower())
        before = found.get(key)
        slots = entry.slots + (before.slots if before else 0)
        found[key] = replace(before or ListedHost(login), slots=slots)
        if len(found) > MOST_HOSTS:
            raise ShorthandError(f"more than {MOST_HOSTS:,} hosts, and a run has no more")
    return tuple(found.values())


def _with_group(line: _HostLine, groups: dict[str, dict[str, str]]) -> Entry:
    login = line.entry.login
    for name in (line.job, "all"):
        for key, value in groups.get(name, {}).items():
            if key in _USERS and login.user is None:
                login = replace(login, user=parse_user(value))
            if key in _PORTS and login.port is None:
                login = replace(login, port=_count(value, key))
    return replace(line.entry, login=login)


def _entries(line: str, known: Collection[str]) -> Iterator[Entry]:
    """Parses the hosts of a line.

    Raises:
        ShorthandError, AddressError: a word of it is no host.
    """
    line = _ANY_VALUE.sub("=", line.rstrip(",;"))
    if _PBS.fullmatch(line):
        for part in line.split("+"):
            host, _, times = part.partition("*")
            yield replace(parse(host.partition("/")[0]), slots=_count(times or "1", "slots"))
        return
    if _PBS_NODES.fullmatch(line):
        for part in line.removeprefix("nodes=").split("+"):
            host, _, slots = part.partition(":ppn=")
            yield replace(parse(host), slots=_count(slots, "ppn"))
        return
    for item in _items(line):
        yield from _item(item.split(), known)


def _items(line: str) -> Iterator[str]:
    """Splits a line at commas and semicolons, but not in brackets, nor in a value behind `=`."""
    if re.search(r"[\w-]=[^\s,=]*,", line):
        yield line
        return
    bare = line.strip()
    if re.fullmatch(r"[\[(]\s*[\"'].*[\"']\s*[\])]", bare) or re.fullmatch(r"\(.*\)", bare):
        bare = bare[1:-1]
    for item in re.findall(r"(?:\[[^\[\]]*\]|\{[^{}]*\}|[^,;\[{]|[\[{])+", bare):
        if item := item.strip().strip("\"'"):
            yield item


def _item(words: Sequence[str], known: Collection[str]) -> Iterator[Entry]:
    if len(words) > _MOST_WORDS:
        raise ShorthandError(f"a line has more than {_MOST_WORDS:,} words")
    plain = [word for word in words if "=" not in word or word.startswith("-")]
    values = dict(_value(word) for word in words if word not in plain)
    if len(plain) == 4 and plain[1].isdecimal() and _QUEUE.fullmatch(plain[2]):  # Grid Engine
        plain, values = plain[:1], {"slots": plain[1], **values}
    if pairs := _pairs(plain):
        yield from pairs
        return
    if len(plain) > 1:
        for word in plain:
            if not looks_like_host(word.strip("\"'"), known):
                raise ShorthandError(
                    f"{quoted(word)} is not a host: write hosts with commas or one per line, "
                    "a user as me@tf1"
                )
    for word in plain:
        if parallel := _PARALLEL.fullmatch(word):
            word, values = parallel[2], {**values, "slots": parallel[1]}
        for each in expanded(word.strip("\"'")):
            yield _with_values(parse(each), values)
    if not plain:
        raise ShorthandError(f"{quoted(words[0])} is not a host")


def _pairs(words: Sequence[str]) -> list[Entry]:
    """Hosts, each with its slots behind it, as LSF writes them; none where it is no such list."""
    if len(words) < 2 or len(words) % 2 or not all(word.isdecimal() for word in words[1::2]):
        return []
    pairs = zip(words[::2], words[1::2], strict=True)
    return [replace(parse(host), slots=_count(slots, "slots")) for host, slots in pairs]


def _value(word: str) -> tuple[str, str]:
    key, _, value = word.partition("=")
    key = key.lower().replace("-", "_")
    if key not in _SLOTS | _USERS | _PORTS | _NAMES | _IGNORED:
        known = ", ".join(f"{each}=" for each in ("slots", "max_slots", "user", "port"))
        raise ShorthandError(f"{quoted(word)} is not known after a host: {known}")
    return key, value.strip("\"'")


def _with_values(entry: Entry, values: dict[str, str]) -> Entry:
    login = entry.login
    for key, value in values.items():
        if key in _SLOTS:
            if entry.port is not None:  # `tf1:2222 slots=4`: the port cannot be that of a task
                login = replace(login, port=entry.port)
                entry = replace(entry, port=None, note=f"{entry.port} read as the SSH port")
            entry = replace(entry, slots=_count(value, key), is_task=False)
        elif key in _USERS:
            login = login if login.user else replace(login, user=parse_user(value))
        elif key in _PORTS:
            login = replace(login, port=_port(value, key))
        elif key in _NAMES:
            login = replace(login, host=check_host(value.strip("[]")))
        elif key == "max_slots":
            _count(value, key)
    return replace(entry, login=login)


def _count(text: str, what: str) -> int:
    if not re.fullmatch(r"\d{1,7}", text) or not 0 < int(text) <= _MOST_SLOTS:
        raise ShorthandError(f"{what}={quoted(text)[1:-1]}: write a whole number from 1 on")
    return int(text)


def _port(text: str, what: str) -> int:
    if (port := _count(text, what)) > 65535:
        raise ShorthandError(f"{what}={port}: the highest port is 65535")
    return port


def option(text: str, what: str, known: Collection[str] = ()) -> Understood:
    """Parses the hosts of an option or a variable whose value is a list of them, separated by
    commas or blanks. A host that stands there several times has so many slots.

    Raises:
        ShorthandError: one is no host.
    """
    if _PBS.fullmatch(text) or _PBS_NODES.fullmatch(text):
        entries = list(_entries(text, known))
    else:
        entries = _pairs(text.split()) or [parse(word) for word in split(text)]
    notes = tuple(dict.fromkeys(entry.note for entry in entries if entry.note))
    if not entries:
        raise ShorthandError(f"there is no host in {what}")
    return replace(_understood([_HostLine(e, e.is_task, 1, "") for e in entries], notes), form=what)


_RANK = re.compile(r"\s*rank\s+(\d{1,6})\s*=\s*(\S+)\s+slots?\s*=\s*([\d:,*-]+)\s*")


def _rankfile(text: str) -> Understood | None:
    """Parses a rankfile of Open MPI: a task for each rank; which cores it has is left out."""
    lines = [line for line in text.splitlines() if line.strip()]
    ranks: dict[int, Entry] = {}
    for number, line in enumerate(lines, 1):
        match = _RANK.fullmatch(line)
        if match is None:
            if ranks:
                raise ShorthandError("not a line of a rankfile, such as rank 0=tf1 slot=0", number)
            return None
        if match[2].startswith("+"):
            raise ShorthandError(f"{quoted(match[2])} counts the hosts of another file", number)
        if int(match[1]) in ranks:
            raise ShorthandError(f"rank {match[1]} is listed twice", number)
        ranks[int(match[1])] = parse(match[2])
    if not ranks:
        return None
    if sorted(ranks) != list(range(len(ranks))):
        raise ShorthandError(f"its ranks are not 0 to {len(ranks) - 1}")
    entries = [ranks[rank] for rank in range(len(ranks))]
    hosts = merged(entries)
    order = [host.login for host in hosts for _ in range(host.slots)]
    notes = () if order == [entry.login for entry in entries] else (_NUMBERED,)
    left_out = ("the cores of ranks are left out",)
    return Understood("a rankfile", hosts=hosts, notes=notes, left_out=left_out)


_NUMBERED = "ranks are numbered from host to host"


def _etc_hosts(text: str) -> Understood | None:
    """Parses lines of `/etc/hosts`: an address, and names behind it."""
    found: list[ListedHost] = []
    own = 0
    for line in filter(str.strip, text.splitlines()):
        address, *names = line.split()
        if not _is_address(address) or not names:
            return None
        if not all(re.fullmatch(r"[A-Za-z0-9_.-]*[A-Za-z_][\w.-]*", name) for name in names):
            return None
        ip = ipaddress.ip_address(address)
        every = any(name.startswith("ip6-") or name == "broadcasthost" for name in names)
        if is_loopback(address) or ip.is_multicast or every:
            own += 1
            continue
        name = next((name for name in names if "." not in name), names[0])
        found.append(ListedHost(SshDestination(None, check_host(address), None), 1, name))
    if not found:
        if own:
            raise ShorthandError("its lines are about each machine itself: write other hosts")
        return None
    if len({host.login for host in found}) > MOST_HOSTS:
        raise ShorthandError(f"more than {MOST_HOSTS:,} hosts, and a run has no more")
    found = list({host.login: host for host in reversed(found)}.values())[::-1]
    left_out = ("names that mean each machine itself are left out",) if own else ()
    return Understood("an /etc/hosts", hosts=tuple(found), left_out=left_out)


def _is_address(word: str) -> bool:
    try:
        ipaddress.ip_address(word)
    except ValueError:
        return False
    return "%" not in word


_CONFIG_LINE = re.compile(r"\s*(\w+)(?:\s*=\s*|\s+)(.+?)\s*")


def _ssh_config(text: str) -> Understood | None:
    """Parses the `Host` blocks of a pasted `~/.ssh/config`."""
    pairs = [_CONFIG_LINE.fullmatch(line) for line in text.splitlines() if line.strip()]
    keys = {match[1].lower() for match in pairs if match}
    if (
        None in pairs
        or "host" not in keys
        or not keys & {"hostname", "user", "port", "identityfile"}
    ):
        return None
    blocks: list[tuple[list[str], dict[str, str]]] = []
    left_out: dict[str, None] = {}
    for match in filter(None, pairs):
        key, value = match[1].lower(), match[2].strip('"')
        if key == "host":
            blocks.append((value.split(), {}))
        elif blocks:
            blocks[-1][1].setdefault(key, value)
        if key not in ("host", "hostname", "user", "port", "identityfile", "proxyjump"):
            left_out[f"{match[1]} is left out"] = None
    general: dict[str, str] = {}
    for names, values in blocks:
        if names == ["*"]:
            general |= values
    found = []
    for names, own in blocks:
        values = {**general, **own}
        for name in names:
            if set("*?!") & set(name):
                continue
            port = values.get("port")
            login = SshDestination(
                parse_user(values["user"]) if "user" in values else None,
                check_host(values.get("hostname", name).replace("%h", name).strip("[]")),
                None if port is None or port == "22" else _port(port, "Port"),
            )
            found.append(
                ListedHost(
                    login, 1, name, values.get("identityfile", ""), values.get("proxyjump", "")
                )
            )
    if not found:
        raise ShorthandError("its Host lines have only patterns: write a name")
    return Understood("an ssh_config", hosts=tuple(found), left_out=tuple(left_out))
