"""Problems of a cluster file: those of its values, and then those between values.

pydantic finds the first ones, alone; `value_problems` writes its errors for people who write TOML.
`violations` finds mistakes between values that else show up on some host minutes later: two tasks
on one port, a `localhost` that means another machine on every host, an unknown placeholder in a
command. They are looked for in a file whose values are right, so that one mistake is reported once.
Nothing is looked up on the network.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from ..errors import Problem
from ..frozen import frozen
from ..ids import TaskId
from ..printable import escaped
from ..quantities import size
from .addresses import (
    LOCALHOST,
    AddressPart,
    bracketed,
    check_host,
    is_loopback,
    join,
    loopback_problem,
)
from .choices import Framework, OnFailure
from .file_model import (
    NAMED_TABLES,
    PENDING,
    SSH_OPTIONS,
    TABLES,
    ClusterModel,
    Host,
    Job,
    RunSettings,
    tables_in,
)
from .key_lines import KeyPath
from .placeholders import PLAIN, RANKED, RUN_WIDE, Names, names_in, nearest_job
from .ranks import has_ranks
from .roles import ADDRESS_LISTS, Role, jobs_with
from .values import COMMAND, MOST_HOSTS, MOST_TASKS, TEXT_NEEDED, gpu_count, nearest

_JOB = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_LONGEST_JOB = 64
PREPARE = "prepare"
"""The job of the tasks that run the `prepare` lines."""
_NO_LOGDIR = frozenset({"logdir"})
_NO_WORKDIR = frozenset({"logdir", "workdir"})
_SHOWN = 60
_LONGEST_MESSAGE = 1000
_MOST_EXPRESSIONS = 1 << 14
"""Characters of all different expressions: RE2 takes up to 50 µs to compile one character."""
_LONGEST_KEY = 100
"""Characters of an unknown key in a message."""


@frozen
class Violation:
    """One thing that is wrong: its key, the value there (None: none), and what to write.

    `part` is the half of a task's address that is wrong, where one is.
    """

    path: KeyPath
    found: object
    message: str
    part: AddressPart | None = None


def violations(
    cluster: ClusterModel, raw: Mapping[str, Any], *, for_launch: bool
) -> Iterator[Violation]:
    """Makes all checks between the values of a cluster, whose tables are `raw`; the order is
    arbitrary. `for_launch` also looks for the local files and directories that it names."""
    checks = (*_CHECKS, *((_missing_paths,) if for_launch else ()))
    return (_at_default(each, raw) for check in checks for each in check(cluster))


def value_problems(details: Sequence[ErrorDetails]) -> list[Violation]:
    """What pydantic's errors say of single values: the value, and what to write."""
    unknown = [_path(detail) for detail in details if detail["type"] == "extra_forbidden"]
    # A key that is missing because its name is misspelled is one mistake.
    meant = {(*path[:-1], near) for path in unknown if (near := _meant(path))}
    if any(len(_path(d)) == 1 and _is_job(d["input"]) for d in details):
        meant.add(("jobs",))
    return [
        Violation(_path(detail), found, _sentence(detail), detail.get("ctx", {}).get("part"))
        for detail in details
        for found in (None if detail["type"] == "missing" else detail["input"],)
        if detail["type"] != "missing" or _path(detail) not in meant
        # A list whose elements are all wrong is not empty.
        if detail["type"] != "too_short" or not detail["input"]
    ]


def as_problem(violation: Violation, line: int | None) -> Problem:
    """What is wrong, as it is shown: without control characters, and short."""
    found = "" if violation.found is None else _display(violation.found)
    key = escaped(_dotted(violation.path))
    path = violation.path if violation.part is None else (*violation.path, str(violation.part))
    message = violation.message  # may quote what the file says
    if len(message) > _LONGEST_MESSAGE:
        message = f"{message[:_LONGEST_MESSAGE]}…"
    return Problem(key, line, found, escaped(message), path)


def _display(found: object) -> str:
    """Formats a value of the file, shortened and without control characters."""
    match found:
        case str():
            quoted = '"' + escaped(found[: _SHOWN + 1]) + '"'
        case bool():
            quoted = str(found).lower()
        case dict():
            quoted = "a table"
        case list() | tuple():
            quoted = "a list" if found else "an empty list"
        case int() if abs(found) > 10**_SHOWN:
            quoted = "a huge number"
        case _:
            quoted = str(found)
    return quoted if len(quoted) <= _SHOWN + 2 else quoted[:_SHOWN] + '…"'


