"""Saved clusters, drafts of files, and edits of a file's text."""

from __future__ import annotations

import json
import os
import re
import stat
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from launcher.cluster import library
from launcher.cluster.draft import Draft, FileStatus, parse
from launcher.cluster.edit import ClusterDocument, EditError
from launcher.cluster.read import load, loads
from launcher.cluster.reference import json_schema
from launcher.cluster.saved_file import SaveError, write
from launcher.cluster.ssh_aliases import aliases
from launcher.cluster.templates import PS_WORKERS, SLURM, TEMPLATES, Template, render
from launcher.cluster.values import name_problem
from launcher.paths import config_home

# Saved clusters, drafts of files, and what stands on disk meanwhile.

TEXT = 'name = "one"  # mine\n\n[jobs.worker]\ntasks = ["localhost:auto"]\ncommand = ["train"]\n'
LINE = "#:schema ../cluster.schema.json\n"
SAVED = LINE + TEXT


def test_a_cluster_is_created_copied_renamed_deleted_and_brought_back() -> None:
    """The name in the file follows the file; comments stay; an undone deletion is whole."""
    first = library.create("one", TEXT)
    assert first == library.folder() / "one.toml" and first.read_text() == SAVED
    copy = library.duplicate(first, library.free_name("one-2"))
    assert (copy.stem, load(copy).name) == ("one-2", "one-2")
    assert "# mine" in copy.read_text()
    renamed = library.rename(copy, "other.name")
    assert load(renamed).name == "other.name" and not copy.exists()
    deleted = library.delete(first)
    assert library.saved() == [renamed]
    assert deleted.restore() == first and first.read_text() == SAVED


def test_undo_never_overwrites_a_new_cluster() -> None:
    """A cluster that took the name meanwhile stays; the old one comes back under another."""
    deleted = library.delete(library.create("one", TEXT))
    library.create("one", TEXT + "# new\n")
    assert deleted.restore() == library.folder() / "one-2.toml"
    assert "# new" in (library.folder() / "one.toml").read_text()


def test_a_taken_name_is_refused() -> None:
    """Neither creating, copying nor renaming replaces a file."""
    first, second = library.create("a", TEXT), library.create("b", TEXT)
    with pytest.raises(SaveError, match="already a cluster b"):
        library.create("b", TEXT)
    with pytest.raises(SaveError, match="already a cluster b"):
        library.duplicate(first, "b")
    with pytest.raises(SaveError, match="already a cluster b"):
        library.rename(first, "b")
    assert first.exists() and second.exists()


@pytest.mark.parametrize(
    "name",
    ["", "  ", "a b", '"x"', "a\nb", "x" * 10_000, "größe", "-x", "$(reboot)", "../..", "a/b", "."],
)
def test_a_name_that_cannot_be_is_explained(name: str) -> None:
    """No name leads out of the folder, or to a file that nobody could type."""
    assert name_problem(name)
    with pytest.raises(SaveError):
        library.create(name, TEXT)
    assert library.saved() == []


def test_saving_is_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the disk fails in the middle, the old text stands and nothing lies beside it."""
    path = tmp_path / "c.toml"
    write(path, "old")

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SaveError, match="No space left on device"):
        write(path, "new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir() if p.name != "home"] == ["c.toml"]


def test_saving_keeps_mode_and_link(tmp_path: Path) -> None:
    """A file's permissions stay, and a link goes on to point at what it pointed at."""
    path = tmp_path / "c.toml"
    write(path, "old")
    path.chmod(0o640)
    link = tmp_path / "link.toml"
    link.symlink_to(path)
    write(link, "new")
    assert link.is_symlink() and path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_read_only_file_is_not_replaced(tmp_path: Path) -> None:
    """Whoever runs it, root too: the mode says that nobody wants it changed."""
    path = tmp_path / "c.toml"
    write(path, "old")
    path.chmod(0o444)
    with pytest.raises(SaveError, match="read-only: save it under another name"):
        write(path, "new")
    assert path.read_text() == "old"


def test_a_draft_notices_what_others_do_to_its_file() -> None:
    """Changed, touched, gone, back again; saving writes a lost file anew."""
    path = library.create("one", SAVED)
    draft = Draft(path)
    os.utime(path, (1, 1))
    assert draft.file_status() is FileStatus.UNCHANGED
    path.write_text(SAVED + "# by another\n")
    looks = [draft.file_status()]
    assert draft.reload() == draft.saved == SAVED + "# by another\n"
    looks.append(draft.file_status())
    path.unlink()
    looks.append(draft.file_status())
    assert draft.save(parse(SAVED, path)) == draft.saved == SAVED
    looks.append(draft.file_status())
    assert path.read_text() == SAVED
    assert looks == [
        FileStatus.CHANGED,
        FileStatus.UNCHANGED,
        FileStatus.DELETED,
        FileStatus.UNCHANGED,
    ]


