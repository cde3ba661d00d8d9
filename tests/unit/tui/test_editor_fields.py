"""Every key of every form with every kind of bad input: explained, and the file stays one."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from launcher.cluster.draft import ParsedDraft, parse
from launcher.cluster.edit import ClusterDocument, EditError
from launcher.cluster.key_lines import KeyPath
from launcher.cluster.templates import PS_WORKERS, render
from launcher.plan.planner import make_plan
from tui.screens.editor.form import NAME, filled, value_of

PATH = Path("/srv/project/cluster.toml")
HOSTS = {"tf1": "root@tf1", "tf2": "root@tf2"}


@functools.cache
def start() -> ParsedDraft:
    """A cluster without a problem."""
    return parse(render(PS_WORKERS, "mission", HOSTS, Path("/srv")), PATH)


def problems_at(document: ClusterDocument, *path: str | int) -> str:
    """What is wrong with a key and below it."""
    found = parse(document.text, PATH).problems
    return "; ".join(p.message for p in found if p.path[: len(path)] == path)


def put(path: KeyPath, key: str, line: str) -> ClusterDocument:
    """The document with a line of a form."""
    document = start().document
    assert document is not None
    return filled(document, path, {key: line})


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("root@tf 1", 'it contains blanks or quotes: write "root@tf1"'),
        ("'tf1'", 'it contains blanks or quotes: write "tf1"'),
        ("-oProxyCommand=x", "cannot begin with '-'"),
        ("tf1:0", "1 to 65535"),
        ("tf1:65536", "1 to 65535"),
        ("tf1:abc", "a port is a number"),
        ("größe", "must be ASCII"),
        ("fd00::1", "needs brackets"),
        ("$(reboot)", "only letters, digits"),
        ("../..", "only letters, digits"),
        ("ssh root@tf1", "only the destination"),
        ("[fd00::1]:22", ""),
        ("root@[fe80::1%eth0]:2200", ""),
        ('"root@tf1"', ""),
    ],
)
def test_ssh_destinations(line: str, said: str) -> None:
    """The message is at the field; valid IPv6 literals are none. Quotes may be typed as in the
    file."""
    found = problems_at(put(("hosts", "tf2"), "ssh", line), "hosts", "tf2", "ssh")
    assert said in found if said else not found


@pytest.mark.parametrize(
    ("tasks", "said"),
    [
        ("tf2:0", "1 to 65535"),
        ("tf2:65536", "1 to 65535"),
        ("tf2:abc", "a number from 1 to 65535 or auto"),
        ("tf2", "port"),
        (":2222", "host name is missing"),
        ("tf9:2222", "the host tf9 is not defined"),
        ("127.0.0.1:2222", "use localhost for this machine"),
        ("localhost:2222", "localhost means another machine on"),
        ("tf1:2222, tf2:2222", "already used by ps:0"),
        ("tf2:[1-3] tf1:auto*5", ""),
        ('["tf2:1", "tf1:auto"]', ""),
    ],
)
def test_tasks(tasks: str, said: str) -> None:
    found = problems_at(put(("jobs", "worker"), "tasks", tasks), "jobs", "worker", "tasks")
    assert said in found if said else not found


def test_localhost_among_ssh_hosts_with_an_address() -> None:
    """`[hosts.localhost] address`, by the form of this machine, makes it a member like any
    other."""
    document = put(("hosts", "localhost"), "address", "10.0.0.9").add_task("localhost", "worker")
    after = parse(document.text, PATH)
    assert after.cluster is not None and not after.problems


def test_a_host_that_a_command_reaches() -> None:
    """`via` is a line of words; beside `ssh`, or without an address, it is explained."""
    document = put(("hosts", "tf2"), "via", "podman exec -i tf2")
    assert document.get("hosts", "tf2", "via") == ["podman", "exec", "-i", "tf2"]
    assert "has both ssh and via" in problems_at(document, "hosts", "tf2", "via")
    document = filled(document, ("hosts", "tf2"), {"ssh": ""})
    assert "needs an address" in problems_at(document, "hosts", "tf2")
    document = filled(document, ("hosts", "tf2"), {"address": "10.0.0.7"})
    after = parse(document.text, PATH)
    assert after.cluster is not None and not after.problems


def test_many_tasks_are_one_line() -> None:
    """`tf[3-7]:2222` adds five tasks; 500 are in the plan."""
    assert len(put(("jobs", "worker"), "tasks", "tf[3-7]:2222").tasks("worker")) == 5
    many = ", ".join(f"tf2:{port}" for port in range(3000, 3500))
    after = parse(put(("jobs", "worker"), "tasks", many).text, PATH)
    assert after.cluster is not None and len(make_plan(after.cluster, "RUN").tasks) == 501


def test_names_are_changed_everywhere_or_refused() -> None:
    """A host's name changes in the tasks, a job's in the order; an empty name and one that is taken
    are refused."""
    document = filled(
        put(("hosts", "tf2"), NAME, "big").put(("start", "order"), [["ps"], ["worker"]]),
        ("jobs", "worker"), {NAME: "w", "gpus": "1"},
    )  # fmt: skip
    assert document.tasks("w") == ["big:2222"] and document.get("jobs", "w", "gpus") == 1
    assert document.get("start", "order") == [["ps"], ["w"]]
    for path, line, said in (
        (("hosts", "tf2"), " ", "a host needs a name"),
        (("jobs", "worker"), "ps", "already a job ps"),
    ):
        with pytest.raises(EditError, match=said):
            put(path, NAME, line)


@pytest.mark.parametrize(
    ("line", "kind", "said"),
    [
        ('python "train.py', "array", "a quote is not closed"),
        ("python \\", "array", "a backslash is at the end"),
        ("A", "object", "A has no value: write NAME=value"),
        ("A=1 A=2", "object", "A is there twice"),
    ],
)
def test_lines_that_stand_for_nothing_are_explained(line: str, kind: str, said: str) -> None:
    """The file is not touched."""
    with pytest.raises(ValueError, match=said):
        value_of(line, kind)