def _dotted(path: KeyPath) -> str:
    """Formats a path of keys: `jobs.ps.tasks[0]`."""
    text = ""
    for key in path:
        if isinstance(key, int):
            text += f"[{key}]"
        else:
            plain = re.fullmatch(r"[A-Za-z0-9_-]+", key)
            short = key if len(key) <= _SHOWN else key[: _SHOWN - 1] + "…"
            text += ("." if text else "") + (short if plain else f'"{short}"')
    return text


def _path(detail: ErrorDetails) -> KeyPath:
    return tuple(key for key in detail["loc"] if key != "[key]")


_SENTENCES = {
    "string_type": TEXT_NEEDED,
    "bool_type": "write true or false, without quotes",
    "int_type": "write a whole number, without quotes or a unit",
    "float_type": "write a number, without quotes or a unit",
    "finite_number": "write a number that ends, not inf or nan",
    "greater_than_equal": "write a number from {ge:.0f} on",
    "less_than_equal": "write a number up to {le:.0f}",
    "too_long": "write at most {max_length:,}",
}
"""What to write, for each type of pydantic's errors that needs no more than its bounds."""
_EMPTY = {
    "tasks": 'the job has no tasks: write at least one, such as ["tf1:2222"]',
    "command": 'the command is empty: write a program and its arguments, ["{python}", "train.py"]',
    "via": 'the command is empty: write such as ["podman", "exec", "-i", "tf1"]',
}
_MISSING = {
    "jobs": "the file has no jobs: write such as [jobs.worker]",
    "tasks": 'the job has no tasks: write such as tasks = ["tf1:2222"]',
    "nodes": "the number of nodes is missing: write such as nodes = 4",
}
_LISTS = {
    "tasks": 'list of host:port, such as ["tf1:2222", "tf2:auto"]',
    "command": 'list of arguments, such as ["{python}", "train.py"]',
    "via": 'list of arguments, such as ["podman", "exec", "-i", "tf1"]',
}


def _sentence(detail: ErrorDetails) -> str:
    """Says what to write in place of a value."""
    path, value, context = _path(detail), detail["input"], detail.get("ctx", {})
    key = "command" if path[0] == "hooks" else str(path[-1])
    match detail["type"]:
        case "missing":
            return _MISSING[key]
        case "extra_forbidden":
            return _unknown(path, value)
        case "model_type" | "model_attributes_type" | "dict_type":
            return f"write a table: [{_dotted(path)}]"
        case "tuple_type" if isinstance(value, str):
            split = {"tasks": ",", "command": None, "via": None}
            words = value.split(split[key]) if key in split else [value]
            kind = _LISTS.get(key, "list").partition(",")[0]
            return f"write a {kind}: [{', '.join(map(_quoted, words or ['…']))}]"
        case "tuple_type":
            return "write a " + _LISTS.get(key, 'list, such as ["…", "…"]')
        case "too_short":
            return _EMPTY[key]
        case "enum":
            words = re.findall("'([^']*)'", context["expected"])
            hint = nearest(value, words) if isinstance(value, str) else ""
            choice = " or ".join(f'"{word}"' for word in words)
            return f"write {choice}" + (f"; {hint}" if hint else "")
    sentence = _SENTENCES.get(detail["type"])
    return detail["msg"] if sentence is None else sentence.format(**context)


def _quoted(word: str) -> str:
    word = word.strip()
    return '"' + (word if len(word) <= 60 else word[:59] + "…") + '"'


def _is_job(value: object) -> bool:
    return isinstance(value, dict) and "tasks" in value


def _known(table: KeyPath) -> list[str]:
    """Lists the keys that a table may have."""
    model: type[BaseModel] = ClusterModel
    for key in table:
        model = tables_in(model).get(str(key), model)
    return list(model.model_fields)


def _meant(path: KeyPath) -> str:
    matches = difflib.get_close_matches(str(path[-1])[:100], _known(path[:-1]), n=1, cutoff=0.6)
    return matches[0] if matches else ""