def test_what_nobody_could_read_is_not_saved() -> None:
    """A text that is no TOML can be kept and repaired, but it never reaches the disk; one that
    is only a wrong cluster is saved."""
    draft = Draft(library.create("one", SAVED))
    now = parse("name = oops\n", draft.path)
    assert now.document is None and now.problems[0].line == 1
    with pytest.raises(SaveError, match="not valid TOML: fix line 1"):
        draft.save(now)
    assert draft.path.read_text() == draft.saved == SAVED
    now = parse('name = "one"\n', draft.path)
    assert now.cluster is None and now.problems
    draft.save(now)
    assert draft.path.read_text() == 'name = "one"\n'


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda t: t.key)
def test_every_template_is_a_valid_cluster(template: Template, tmp_path: Path) -> None:
    """With no host, one, and many."""
    nodes = {"node0", "node1", "node2"} if template is SLURM else set()
    for count in (0, 1, 2, 4, 40) if template.remote else (0,):
        hosts = {f"tf{n}": f"root@tf{n}" for n in range(count)}
        text = render(template, "fresh", hosts, tmp_path)
        cluster = loads(text, "fresh.toml", tmp_path)
        assert cluster.name == "fresh" and set(cluster.hosts) == set(hosts) | nodes
        used = {place.host for job in cluster.jobs.values() for place in job.tasks}
        assert used == (set(cluster.hosts) or {"localhost"})


def test_a_template_takes_hosts_by_their_addresses(tmp_path: Path) -> None:
    """An IPv6 address stands in brackets before a port."""
    hosts = {"fd00::1": "root@[fd00::1]", "10.0.0.2": "root@10.0.0.2"}
    cluster = loads(render(PS_WORKERS, "six", hosts, tmp_path), "six.toml", tmp_path)
    assert [str(place) for place in cluster.jobs["ps"].tasks] == ["[fd00::1]:2222"]


def test_aliases_of_the_users_ssh_configuration(tfmux_home: Path) -> None:
    """Names of all Host lines and included files, without patterns; loops end."""
    folder = tfmux_home / ".ssh"
    folder.mkdir()
    (folder / "config").write_text(
        'Host tf1 tf2 # two\n  HostName 10.0.0.1\nhost = "gpu 7" !no a*\nInclude more/*\nHost *\n'
    )
    (folder / "more").mkdir()
    (folder / "more" / "x").write_text("HOST lab1\nInclude ~/.ssh/config ~nosuchuser/x\n")
    assert aliases() == ["tf1", "tf2", "gpu 7", "lab1"]
    (folder / "config").chmod(0)
    (folder / "config").unlink()
    assert aliases() == []


def _schema_named_in(path: Path) -> Path:
    line = path.read_text().splitlines()[0]
    assert line.startswith("#:schema ")
    return Path(os.path.normpath(path.parent / unquote(line.removeprefix("#:schema "))))


def test_a_new_file_names_the_schema_on_this_machine(tmp_path: Path) -> None:
    """A path that leads to the schema from wherever the file is, also for a copy and a file saved
    under another name; a newer program replaces the schema."""
    schema = config_home() / "cluster.schema.json"
    first = library.create("one", TEXT)
    assert json.loads(schema.read_text()) == json_schema()
    schema.write_text("{}")
    draft = Draft(first)
    written = draft.save(parse(draft.saved or "", first), tmp_path / "a folder" / "mine.toml")
    assert json.loads(schema.read_text()) == json_schema()
    copy = library.duplicate(draft.path, "two")
    assert {_schema_named_in(path) for path in (first, draft.path, copy)} == {schema}
    assert written == draft.saved == draft.path.read_text()
    windows = library.with_schema_line(TEXT.replace("\n", "\r\n"), first)
    assert windows == SAVED.replace("\n", "\r\n")


@pytest.mark.parametrize("line", ["", "#:schema https://example.com/mine.json\n"])
def test_the_schema_line_of_a_file_stays_as_it_is(tmp_path: Path, line: str) -> None:
    """An edit keeps the line that is there, and a file that has none gets none."""
    path = tmp_path / "mine.toml"
    path.write_text(f"# mine\n{line}{TEXT}")
    draft = Draft(path)
    edited = ClusterDocument(draft.saved or "").put(("jobs", "worker", "gpus"), 1)
    draft.save(parse(edited.text, path))
    assert path.read_text() == f"# mine\n{line}{TEXT}gpus = 1\n"
    if line:
        assert line in library.duplicate(path, "copy").read_text()


def test_a_schema_that_cannot_be_written_is_not_named(tmp_path: Path) -> None:
    """A full or read-only folder of settings keeps nobody from saving a cluster elsewhere."""
    (config_home() / "cluster.schema.json").mkdir(parents=True)
    assert library.with_schema_line(TEXT, tmp_path / "mine.toml") == TEXT


def test_a_renaming_that_breaks_off_leaves_a_whole_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process ends at any step: one of the names has a file, and each file has its own name."""
    steps = ("unlink", "rename", "replace", "link", "remove")

    class Ended(BaseException):
        """The end of the process."""

    def ended(*words: object, **options: object) -> None:
        raise Ended

    for step in steps:
        first = library.create(f"{step}-1", TEXT)
        with monkeypatch.context() as patch:
            patch.setattr(os, step, ended)
            try:
                library.rename(first, f"{step}-2")
            except Ended:
                pass
        left = [path for path in library.saved() if path.stem.startswith(f"{step}-")]
        assert left and all(load(path).name == path.stem for path in left), step


def test_a_renaming_that_fails_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    first = library.create("one", TEXT)

    def full(*words: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(library, "write", full)
    with pytest.raises(SaveError, match="No space left"):
        library.rename(first, "two")
    assert library.saved() == [first] and load(first).name == "one"


# Editing a cluster file as a text: one value changes, comments and order stay.

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


def test_a_new_name_swallows_no_other_table() -> None:
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
