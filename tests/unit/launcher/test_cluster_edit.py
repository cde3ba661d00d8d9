"""Editing a cluster file as a text: one value changes, comments and order stay."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from typing import Any

import pytest

from launcher.cluster.edit import ClusterDocument, EditError

FILE = """# the whole
name = "x"  # its name

# the first one
[hosts.tf1]  # near the window
ssh = "root@10.77.0.1"  # by address
gpus = 2

[hosts."b.c"]
ssh = "b"

[jobs.ps]
tasks = [
    "tf1:2222",  # the old one
    "b.c:2222",
]
[jobs.ps.env]
A = "1"  # why
[jobs.worker]
tasks = ["tf1:1", "tf1:auto"]

# after the jobs
[run]
command = ["train", "--workers={hosts.worker}", "--first={address.worker.0}"]  # the command

[start]
order = [["ps"], ["worker:0"], ["worker"]]
[start.ready]
worker = "started"
"""
COMMENTS = re.compile(r"#.*")
Edit = Callable[[ClusterDocument], ClusterDocument]
Meaning = Callable[[dict[str, Any]], object]


def comments(text: str) -> list[str]:
    return COMMENTS.findall(text)


def test_a_value_changes_and_nothing_else() -> None:
    """Only the value in the text is another one."""
    text = ClusterDocument(FILE).put(("hosts", "tf1", "ssh"), "root@tf1:2200").text
    assert text == FILE.replace('"root@10.77.0.1"', '"root@tf1:2200"')


def test_elements_of_a_list_keep_their_comments() -> None:
    """A task changed and three added: the others' comments and the list's lines stay."""
    fresh = ["tf1:2222", "b.c:7", "tf1:3", "tf1:4", "tf1:5"]
    text = ClusterDocument(FILE).put(("jobs", "ps", "tasks"), fresh).text
    assert '    "tf1:2222",  # the old one\n    "b.c:7",\n' in text
    assert ClusterDocument(text).get("jobs", "ps", "tasks") == fresh
    assert comments(text) == comments(FILE)
    first = (
        ClusterDocument(FILE).put(("jobs", "ps", "tasks"), ["new:1", "tf1:2222", "b.c:2222"]).text
    )
    assert '"tf1:2222",  # the old one\n' in first and comments(first) == comments(FILE)
    table = ClusterDocument(FILE).put(("jobs", "ps", "env"), {"A": "1", "B": "2"})
    assert 'A = "1"  # why\nB = "2"\n' in table.text


def test_a_new_table_stands_with_its_like_and_apart() -> None:
    """A host is put after the last host, with blank lines around it."""
    text = ClusterDocument(FILE).put(("hosts", "tf9"), {"ssh": "tf9"}).text
    assert '\nssh = "b"\n\n[hosts.tf9]\nssh = "tf9"\n\n[jobs.ps]' in text
    assert comments(text) == comments(FILE)


def test_keys_come_and_go() -> None:
    """A key put and taken out again leaves what was said before."""
    put = ClusterDocument(FILE).put(("jobs", "worker", "gpus"), 1).put(("metrics", "total"), 5)
    assert put.get("metrics") == {"total": 5}
    out = put.put(("jobs", "worker", "gpus"), None).remove("metrics")
    assert out.data == tomllib.loads(FILE)
    assert comments(out.text) == comments(FILE)


def test_a_host_is_renamed_everywhere() -> None:
    """Header, tasks, and only whole names; comments and order stay."""
    text = ClusterDocument(FILE).rename_host("tf1", "big one")
    assert list(text.table("hosts")) == ["big one", "b.c"]
    assert text.get("jobs", "ps", "tasks") == ["big one:2222", "b.c:2222"]
    assert text.get("jobs", "worker", "tasks") == ["big one:1", "big one:auto"]
    assert '[hosts."big one"]  # near the window' in text.text
    assert comments(text.text) == comments(FILE)
    dotted = ClusterDocument(FILE).rename_host("b.c", "tf2")
    assert "[hosts.tf2]" in dotted.text
    assert dotted.get("jobs", "ps", "tasks") == ["tf1:2222", "tf2:2222"]


def test_a_job_is_renamed_everywhere() -> None:
    """Order, readiness and placeholders follow; its sub-tables too."""
    text = ClusterDocument(FILE).rename_job("worker", "chief")
    assert text.get("start", "order") == [["ps"], ["chief:0"], ["chief"]]
    assert text.get("start", "ready") == {"chief": "started"}
    assert text.get("run", "command")[1:] == [
        "--workers={hosts.chief}",
        "--first={address.chief.0}",
    ]
    assert comments(text.text) == comments(FILE)
    assert ClusterDocument(FILE).rename_job("ps", "server").get("jobs", "server", "env") == {
        "A": "1"
    }
    host = '[hosts.h]\nenv = { W = "{num.worker}" }\n[jobs.worker]\ntasks = ["h:1"]\n'
    assert (
        ClusterDocument(host).rename_job("worker", "w").get("hosts", "h", "env", "W") == "{num.w}"
    )


def test_doubled_braces_are_no_placeholders_of_a_job() -> None:
    """They stand for single ones in the command."""
    command = "echo '{{hosts.ps}}' {hosts.ps} {{{num.ps}}} {{host.ps.0}}"
    file = f'[jobs.ps]\ntasks = ["localhost:1"]\n[run]\ncommand = ["sh", "-c", "{command}"]\n'
    renamed = ClusterDocument(file).rename_job("ps", "pss").get("run", "command")
    assert renamed[2] == "echo '{{hosts.ps}}' {hosts.pss} {{{num.pss}}} {{host.ps.0}}"


def test_a_taken_name_is_refused() -> None:
    """Renaming never swallows another table."""
    with pytest.raises(EditError, match="already a host"):
        ClusterDocument(FILE).rename_host("tf1", "b.c")


@pytest.mark.parametrize(
    "text",
    [
        'hosts = { a = { ssh = "a" }, b = { ssh = "b" } }\n[jobs.w]\ntasks = ["a:1"]\n',
        'hosts.a.ssh = "a"\nhosts.b.ssh = "b"\n[jobs]\nw.tasks = ["a:1"]\n',
        '[hosts]\na = { ssh = "a" }\n[hosts.b]\nssh = "b"\n[jobs]\n[jobs.w]\ntasks = ["a:1"]\n',
        '[jobs.w]\ntasks = ["a:1"]\n[hosts.a]\nssh = "a"\n[run]\n[hosts.b]\nssh = "b"\n',
        '\ufeff[jobs.w]\r\ntasks = ["a:1"]\r\n[hosts."a"]\r\nssh = "a"\r\n[hosts.b]\r\nssh="b"\r\n',
    ],
)
def test_every_form_of_a_table(text: str) -> None:
    """Inline, dotted, split and Windows-lined files are edited, or the edit is refused."""
    changes: list[tuple[Edit, Meaning]] = [
        (lambda t: t.put(("hosts", "a", "gpus"), 2), lambda d: d["hosts"]["a"].update(gpus=2)),
        (
            lambda t: t.put(("hosts", "c"), {"ssh": "c"}),
            lambda d: d["hosts"].update(c={"ssh": "c"}),
        ),
        (
            lambda t: t.put(("jobs", "w", "tasks"), ["b:1", "b:2"]),
            lambda d: d["jobs"]["w"].update(tasks=["b:1", "b:2"]),
        ),
        (
            lambda t: t.rename_host("a", "z"),
            lambda d: (
                d["hosts"].update(z=d["hosts"].pop("a")),
                d["jobs"]["w"].update(tasks=["z:1"]),
            ),
        ),
        (lambda t: t.remove("hosts", "b"), lambda d: d["hosts"].pop("b")),
        (lambda t: t.put(("name",), "n"), lambda d: d.update(name="n")),
    ]
    for change, meaning in changes:
        before = ClusterDocument(text)
        meant = tomllib.loads(text.removeprefix("\ufeff"))
        after = change(before)
        meaning(meant)
        assert after.data == meant
        assert before.text == text
        assert after.text.count("\r\n") == ("\r" in text) * after.text.count("\n")


def test_five_hundred_tasks() -> None:
    """A cluster of 500 tasks is edited and keeps its lines."""
    tasks = [f"tf{i}:2222" for i in range(500)]
    text = ClusterDocument("[jobs.worker]\ntasks = []\n").put(("jobs", "worker", "tasks"), tasks)
    assert max(map(len, text.text.splitlines())) <= 100 and len(text.text.splitlines()) < 150
    changed = text.put(("jobs", "worker", "tasks"), [*tasks[:-1], "other:1"])
    assert changed.text == text.text.replace("tf499:2222", "other:1")