def _unknown(path: KeyPath, value: object) -> str:
    """Says what to write in place of an unknown key."""
    key, table = str(path[-1]), path[:-1]
    if len(key) > _LONGEST_KEY:
        key = f"{key[:_LONGEST_KEY]}…"
    if not table and _is_job(value):
        return f"unknown table: a job is written [jobs.{key}]"
    tables = [name for name, model in TABLES.items() if key in model.model_fields]
    if tables and not (table and table[0] in tables):
        below = [name for name in tables if table and name.startswith(f"{table[0]}.")]
        right = (below or tables)[0]
        right = right if right not in NAMED_TABLES else f"{right}.NAME"
        return f"unknown key here: {key} belongs in [{right}]"
    if near := _meant(path):
        return f'unknown key: did you mean "{near}"?'
    return f"unknown key: the keys here are {', '.join(_known(table))}"


def limits(raw: Mapping[str, Any]) -> Iterator[Violation]:
    """What one launcher process does not hold, by the tables of a file; all other checks of so much
    would take long."""
    found = (raw.get(name) for name in ("hosts", "jobs"))
    hosts, jobs = (table if isinstance(table, dict) else {} for table in found)
    lists = [job.get("tasks") for job in jobs.values() if isinstance(job, dict)]
    tasks = sum(len(listed) for listed in lists if isinstance(listed, list))
    counts = (("hosts", len(hosts), MOST_HOSTS), ("jobs", tasks, MOST_TASKS))
    for table, count, most in counts:
        if count > most:
            what = "tasks" if table == "jobs" else table
            message = f"the file has {count:,} {what}, and a run has at most {most:,}: "
            yield Violation((table,), None, f"{message}write fewer, or start several runs")
    ready = [raw.get("start"), *jobs.values()]
    readies = [one["ready"] for one in ready if isinstance(one, dict) and "ready" in one]
    readies += [each for one in readies if isinstance(one, dict) for each in one.values()]
    logs = {one["log"] for one in readies if isinstance(one, dict) and _is_text(one.get("log"))}
    if (size := sum(map(len, logs))) > _MOST_EXPRESSIONS:
        message = f"the expressions for logs have {size:,} characters together, "
        yield Violation(("jobs",), None, f"{message}and {_MOST_EXPRESSIONS:,} are the most")


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _hosts(cluster: ClusterModel) -> Iterator[Violation]:
    for name, host in cluster.hosts.items():
        path: KeyPath = ("hosts", name)
        try:
            check_host(name)
        except ValueError as error:
            yield Violation(path, name, f"{error}; write such as tf1")
        if name == LOCALHOST and host.ssh is not None:
            yield Violation(
                (*path, "ssh"),
                str(host.ssh),
                "localhost is this machine and has no ssh: give the host another name",
            )
        elif name != LOCALHOST and host.ssh is None and host.via is None:
            yield Violation(
                path,
                None,
                f'the host has no ssh: write ssh = "{name}", or "user@host:port", or via '
                "(this machine is called localhost)",
            )
        if host.via is not None:
            yield from _via(path, host)
        for key in (*SSH_OPTIONS, "via"):
            if name == LOCALHOST and getattr(host, key) is not None:
                yield Violation(
                    (*path, key), None, f"localhost is this machine and has no {key}: remove it"
                )


def _via(path: KeyPath, host: Host) -> Iterator[Violation]:
    if path[-1] == LOCALHOST:
        return
    if host.ssh is not None:
        yield Violation((*path, "via"), None, "the host has both ssh and via: remove one of them")
        return
    if host.address is None:
        yield Violation(
            path,
            None,
            "a host with via needs an address: write the name or IP address that the other hosts "
            'use for it, such as address = "10.0.0.7"',
        )
    for key in SSH_OPTIONS:
        if getattr(host, key) is not None:
            yield Violation(
                (*path, key), None, f"{key} is an option of ssh, and this host has via: remove it"
            )
    # Of nodes that an engine has yet to give its table says so.
    quoted = host.via == PENDING or any(COMMAND in word for word in host.via or ())
    if not quoted and host.python is not None and host.python.startswith("~/"):
        yield Violation(
            (*path, "python"),
            host.python,
            f'"~/" is not expanded through via: write an absolute path, or "{COMMAND}" in via '
            "where a shell reads it",
        )


