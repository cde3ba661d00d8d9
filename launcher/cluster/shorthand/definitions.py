"""Reader of definitions of other programs: TFJob and PyTorchJob of Kubernetes, a Compose file and a
Procfile. Their tasks come to this machine, since they name no hosts that `ssh` knows.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...printable import printable
from ...quantities import and_list
from ..addresses import HERE
from ..choices import Framework
from ..placeholders import literal
from ..roles import JOB_WORDS
from ..values import MOST_TASKS
from . import ansible_yaml, specs, task_lists
from .understood import WORKER, ListedHost, ListedTask, ShorthandError, Understood
from .yaml_texts import YamlMissingError, read_yaml

_MOST_SERVICES = 500
_KIND = re.compile(r"^kind:\s*[\"']?(\w+)[\"']?\s*$", re.MULTILINE)
_SERVICES = re.compile(r"^services:\s*(?:\n[ \t]|$)", re.MULTILINE)
_HEAD = re.compile(r"^[ \t]+head_ip:", re.MULTILINE)
_PROCESS = re.compile(r"([A-Za-z][\w.-]*):[ \t]+(\S.*)")
_PROGRAM = re.compile(
    r"(?:\S*/)?(?:python[\d.]*|sh|bash|env|exec|torchrun|\./\S+|\S+\.(?:py|sh))\b"
)
_SHELL_SIGNS = frozenset("|&;<>$*~`")
_REDIRECTIONS = re.compile(r"(?:\s{0,20}(?:[12]?>{1,2}\s*[\w./-]+|2>&1|&))+\s*$")
"""End of a command that writes a log file, which each task has anyway."""
_INDEX = re.compile(r"[-_.]?\d+$")


def find(text: str) -> Understood | None:
    """Reads a definition; None where the text is none.

    Raises:
        ShorthandError: it is one, and names no tasks that can be taken.
    """
    if kind := _KIND.search(text):
        return _kubernetes(kind[1], text)
    if _HEAD.search(text) and "worker_ips" in text:
        raise ShorthandError("a cluster file of Ray: write its head and its workers as tf1,tf2")
    if inventory := ansible_yaml.find(text):
        return inventory
    if _SERVICES.search(text):
        try:
            return _compose(read_yaml(text))
        except YamlMissingError:
            raise  # names of services would be taken for hosts
        except ShorthandError:
            if (embedded := _embedded(text)) is not None:
                return embedded
            raise
    lines = [line for line in text.splitlines() if line.strip()]
    pairs = [_PROCESS.fullmatch(line.rstrip()) for line in lines]
    found = [pair for pair in pairs if pair]
    if found and len(found) == len(pairs) and any(_PROGRAM.match(pair[2]) for pair in found):
        return _services(
            "a Procfile", {pair[1]: {"command": pair[2], "shell": True} for pair in found}
        )
    return None


def _mapping(value: Any) -> Mapping[Any, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


# Kubernetes


def _kubernetes(kind: str, text: str) -> Understood:
    if kind.lower() not in ("tfjob", "pytorchjob"):
        shown = printable(kind, 40)
        if (found := _embedded(text)) is not None:
            return found
        raise ShorthandError(
            f"a Kubernetes {shown}: of Kubernetes, TFJob and PyTorchJob are understood"
        )
    document: Mapping[Any, Any] = next(
        (d for d in read_yaml(text) if str(_mapping(d).get("kind", "")).lower() == kind.lower()), {}
    )
    spec = _mapping(document.get("spec"))
    name = str(_mapping(document.get("metadata")).get("name") or "")
    replicas = _replicas(spec)
    if not replicas:
        raise ShorthandError(f"the {kind} has no replica specs")
    jobs: dict[str, int] = {}
    commands: dict[str, tuple[str, ...]] = {}
    env: dict[str, dict[str, str]] = {}
    left: dict[str, None] = {}
    for role, entry in replicas:
        job = JOB_WORDS.get(role.lower(), "")
        if not job:
            left[f"{printable(role, 40)} is not a job of TensorFlow: left out"] = None
            continue
        jobs[job] = _number(entry.get("replicas", 1), f"replicas of {printable(role, 40)}")
        pod = _mapping(_mapping(entry.get("template")).get("spec"))
        containers = [_mapping(each) for each in _list(pod.get("containers"))]
        if not containers:
            raise ShorthandError(f"{printable(role, 40)} has no container")
        container = containers[0]
        words = [*_texts(container.get("command")), *_texts(container.get("args"))]
        if container.get("command"):
            commands[job] = tuple(map(literal, words))
        elif words:
            left[f"the program of {job} is its image's: its arguments are {shlex.join(words)}"] = (
                None
            )
        env[job] = {}
        for pair in map(_mapping, _list(container.get("env"))):
            if isinstance(pair.get("name"), str) and isinstance(pair.get("value"), str):
                env[job][pair["name"]] = literal(pair["value"])
            else:
                left[
                    f"the variable {printable(str(pair.get('name')), 60)} is set by Kubernetes"
                ] = None
        unknown = [k for k in container if k not in ("name", "command", "args", "env", "ports")]
        unknown += [k for k in pod if k != "containers"] + (
            ["other containers"] if containers[1:] else []
        )
        for key in unknown:
            value = container.get(key)
            shown = f" {printable(value, 80)}" if isinstance(value, str) else ""
            left[f"{printable(str(key), 40)}{shown} is left out"] = None
    if not jobs:
        raise ShorthandError(f"the {kind} has no ps, worker, chief or master")
    note = f"a {kind} names no hosts: its tasks are on this machine"
    if kind.lower() == "pytorchjob":
        host = ListedHost(HERE, sum(jobs.values()))
        command = commands.get("master") or commands.get(WORKER) or ()
        return Understood(
            "a PyTorchJob", hosts=(host,), notes=(note,), left_out=tuple(left), command=command,
            framework=Framework.TORCH, name=name,
        )  # fmt: skip
    return _placed(f"a {kind}", jobs, commands, env, (note,), tuple(left), name)


def _replicas(spec: Mapping[Any, Any]) -> list[tuple[str, Mapping[Any, Any]]]:
    for key in ("tfReplicaSpecs", "pytorchReplicaSpecs"):
        if isinstance(spec.get(key), dict):
            return [(str(role), _mapping(entry)) for role, entry in spec[key].items()][:50]
    older = _list(spec.get("replicaSpecs") or spec.get("tfReplicaSpec"))
    return [(str(_mapping(e).get("tfReplicaType", "master")), _mapping(e)) for e in older][:50]


def _number(value: Any, what: str) -> int:
    text = str(value)
    if (
        isinstance(value, bool)
        or not re.fullmatch(r"\d{1,6}", text)
        or not 0 < int(text) <= MOST_TASKS
    ):
        raise ShorthandError(f"{what} is {printable(text, 40)}: write 1 to {MOST_TASKS:,}")
    return int(text)


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [str(each) for each in _list(value) if isinstance(each, str | int | float)]


def _placed(
    form: str,
    jobs: Mapping[str, int],
    commands: Mapping[str, tuple[str, ...]],
    env: Mapping[str, Mapping[str, str]],
    notes: tuple[str, ...],
    left: tuple[str, ...],
    name: str = "",
) -> Understood:
    if sum(jobs.values()) > MOST_TASKS:
        raise ShorthandError(f"it has more than {MOST_TASKS:,} tasks")
    tasks = {job: (ListedTask(HERE),) * count for job, count in jobs.items()}
    found = Understood(form, tasks, notes=notes, left_out=left, name=name, env=env)
    different = set(commands.values())
    if len(different) == 1 and set(commands) == set(jobs):
        return replace(found, command=different.pop())
    return replace(found, commands=commands)


# Compose and Procfile


def _compose(documents: Any) -> Understood:
    services = _mapping(_mapping(documents[0] if documents else {}).get("services"))
    if not services or len(services) > _MOST_SERVICES:
        raise ShorthandError("a Compose file without services")
    return _services("a Compose file", {str(k): _mapping(v) for k, v in services.items()})


def _services(form: str, services: Mapping[str, Mapping[Any, Any]]) -> Understood:
    """The jobs of services or processes: those that are called after a role, or say their job."""
    counts: dict[str, int] = {}
    commands: dict[str, tuple[str, ...]] = {}
    env: dict[str, dict[str, str]] = {}
    left: dict[str, None] = {}
    texts: list[str] = []
    for service, entry in services.items():
        words = _command(entry)
        variables = _environment(entry.get("environment"))
        stem = _INDEX.sub("", service.lower()).replace("-", "_")
        said = re.search(r"--job(?:_name)?[= ]+(\w+)", " ".join(words))
        job = JOB_WORDS.get(said[1] if said else "", "") or JOB_WORDS.get(stem, "")
        if not job:
            left[
                f"{printable(service, 60)} is left out: it is not a ps, worker, chief or evaluator"
            ] = None
            continue
        replicas = entry.get("scale") or _mapping(entry.get("deploy")).get("replicas") or 1
        counts[job] = counts.get(job, 0) + _number(
            replicas, f"replicas of {printable(service, 60)}"
        )
        texts += [" ".join(words), *(f"{k}='{v}'" for k, v in variables.items())]
        if words:
            command = with_placeholders(words)
            before = commands.setdefault(job, command)
            if before != command:
                left[f"the command of {printable(service, 60)} differs: {shlex.join(words)}"] = None
        own = {k: literal(v) for k, v in variables.items() if k not in _SET_BY_TFMUX}
        env.setdefault(job, {}).update(own)
        for key in entry:
            if key not in ("command", "entrypoint", "environment", "scale", "deploy", "shell"):
                value = entry[key]
                shown = f" {printable(value, 60)}" if isinstance(value, str) else ""
                left[f"{printable(str(key), 40)}{shown} is left out"] = None
    if not counts:
        names = and_list([printable(name, 40) for name in list(services)[:6]])
        raise ShorthandError(f"{form} of {names}: none is a ps, worker, chief or evaluator")
    note = f"the tasks of {form} are on this machine"
    found = _placed(form, counts, commands, env, (note,), tuple(left))
    cluster = _embedded("\n".join(texts))
    if cluster is None:
        return found
    # Services are names of containers, which ssh does not know; other addresses are hosts.
    jobs = {
        job: tuple(ListedTask(HERE) if task.login.host in services else task for task in tasks)
        for job, tasks in cluster.jobs.items()
    }
    kept = {job: command for job, command in found.commands.items() if job in jobs}
    return replace(found, jobs=jobs, commands=kept, env={j: v for j, v in env.items() if j in jobs})


_SET_BY_TFMUX = frozenset({"TF_CONFIG", "PS_HOSTS", "WORKER_HOSTS", "JOB_NAME", "TASK_INDEX"})


def _embedded(text: str) -> Understood | None:
    for find_in in (specs.find, task_lists.find):
        try:
            if (found := find_in(text)) is not None:
                return found
        except ShorthandError:
            continue
    return None


def _command(entry: Mapping[Any, Any]) -> list[str]:
    words: list[str] = []
    for key in ("entrypoint", "command"):
        value = entry.get(key)
        if isinstance(value, str):
            words += split_command(value, shell=bool(entry.get("shell")))
        else:
            words += _texts(value)
    return words


def split_command(text: str, *, shell: bool) -> list[str]:
    """The words of a command; with `shell` one that a shell must read is given to it."""
    if shell:
        text = _REDIRECTIONS.sub("", text)
    if shell and set(text) & _SHELL_SIGNS:
        return ["sh", "-c", text]
    try:
        return shlex.split(text)
    except ValueError:
        return ["sh", "-c", text]


def _environment(value: Any) -> dict[str, str]:
    if isinstance(value, dict):
        return {str(k): str(v) for k, v in value.items() if isinstance(v, str | int | float)}
    pairs = [each.partition("=") for each in _list(value) if isinstance(each, str)]
    return {name: text for name, equals, text in pairs if equals}


_FLAG = re.compile(r"(--?[\w-]+)(?:=(.*))?", re.DOTALL)
_FILLED = {
    "pshosts": "{ps_hosts}", "workerhosts": "{worker_hosts}", "jobname": "{job}",
    "taskindex": "{index}", "taskid": "{index}",
}  # fmt: skip
"""Placeholders by the flags that they fill, which programs write with `_`, with `-` or without."""


def with_placeholders(words: Sequence[str]) -> tuple[str, ...]:
    """The words of a command, its lists of hosts and its task as placeholders."""
    found: list[str] = []
    words = list(words)
    while words:
        word = words.pop(0)
        match = _FLAG.fullmatch(word)
        name = match[1].lstrip("-").replace("-", "_") if match else ""
        job = re.fullmatch(r"(\w+)_hosts", name)
        value = _FILLED.get(name.replace("_", "").lower(), f"{{hosts.{job[1]}}}" if job else "")
        if match is None or not value:
            found.append(literal(word))
        elif match[2] is not None:
            found.append(f"{match[1]}={value}")
        elif words:
            words.pop(0)
            found += [match[1], value]
    return tuple(found)
