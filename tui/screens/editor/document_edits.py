"""Edits of a cluster file that concern several tables, and completions from its content."""

from __future__ import annotations

from launcher.cluster.addresses import LOCALHOST
from launcher.cluster.edit import ClusterDocument
from launcher.cluster.shorthand import missing_hosts
from launcher.cluster.ssh_aliases import aliases
from tui.screens.editor.fields import Field


def put_spec(document: ClusterDocument, found: dict[str, list[str]]) -> ClusterDocument:
    """Puts jobs with their tasks into the file, and defines the hosts that are new."""
    for job, tasks in found.items():
        document = document.put(("jobs", job, "tasks"), tasks)
    return add_missing(document, found)


def add_missing(document: ClusterDocument, found: dict[str, list[str]]) -> ClusterDocument:
    """Defines the hosts that tasks name and the file does not; SSH logs in by their name."""
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
    """Completions of a field."""
    match field.completion:
        case "ssh":
            return aliases()
        case "hosts":
            return [*document.table("hosts"), LOCALHOST]
        case "tasks":
            return [f"{host}:" for host in (*document.table("hosts"), LOCALHOST)]
    return list(field.choices)


def halves(task: str) -> tuple[str, str]:
    """Host and port as they stand, however broken."""
    if task.startswith("[") and "]" in task and not task.rpartition("]")[2]:
        return task, ""
    host, colon, port = task.rpartition(":")
    return (host, port) if colon else (task, "")