def _forward(cluster: ClusterModel) -> Iterator[Violation]:
    """Ports that would have to be forwarded without SSH."""
    for name, job in cluster.jobs.items():
        for place in job.tasks if job.forward else ():
            host = cluster.hosts.get(place.host)
            if host is not None and host.via is not None:
                yield Violation(
                    ("jobs", name, "forward"),
                    None,
                    f"ports are forwarded over SSH only, and {place.host} has via: remove it, and "
                    f"open the port at {cluster.address(place.host)} instead",
                )
                break


def _jobs(cluster: ClusterModel) -> Iterator[Violation]:
    if not cluster.jobs:
        yield Violation(("jobs",), None, "the file has no jobs: write such as [jobs.worker]")
    for name, job in cluster.jobs.items():
        path: KeyPath = ("jobs", name)
        if not _JOB.fullmatch(name) or len(name) > _LONGEST_JOB:
            message = "a job's name must be a letter followed by letters, digits, '_' and '-', "
            yield Violation(path, name, f"{message}at most {_LONGEST_JOB} characters")
        elif job.in_cluster and "-" in name:
            message = "TensorFlow does not allow '-' in the name of a cluster job: write "
            message += f"jobs.{name.replace('-', '_')}, or in_cluster = false"
            yield Violation(path, name, message)
        if name == PREPARE and _prepares(cluster):
            message = "this name is used for the prepare lines: give the job another name"
            yield Violation(path, name, message)
        if job.command is None and cluster.run.command is None:
            message = "the job has no command: write one here, or in [run] for all jobs, "
            message += 'such as command = ["{python}", "train.py"]'
            yield Violation((*path, "command"), None, message)
    chiefs = [name for name in cluster.jobs if cluster.role(name) is Role.CHIEF]
    for name in chiefs:
        if len(tasks := cluster.jobs[name].tasks) > 1:
            message = "a cluster has one chief: move the other tasks to worker"
            yield Violation(("jobs", name, "tasks", 1), str(tasks[1]), message)
    for name in chiefs[1:]:
        message = f"a cluster has one chief, and {chiefs[0]} is another name for it: make this a "
        yield Violation(("jobs", name), None, f"{message}worker, or write in_cluster = false")


def _own_restarts(cluster: ClusterModel) -> Iterator[Violation]:
    """Numbers of restarts of single jobs, where all tasks start again together."""
    if cluster.run.on_failure is not OnFailure.RESTART_ALL:
        return
    for name, job in cluster.jobs.items():
        if job.max_restarts is not None:
            message = f"has no effect: {name} starts again with all other tasks, at most "
            message += f"{cluster.run.max_restarts} times (max_restarts in [run]): remove it here, "
            message += 'or write on_failure = "restart" in [run]'
            yield Violation(("jobs", name, "max_restarts"), job.max_restarts, message)


def _own_tf_config(cluster: ClusterModel) -> Iterator[Violation]:
    """TF_CONFIG in an environment of cluster tasks."""
    if cluster.run.framework is not Framework.TENSORFLOW:
        return
    envs: list[tuple[KeyPath, Mapping[str, str]]] = [
        (("jobs", name, "env"), job.env) for name, job in cluster.jobs.items() if job.in_cluster
    ]
    if envs:
        envs.append((("run", "env"), cluster.run.env))
    envs += [(("hosts", name, "env"), host.env) for name, host in cluster.hosts.items()]
    for path, env in envs:
        if "TF_CONFIG" in env:
            message = "tfmux sets TF_CONFIG for every cluster job: remove it, or move it to the "
            message += "env of a job with in_cluster = false"
            yield Violation((*path, "TF_CONFIG"), None, message)


