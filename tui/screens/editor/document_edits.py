"""Edits of a cluster file that concern several tables, and completions from its content."""

from __future__ import annotations

from typing import Any

from launcher.cluster import LOCALHOST, MOST_HOSTS, Slurm, node_name
from launcher.cluster.edit import ClusterDocument
from launcher.cluster.shorthand import aliases, missing_hosts
from tui.screens.editor.fields import Field

_SHARED = ("python", "gpus")
"""Keys that a host and the allocation have in common."""
_OF_RUN = ("setup", "shell")
"""Keys that a host and `[run]` have in common; a host's wins."""
_TIME = "04:00:00"


def put_spec(document: ClusterDocument, found: dict[str, list[str]]) -> ClusterDocument:
    """Puts jobs with their tasks into the file, and defines the hosts that are new."""
    for job, tasks in found.items():
        document = document.put(("jobs", job, "tasks"), tasks)
    return add_missing(document, found)


def engine_of(document: ClusterDocument) -> type[Slurm] | None:
    """The kind of the table that asks an engine for the hosts; None without such a table."""
    return None if document.get(Slurm.table) is None else Slurm


def host_names(document: ClusterDocument) -> list[str]:
    """Hosts that the file defines: nodes of an engine, or `[hosts.*]`."""
    if (engine := engine_of(document)) is None:
        return list(document.table("hosts"))
    nodes = document.get(engine.table, "nodes")
    count = nodes if isinstance(nodes, int) and 0 < nodes <= MOST_HOSTS else 1
    return [node_name(number) for number in range(count)]


def task_hosts(document: ClusterDocument) -> list[str]:
    """Hosts that a task may be on."""
    names = host_names(document)
    return names if engine_of(document) else [*names, LOCALHOST]


def use_slurm(document: ClusterDocument) -> ClusterDocument:
    """Replaces `[hosts.*]` by as many nodes of Slurm as tasks have hosts."""
    hosts = _used_hosts(document)
    nodes = {host: node_name(number) for number, host in enumerate(hosts)}
    common = _in_common(list(hosts.values()))
    env = {name: value for (key, name), value in common.items() if key == "env"}
    table: dict[str, Any] = {"nodes": max(1, len(nodes)), "time": _TIME}
    table |= {key: common[key, ""] for key in _SHARED if (key, "") in common}
    document = _without_forwards(_with_task_hosts(document, nodes))
    for key in _OF_RUN:
        if (key, "") in common:
            document = document.put(("run", key), common[key, ""])
    if env:
        document = document.put(("run", "env"), {**document.table("run", "env"), **env})
    document = document.put(("hosts",), None).put(("defaults",), None)
    return document.put(("slurm",), table)


def differing(document: ClusterDocument) -> list[str]:
    """Names what the hosts of tasks have not in common, which nodes of Slurm cannot have."""
    hosts = list(_used_hosts(document).values())
    common = _in_common(hosts)
    found = (place for host in hosts for place, value in host.items() if place not in common)
    return [".".join(filter(None, place)) for place in dict.fromkeys(found)]


def _used_hosts(document: ClusterDocument) -> dict[str, dict[tuple[str, str], Any]]:
    """Hosts of tasks with what is not about the way there: their own values, else the defaults,
    each by its key, and variables by `env` and their names."""
    hosts, common = document.table("hosts"), document.table("defaults", "host")
    tasks = (task for found in all_tasks(document).values() for task in found)
    result = {}
    for name in dict.fromkeys(halves(task)[0] for task in tasks):
        values: dict[tuple[str, str], Any] = {}
        for table in (common, hosts[name]) if isinstance(hosts.get(name), dict) else ():
            values |= {(key, ""): table[key] for key in (*_SHARED, *_OF_RUN) if key in table}
            env = table.get("env")
            values |= {("env", n): v for n, v in env.items()} if isinstance(env, dict) else {}
        result[name] = values
    return result


def _in_common(hosts: list[dict[tuple[str, str], Any]]) -> dict[tuple[str, str], Any]:
    """Values that are the same on all hosts."""
    first, *rest = hosts or [{}]
    return {k: v for k, v in first.items() if all(h.get(k) == v for h in rest)}


def use_hosts(document: ClusterDocument) -> ClusterDocument:
    """Replaces an engine's table by hosts of the same names; SSH logs in by them."""
    engine = engine_of(document)
    assert engine is not None
    table = document.table(engine.table)
    shared = {key: table[key] for key in _SHARED if key in table}
    tasks = all_tasks(document)
    document = document.put((engine.table,), None)
    for host in missing_hosts(tasks, document.table("hosts")):
        document = document.put(("hosts", host), {"ssh": host, **shared})
    return document


def _with_task_hosts(document: ClusterDocument, names: dict[str, str]) -> ClusterDocument:
    for job in document.table("jobs"):
        tasks = document.get("jobs", job, "tasks")
        if isinstance(tasks, list):
            moved = [
                names[halves(task)[0]] + task[len(halves(task)[0]) :]
                if isinstance(task, str)
                else task
                for task in tasks
            ]
            document = document.put(("jobs", job, "tasks"), moved)
    return document


def _without_forwards(document: ClusterDocument) -> ClusterDocument:
    """Takes `forward` out of the jobs: only SSH forwards ports, and nothing logs in at a node."""
    for job, entry in document.table("jobs").items():
        if isinstance(entry, dict) and entry.get("forward"):
            document = document.put(("jobs", job, "forward"), None)
    return document


def add_missing(document: ClusterDocument, found: dict[str, list[str]]) -> ClusterDocument:
    """Defines the hosts that tasks name and the file does not; SSH logs in by their name. Nodes
    of an engine are not defined."""
    if engine_of(document) is not None:
        return document
    for host in missing_hosts(found, document.table("hosts")):
        document = document.put(("hosts", host), {"ssh": host})
    return document


def all_tasks(document: ClusterDocument) -> dict[str, list[str]]:
    """Tasks of the file, by job."""
    found = {}
    for name, entry in document.table("jobs").items():
        tasks = entry.get("tasks") if isinstance(entry, dict) else None
        if isinstance(tasks, list):
            found[name] = [task for task in tasks if isinstance(task, str)]
    return found


def candidates(field: Field, document: ClusterDocument) -> list[str]:
    """Texts that a field offers to complete what is typed."""
    match field.completion:
        case "ssh":
            return aliases()
        case "hosts":
            return task_hosts(document)
        case "tasks":
            return [f"{host}:" for host in task_hosts(document)]
    return list(field.choices)


def halves(task: str) -> tuple[str, str]:
    """Host and port as they stand, however broken."""
    if task.startswith("[") and "]" in task and not task.rpartition("]")[2]:
        return task, ""
    host, colon, port = task.rpartition(":")
    return (host, port) if colon else (task, "")