def _tasks(cluster: ClusterModel) -> Iterator[Violation]:
    """Hosts that are not defined, and ports that are used twice."""
    taken: dict[tuple[object, int], tuple[TaskId, str]] = {}
    called: dict[str, tuple[TaskId, str]] = {}
    for task, path in _every_task(cluster):
        place = cluster.jobs[task.job].tasks[task.index]
        if place.host != LOCALHOST and place.host not in cluster.hosts:
            message = _undefined(cluster, place.host)
            yield Violation(path, str(place), message, AddressPart.HOST)
            continue
        if place.port is None:
            continue
        machine = _machine(cluster, place.host)
        other, name = taken.setdefault((machine, place.port), (task, place.host))
        if other != task:
            message = f"port {place.port} of {name} is already used by {other}"
            if name != place.host:
                message += f" ({name} and {place.host} are the same machine, by their ssh)"
            message += f': write another port, or "{join(place.host, None)}"'
            yield Violation(path, str(place), message, AddressPart.PORT)
            continue
        address = cluster.address(place.host)
        if not cluster.in_spec(task.job):
            continue
        other, name = called.setdefault(join(address.lower(), place.port), (task, place.host))
        if other != task:
            message = f"{task} and {other} would both be {join(address, place.port)} to the "
            message += f"cluster, because {name} and {place.host} have the same address: write "
            message += f"another port, or address in [hosts.{place.host}]"
            yield Violation(path, str(place), message, AddressPart.PORT)


def _engine(cluster: ClusterModel) -> Iterator[Violation]:
    """Hosts from two sources, and what is wrong in `[slurm]`."""
    if (slurm := cluster.slurm) is None:
        return
    for name, host in cluster.hosts.items():
        if host.via != PENDING:
            message = f"the hosts come from Slurm, as {slurm.span}: remove this one, or [slurm]"
            yield Violation(("hosts", name), None, message)
    for key, found, message in slurm.problems():
        yield Violation(("slurm", key), found, message)


def _undefined(cluster: ClusterModel, host: str) -> str:
    if is_loopback(host):
        return 'use localhost for this machine: write such as "localhost:2222"'
    if cluster.slurm is not None:
        return f"Slurm gives {cluster.slurm.span}: use one of them, or ask for more nodes"
    if not cluster.hosts:
        return (
            f'the host {host} is not defined: add [hosts.{_key(host)}] with ssh = "{host}", '
            "or write localhost for this machine"
        )
    hint = nearest(host, cluster.hosts, f"add [hosts.{_key(host)}], or use a defined host")
    return f"the host {host} is not defined: {hint}"


def _key(host: str) -> str:
    return host if re.fullmatch(r"[A-Za-z0-9_-]+", host) else f'"{host}"'


def _loopback(cluster: ClusterModel) -> Iterator[Violation]:
    """`localhost` in the spec of a cluster of several machines: each host would connect to itself
    and wait for ever for a task that runs elsewhere."""
    users = {
        cluster.jobs[task.job].tasks[task.index].host: path
        for task, path in reversed(list(_every_task(cluster)))
        if cluster.in_spec(task.job)
    }
    hosts = [h for h in users if h == LOCALHOST or not cluster.is_local(h)]
    remote = [host for host in hosts if not cluster.is_local(host)]
    if not remote or len(hosts) < 2:
        return
    entry = cluster.hosts.get(LOCALHOST)
    if LOCALHOST in hosts and (entry is None or entry.address is None):
        message = f"localhost means another machine on {remote[0]}: set the name that the other "
        message += 'hosts use for this one, [hosts.localhost] address = "its-name"'
        yield Violation(users[LOCALHOST], LOCALHOST, message, AddressPart.HOST)
    elsewhere = [host for host in hosts if not is_loopback(cluster.address(host))]
    for host in hosts:
        address = cluster.address(host)
        given = host in cluster.hosts and cluster.hosts[host].address is not None
        # Who gives all hosts such an address says that they are one machine.
        others = elsewhere or [other for other in hosts if other != host and not given]
        if not others or not is_loopback(address):
            continue
        if given or host != LOCALHOST:
            message = loopback_problem(address, host, others[0])
            path: KeyPath = ("hosts", host, "address" if given else "ssh")
            yield Violation(path, bracketed(address), message)


def _gpus(cluster: ClusterModel) -> Iterator[Violation]:
    counts = {name: gpu_count(host.gpus) for name, host in cluster.hosts.items()}
    given = {name: count for name, count in counts.items() if count is not None}
    wanted = dict.fromkeys(given, 0)
    for task, _ in _every_task(cluster):
        job = cluster.jobs[task.job]
        name = job.tasks[task.index].host
        if not isinstance(job.gpus, int) or name not in given:
            continue
        wanted[name] += job.gpus
        if wanted[name] > given[name]:
            message = f"with {task} the tasks on {name} need {wanted[name]} GPUs, but it has "
            message += f"{given.pop(name)}: write a smaller number"
            yield Violation(("jobs", task.job, "gpus"), job.gpus, message)


def _start(cluster: ClusterModel) -> Iterator[Violation]:
    named: dict[str, KeyPath] = {}
    for number, stage in enumerate(cluster.start.order or ()):
        for index, entry in enumerate(stage):
            path = ("start", "order", number, index)
            if problem := _no_entry(cluster, entry):
                yield Violation(path, entry, problem)
            elif entry in named:
                yield Violation(path, entry, f"{entry} is already in the order: remove it here")
            named.setdefault(entry, path)
    for job in cluster.start.ready:
        if job not in cluster.jobs:
            message = f"there is no such job: {nearest_job(job, cluster.jobs)}"
            yield Violation(("start", "ready", job), job, message)


def _no_entry(cluster: ClusterModel, entry: str) -> str | None:
    job, colon, index = entry.partition(":")
    if job not in cluster.jobs:
        return f"there is no such job or task: {nearest_job(entry, cluster.jobs)}"
    size = len(cluster.jobs[job].tasks)
    if not colon or index in map(str, range(size)):
        return None
    return f"{job} has no such task: write {job}:0" + (f" to {job}:{size - 1}" if size > 1 else "")


def _placeholders(cluster: ClusterModel) -> Iterator[Violation]:
    names = Names(cluster)
    run = cluster.run
    tables = _tables(cluster)
    texts: list[tuple[KeyPath, str, str]] = []
    for name, host in cluster.hosts.items():
        other = _unranked(cluster, host=name) if host.env else ""
        texts += [(("hosts", name, "env", key), value, other) for key, value in host.env.items()]
    for at, table in tables:
        other = _unranked(cluster, job=str(at[1])) if len(at) > 1 else _unranked(cluster)
        reader = other if len(at) > 1 else _unranked(cluster, with_own=False)
        texts += [((*at, "command", i), word, reader) for i, word in enumerate(table.command or ())]
        texts += [((*at, "env", key), value, other) for key, value in table.env.items()]
        texts += [((*at, "collect", i), path, other) for i, path in enumerate(table.collect)]
    for path, text, other in texts:
        for problem in names.problems(text, unranked=other):
            yield Violation(path, text, problem)
    for problem in names.problems(run.logdir, without=_NO_LOGDIR, unranked=_unranked(cluster)):
        yield Violation(("run", "logdir"), run.logdir, problem)
    for at, table in tables:
        unranked = _unranked(cluster, job=str(at[1])) if len(at) > 1 else _unranked(cluster)
        found = names.problems(table.directory or "", without=_NO_WORKDIR, unranked=unranked)
        for problem in found:
            yield Violation((*at, "directory"), table.directory, problem)
    no_task = (PLAIN | RANKED) - RUN_WIDE
    for problem in names.problems(run.workdir, without=no_task, jobs=False):
        yield Violation(("run", "workdir"), run.workdir, problem)


def _unranked(cluster: ClusterModel, job: str = "", host: str = "", with_own: bool = True) -> str:
    """Finds the first job without ranks among those that read a text: `job`, else those on `host`,
    else all; without `with_own`, those that have the command of `[run]`."""
    for name, table in cluster.jobs.items():
        elsewhere = host and all(place.host != host for place in table.tasks)
        reads = name == job if job else with_own or table.command is None
        if reads and not elsewhere and not has_ranks(cluster, name):
            return name
    return PREPARE if not job and with_own and _prepares(cluster) else ""


def _prepares(cluster: ClusterModel) -> bool:
    return bool(cluster.run.prepare) or any(job.prepare for job in cluster.jobs.values())


def _logdir(cluster: ClusterModel) -> Iterator[Violation]:
    """A log directory must not be in the run's own folder on a host, which is removed."""
    logdir = cluster.run.logdir
    path: KeyPath = ("run", "logdir")
    if logdir.startswith("~") and not (logdir == "~" or logdir.startswith("~/")):
        message = 'the home of another user is not supported: write "~/…" or "/…"'
        yield Violation(path, logdir, message)
    elif not logdir.startswith(("/", "~")) and any(
        not cluster.is_local(place.host) for job in cluster.jobs.values() for place in job.tasks
    ):
        message = 'the log directory must be absolute on other hosts: write "~/…" or "/…" (the '
        message += "copied workdir is removed after the run)"
        yield Violation(path, logdir, message)


def _directory(cluster: ClusterModel) -> Iterator[Violation]:
    """Directories of hosts beside what would be copied."""
    run = cluster.run
    if run.directory and run.workdir and "workdir" in run.model_fields_set:
        message = "workdir and directory exclude each other: tasks start in a copy of a directory "
        message += "of this machine, or in a directory that the hosts have: remove one of them"
        yield Violation(("run", "workdir"), run.workdir, message)
    for at, table in _tables(cluster):
        if table.data and (table.directory or run.directory):
            message = "data is copied beside workdir, and with directory nothing is copied: remove "
            yield Violation((*at, "data"), None, f"{message}it, or directory")


def _tables(cluster: ClusterModel) -> list[tuple[KeyPath, RunSettings | Job]]:
    """`[run]`, and the tables of the jobs."""
    jobs = ((("jobs", name), job) for name, job in cluster.jobs.items())
    return [(("run",), cluster.run), *jobs]


def _every_task(cluster: ClusterModel) -> Iterator[tuple[TaskId, KeyPath]]:
    for name, job in cluster.jobs.items():
        for index in range(len(job.tasks)):
            yield TaskId(name, index), ("jobs", name, "tasks", index)


def _machine(cluster: ClusterModel, host: str) -> object:
    """A value that is equal for two names of one machine, as far as the file tells."""
    entry = cluster.hosts.get(host)
    if entry is None or entry.ssh is None:
        return LOCALHOST if host == LOCALHOST else ("unknown", host)
    return (entry.ssh.host.lower(), entry.ssh.port or 22, entry.jump)


LONGEST_WORD = 128 * 1024 - 1
"""Bytes of a word, or of a variable with its name and `=`."""
_ANY_PORT = 65535
_MOST_WORDS = 64 << 20
"""Characters of the commands and variables of all tasks, without what placeholders stand for."""


def _too_long(cluster: ClusterModel) -> Iterator[Violation]:
    """Finds `TF_CONFIG`, words of commands and variables that become too long."""
    places = {
        job: [join(cluster.address(p.host), p.port or _ANY_PORT) for p in entry.tasks]
        for job, entry in cluster.jobs.items()
    }
    spec = {job: named for job, named in places.items() if cluster.in_spec(job)}
    lengths = {f"hosts.{job}": len(",".join(named)) for job, named in places.items()}
    for name, role in ADDRESS_LISTS.items():
        lengths[name] = max((lengths[f"hosts.{job}"] for job in jobs_with(role, places)), default=0)
    lengths["cluster"] = len(json.dumps(spec))
    if cluster.run.framework is Framework.TENSORFLOW and spec:
        largest = max(spec, key=lambda job: len(spec[job]))
        task = {"type": largest, "index": len(spec[largest]) - 1}
        size = len("TF_CONFIG=") + len(json.dumps({"cluster": "", "task": task}))
        size += lengths["cluster"] - len('""')
        if size > LONGEST_WORD:
            count = sum(map(len, spec.values()))
            message = f"TF_CONFIG with the addresses of {count} tasks has {size} bytes, and Linux "
            message += (
                f'takes {LONGEST_WORD}: write framework = "none" in [run] if no program reads '
            )
            message += "it, or in_cluster = false for jobs whose addresses the others do not need"
            yield Violation(("jobs", largest, "tasks"), None, message)
    for path, text in _texts(cluster):
        size = len(text.encode()) + sum(lengths.get(name, 0) for name in names_in(text))
        if size > LONGEST_WORD:
            message = (
                f"it has {size} bytes with all addresses in it, and Linux takes {LONGEST_WORD}: "
            )
            message += "let the program read addresses from a file, or name fewer tasks"
            yield Violation(path, text, message)


def _too_much(cluster: ClusterModel) -> Iterator[Violation]:
    """Finds words and variables that are too long for so many tasks."""
    hosts = {name: _size(host) for name, host in cluster.hosts.items()}
    total = 0
    for name, job in cluster.jobs.items():
        own = _size(job) + (0 if job.command else sum(map(len, cluster.run.command or ())))
        each = own + sum(len(key) + len(value) for key, value in cluster.run.env.items())
        total += sum(each + hosts.get(place.host, 0) for place in job.tasks)
        if total > _MOST_WORDS:
            message = f"command and env have {size(each)} for each of its tasks, and with those of "
            message += f"other jobs more than {size(_MOST_WORDS)}: let the program read a file"
            yield Violation(("jobs", name), None, message)
            return


def _size(table: Job | Host) -> int:
    words = (table.command or ()) if isinstance(table, Job) else ()
    return sum(map(len, words)) + sum(len(key) + len(value) for key, value in table.env.items())


def _texts(cluster: ClusterModel) -> Iterator[tuple[KeyPath, str]]:
    for at, table in _tables(cluster):
        yield from (((*at, "command", i), word) for i, word in enumerate(table.command or ()))
        yield from (((*at, "env", name), value) for name, value in table.env.items())
    for host, entry in cluster.hosts.items():
        yield from ((("hosts", host, "env", name), value) for name, value in entry.env.items())


_DEFAULTS: KeyPath = ("defaults", "host")


def _unused_defaults(cluster: ClusterModel) -> Iterator[Violation]:
    """Finds defaults that no host would have."""
    if not any(value for _, value in cluster.defaults.host):
        return
    if cluster.slurm is not None:
        message = "the hosts come from Slurm: write python in [slurm], and "
        yield Violation(_DEFAULTS, None, f"{message}the rest in [run], or remove this table")
    elif not cluster.hosts:
        message = "the file has no [hosts.NAME] that it holds for: add [hosts.localhost] for this "
        yield Violation(_DEFAULTS, None, f"{message}machine, or remove this table")


def _at_default(violation: Violation, raw: Mapping[str, Any]) -> Violation:
    """Places what is wrong with a host's value in `[defaults.host]`, if it stands there."""
    inherited: KeyPath = (*_DEFAULTS, *violation.path[2:])
    if violation.path[0] != "hosts" or len(violation.path) < 3 or _has(raw, violation.path):
        return violation
    return replace(violation, path=inherited) if _has(raw, inherited) else violation


def _has(raw: Any, path: KeyPath) -> bool:
    for key in path:
        if not isinstance(raw, dict) or key not in raw:
            return False
        raw = raw[key]
    return True


NO_LOCAL_TASKS = "tasks run only on Linux, not on this machine: add a host with ssh"


def _unsupported(cluster: ClusterModel) -> Iterator[Violation]:
    """Tasks of this machine, where that is not Linux; it can still launch on hosts."""
    jobs = {} if sys.platform == "linux" else cluster.jobs
    for name, job in jobs.items():
        for index, place in enumerate(job.tasks):
            if cluster.is_local(place.host):
                path: KeyPath = ("jobs", name, "tasks", index)
                yield Violation(path, str(place), NO_LOCAL_TASKS, AddressPart.HOST)
                break


def _missing_paths(cluster: ClusterModel) -> Iterator[Violation]:
    """Local files and directories that the file names and that do not exist."""
    run = cluster.run
    folders: list[tuple[KeyPath, str]] = [(("run", "data", i), p) for i, p in enumerate(run.data)]
    if "{" not in run.workdir:
        folders.append((("run", "workdir"), run.workdir))
    for name, job in cluster.jobs.items():
        folders += [(("jobs", name, "data", i), path) for i, path in enumerate(job.data)]
    for place, path in folders:
        if path and not os.path.isdir(cluster.local_path(path)):
            yield Violation(place, path, f"no such directory: {cluster.local_path(path)}")
    for name, host in cluster.hosts.items():
        for key, file in (("identity", host.identity), ("known_hosts", host.known_hosts)):
            if file and not os.path.isfile(cluster.local_path(file)):
                message = f"no such file: {cluster.local_path(file)}"
                yield Violation(("hosts", name, key), file, message)


_CHECKS: tuple[Callable[[ClusterModel], Iterator[Violation]], ...] = (
    _hosts,
    _engine,
    _jobs,
    _own_restarts,
    _own_tf_config,
    _tasks,
    _loopback,
    _forward,
    _gpus,
    _start,
    _placeholders,
    _logdir,
    _directory,
    _too_long,
    _too_much,
    _unused_defaults,
    _unsupported,
)
