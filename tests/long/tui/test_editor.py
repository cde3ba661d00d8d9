"""The editor: whatever is in a cluster file survives its forms, its table and its text."""

from __future__ import annotations

import functools
import math
import re
from pathlib import Path
from typing import Any

import pytest
import tomlkit
from hypothesis import assume, example, given
from hypothesis import strategies as st

from launcher.cluster import library
from launcher.cluster.draft import ParsedDraft, parse
from launcher.cluster.edit import ClusterDocument, EditError
from launcher.cluster.file_model import NAMED_TABLES, TABLES, ClusterModel
from launcher.cluster.key_lines import KeyPath
from launcher.cluster.read import loads
from launcher.cluster.reference import keys
from launcher.cluster.shorthand import understand
from launcher.cluster.templates import PS_WORKERS, SLURM, render
from launcher.plan.planner import make_plan
from launcher.printable import invisible, visible
from tests.support.budgets import budget, examples
from tests.support.cluster_strategies import cluster_tables
from tests.support.editing import editor, form, gone, said, screen_of, table_of, text_of
from tests.support.screens import shows, until
from tui.screens.editor.cluster_text import ClusterText, ExactDocument, difference
from tui.screens.editor.form import EDIT_ERRORS, NAME, filled, line_of, lines_of, table_at, value_of

# Every key of every form with every kind of bad input: explained, and the file stays one.

PATH = Path("/srv/project/cluster.toml")
HOSTS = {"tf1": "root@tf1", "tf2": "root@tf2"}
BAD = {
    "empty": "",
    "blanks": "   ",
    "quotes": "\"'",
    "open quote": '"x',
    "newline": "a␊b",
    "pasted newline": "a\nb",
    "very long": "x" * 10_000,
    "non-ASCII": "größe☃",
    "leading dash": "-x",
    "command substitution": "$(reboot)",
    "climbing": "../..",
    "IPv6": "fd00::1",
    "IPv6 in brackets": "[fd00::1]:2222",
    "port 0": "tf1:0",
    "port 65536": "tf1:65536",
    "port abc": "tf1:abc",
    "twice the same": "tf1:2222, tf1:2222",
    "escape": "\x1b[31mred",
    "brace": "{job",
    "open table": "{ a = ",
    "open list": '["a"',
    "deep": "[" * 3000,
    "table": "{ a = 1, b = { c = [] } }",
    "number": "7",
    "infinite": "inf",
    "date": "2024-01-01",
    "two keys": "1\nx = 2",
}
FORMS: list[KeyPath] = [
    ("hosts", "tf1"), ("defaults", "host"), ("jobs", "worker"), ("run",), ("start",), ("metrics",),
    ("hooks",), ("slurm",), ("jobs", "chief"), ("hosts", "localhost"),
]  # fmt: skip


@functools.cache
def start(template: str = "ps") -> ParsedDraft:
    """A cluster without a problem."""
    made = SLURM if template == "slurm" else PS_WORKERS
    return parse(render(made, "mission", HOSTS, Path("/srv")), PATH)


@pytest.mark.parametrize("path", FORMS, ids=lambda path: str(path[-1]))
def test_any_line_in_any_field(path: KeyPath) -> None:
    """A line is refused with a sentence, or stands in a file that can be read and saved; what is
    then wrong is said with a line of the file, printable. A soak tries all lines in each field, and
    otherwise each field has every fourth one, the next field the ones after those."""
    before = start("slurm" if path[0] == "slurm" else "ps")
    assert before.document is not None and not before.problems
    names = [NAME] if len(path) > 1 and path[0] in ("hosts", "jobs") else []
    every = budget(4, 1)
    for number, key in enumerate((*names, *(key.name for key in keys(table_at(path)[0])))):
        for what, line in [*BAD.items()][number % every :: every]:
            case = f"{key}: {what}"
            try:
                document = filled(before.document, path, {key: line})
            except EDIT_ERRORS as error:
                assert str(error) and str(error).isprintable(), case
                continue
            after = parse(document.text, PATH)
            assert after.document is not None, case
            if after.cluster is not None:
                assert make_plan(after.cluster, "RUN").tasks, case
            for problem in after.problems:
                assert problem.message.isprintable() and len(str(problem)) < 500, case
                assert problem.line, f"{case}: {problem}"


@given(st.lists(st.text(max_size=12), max_size=5))
def test_words_survive_their_line(found: list[str]) -> None:
    """Blanks, quotes, backslashes, newlines: what a line shows reads as what it was."""
    plain = [invisible(visible(word)) for word in found]
    line = line_of(plain, "array")
    assert value_of(line, "array") == plain
    assert "\n" not in line


_VALUES = st.recursive(
    st.one_of(
        st.booleans(), st.integers(-(10**15), 10**15), st.floats(allow_nan=False),
        st.text("ab \"'\\{}[]=,5\n", max_size=8), st.sampled_from(["true", "5", "inf", '"x"']),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text("aB_ =.\"", max_size=4), inner,
                                                     max_size=3),
    ),
    max_leaves=6,
)  # fmt: skip


@given(_VALUES, st.sampled_from(["string", "integer", "number", "boolean", "array", "object", ""]))
@example('""', "string")
@example({"A": "x", "B": 'a "b" c=d'}, "object")
@example([["ps"], ["worker:0", "b"]], "array")
def test_values_survive_their_line(value: Any, kind: str) -> None:
    """A form that is opened and taken without a change says the same, whatever stands there,
    also where it is of a wrong type, unless the key wants a text."""
    assume(kind != "string" or isinstance(value, str))
    line = line_of(value, kind)
    again = value_of(line, kind)
    assert again == value and type(again) is type(value), line
    assert line.isprintable() and not (isinstance(value, float) and math.isnan(value))


# Whatever is in a cluster file survives the editor: its forms, its table, its text.

_COMMENTED = re.compile(r"^.*# (?:c|above )\d+$", re.MULTILINE)
_COMMENT = re.compile(r"# (?:c|above )\d+")
OTHER = "# begins\n\n"


def read(document: ClusterDocument) -> ClusterModel:
    """The model of a document."""
    return loads(document.text, str(PATH), PATH.parent)


def forms(document: ClusterDocument) -> list[KeyPath]:
    """Paths of all tables of a document that have a form."""
    found: list[KeyPath] = []
    for table in TABLES:
        parts: KeyPath = tuple(table.split("."))
        inside = document.table(table) if table in NAMED_TABLES else None
        found += [parts] if inside is None else [(*parts, name) for name in inside]
    return found


@given(cluster_tables())
@examples(25)
@example({"jobs": {"w": {"tasks": ["a:1"], "command": ["x"]}}, "hosts": {"a": {"ssh": "a"}},
          "defaults": {"host": {"env": {"A": 1, "B": 'a "b" c=d'}, "setup": "a\nb"}}})  # fmt: skip
def test_every_line_of_a_form_can_be_typed_again(tables: dict[str, Any]) -> None:
    """Its own text, put there, means the same cluster; nothing else is changed."""
    assume(not re.search("[\u2400-\u2426]", str(tables)))  # they stand for control characters
    document = ClusterDocument(OTHER + tomlkit.dumps(tables))
    cluster = read(document)
    for path in forms(document):
        for key, line in lines_of(document, path).items():
            if line:
                after = filled(document, path, {key: line})
                if after.data != document.data:
                    assert read(after) == cluster, (path, key)
                assert after.text.startswith("# begins\n")


def test_every_documented_key_has_a_line_in_a_form() -> None:
    """In the table to which it belongs, and of any type."""
    values: dict[str, Any] = {
        "string": "x", "integer": 1, "number": 1.5, "boolean": True, "array": ["x y", "[z"],
        "object": {"A": "x"}, "": {"log": "x"},
    }  # fmt: skip
    document = ClusterDocument("")
    for table in TABLES:
        path: KeyPath = tuple(table.split(".")) + (("a1",) if table in NAMED_TABLES else ())
        for key in keys(table):
            value = values[str(key.schema.get("type", ""))]
            value = ["a:1", "b:auto"] if key.name == "tasks" else value
            document = document.put((*path, key.name), value)
    for table in TABLES:
        path = tuple(table.split(".")) + (("a1",) if table in NAMED_TABLES else ())
        lines = lines_of(document, path)
        lines.pop("name", None)
        assert list(lines) == [key.name for key in keys(table)]
        assert all(lines.values()), lines
        assert filled(document, path, lines).data == document.data


def commented(tables: dict[str, Any]) -> str:
    """A file of these tables with a comment on every line, between them and above the headers."""
    lines = []
    for number, line in enumerate(tomlkit.dumps(tables).split("\n")):
        lines += [f"# above {number}"] if line.startswith("[") else []
        lines.append(f"{line}   # c{number}" if line else line)
    return "\n".join(lines)


@given(cluster_tables(), st.data())
@examples(30)
def test_edits_of_the_table_keep_comments_order_and_spacing(
    tables: dict[str, Any], data: st.DataObject
) -> None:
    """Tasks and hosts come and go, in a file with a comment on every line: each line that is not
    the edited one's stays as it is, in its place; the tasks are those that are meant."""
    text = commented(tables)
    assume('"""' not in text and "'''" not in text)
    document = ClusterDocument(text)
    for _ in range(data.draw(st.integers(1, 5))):
        before, jobs = document, list(document.table("jobs")) or ["w"]
        hosts = [host for host in document.places() if host] or ["localhost"]
        host, job = data.draw(st.sampled_from(hosts)), data.draw(st.sampled_from(jobs))
        action = data.draw(st.sampled_from(["add", "new", "less", "host", "gone"]))
        tasks = {name: before.tasks(name) for name in before.table("jobs")}
        try:
            match action:
                case "add":
                    document = document.add_task(host, job)
                    assert document.tasks(job)[:-1] == tasks.get(job, [])
                case "new":
                    document = document.add_task(host, "fresh")
                case "less":
                    document = document.remove_task(host, job)
                    assert len(document.tasks(job)) == len(tasks[job]) - 1
                case "host":
                    document = document.add(understand("q[1-2]"))
                    assert len(document.host_names()) == len(before.host_names()) + 2
                case "gone":
                    document = document.remove_host(host)
                    assert host not in document.places()
        except EditError:
            assert action in ("less", "gone", "add", "new")
            continue
        old, new = (_COMMENTED.findall(each.text) for each in (before, document))
        kept = [line for line in old if line in set(new)]
        assert [line for line in new if line in set(old)] == kept  # in their order
        lost = [line for line in old if line not in set(new)]
        if action == "gone":  # a host goes with its own lines, and what is between them
            sections = before.text.partition(f"[hosts.{host}]")[2].split("\n[hosts.")
            own = [s for i, s in enumerate(sections) if not i or s.startswith(f"{host}.")]
            lost = [line for line in lost if line not in "\n".join(own)]
            lost = [line for line in lost if not re.match(rf"\[hosts\.{host}[].]", line)]
        fresh = action == "host" or (action == "new" and "fresh" not in before.table("jobs"))
        assert all("tasks" in line and not fresh for line in lost), lost
        count = {each: len(_COMMENT.findall(each.text)) for each in (before, document)}
        if action != "gone":
            # The element that goes may be the last on a line of its own.
            assert count[before] - count[document] <= (action == "less")


_TEXTS = st.lists(
    st.sampled_from(["a", "bc = 1", "\n", "\r\n", "\r", "\u2028", "\x85", "\x0b", "# x", " ", ""])
).map("".join)


@given(_TEXTS, st.lists(_TEXTS, max_size=3))
@examples(100)
def test_a_text_is_given_back_as_it_was(text: str, others: list[str]) -> None:
    """Whatever its line ends are; another one put in its place is that one, exactly, and undo
    leads back to it."""
    document = ExactDocument(text)
    assert document.text == text
    for other in others:
        if document.newline == "\r\n":  # a file keeps its kind of line end
            other = re.sub("\r*\n", "\r\n", other)
        before = document.text
        first, last, fresh = difference(before, other)
        assert before[:first] + fresh + before[last:] == other
        start, end = map(document.get_location_from_index, (first, last))
        done = document.replace_range(start, end, fresh)
        assert document.text == other
        document.replace_range(start, done.end_location, done.replaced_text)
        assert document.text == before
        document.replace_range(start, end, fresh)


@given(_TEXTS, st.data())
@examples(100)
def test_a_range_of_a_text_is_replaced_and_brought_back(text: str, data: st.DataObject) -> None:
    """As the steps of undo do it."""
    document = ExactDocument(text)
    whole = len(text)
    a, b = sorted(data.draw(st.tuples(st.integers(0, whole), st.integers(0, whole))))
    if document.newline == "\r\n" and any(text[n - 1 : n + 1] == "\r\n" for n in (a, b) if n):
        return
    start, end = map(document.get_location_from_index, (a, b))
    result = document.replace_range(start, end, "new")
    assert document.text == text[:a] + "new" + text[b:] and result.replaced_text == text[a:b]
    document.replace_range(start, result.end_location, result.replaced_text)
    assert document.text == text


@pytest.mark.parametrize(
    ("value", "kind", "line"),
    [
        (["a b", "[x", "{python}"], "array", "'a b' '[x' '{python}'"),
        ({"A": "1 2"}, "object", "'A=1 2'"),
        ([["ps"], ["w:0"]], "array", '[["ps"], ["w:0"]]'),
        ({"log": r"a \d"}, "", r'{ log = "a \\d" }'),
        (True, "boolean", "true"),
        ("a\nb", "string", "a␊b"),
    ],
)
def test_lines_of_values(value: Any, kind: str, line: str) -> None:
    """Words as for a shell, variables as NAME=value, anything else as in the file."""
    assert line_of(value, kind) == line


# The editor on a cluster whose hosts Slurm gives.

FILE = """name = "onslurm"  # mine

[slurm]  # the site
nodes = 2
time = "04:00:00"
options = ["--account=proj 42",
           "--constraint=a100"]  # ours

[jobs.worker]
tasks = ["node0:auto", "node1:auto"]

[run]
command = ["train"]
"""


def slurm_file(text: str = FILE) -> Path:
    """A saved cluster."""
    return library.create("onslurm", text)


async def test_nodes_are_the_rows_and_the_form_of_all_is_that_of_slurm() -> None:
    """Its values are shown and edited, and nothing else changes: comments, order, form of lists."""
    async with editor(slurm_file()) as pilot:
        await shows(pilot, "all nodes")
        await shows(pilot, "node1")
        assert gone(pilot, "this machine")
        await pilot.press("home", "enter")
        await form(pilot, "[slurm]")
        await shows(pilot, "'--account=proj 42' --constraint=a100")
        await pilot.press("down", "down", "home", "ctrl+k", *"30", "down", *"gpu", "enter")
        await until(pilot, lambda: 'time = "30"' in text_of(pilot))
        await pilot.press("ctrl+s")
        await shows(pilot, "saved in")
        saved = library.path_of("onslurm").read_text()
    expected = "#:schema ../cluster.schema.json\n" + FILE.replace('"04:00:00"', '"30"')
    assert saved.replace('partition = "gpu"\n', "") == expected


async def test_tasks_of_nodes_are_added_and_hosts_are_not() -> None:
    """Slurm gives them; as many nodes as are asked for have a row."""
    async with editor(slurm_file(), size=(100, 40)) as pilot:
        table_of(pilot).go("node1", "worker")
        await pilot.press("plus")
        await until(pilot, lambda: '"node1:auto", "node1:auto"]' in text_of(pilot))
        await shows(pilot, ":auto ×2")
        await pilot.press("a")
        await shows(pilot, "Add hosts")
        await pilot.press(*"tf1", "enter")
        await shows(pilot, "Slurm gives the hosts")
        text = text_of(pilot)
        screen_of(pilot).query_one(ClusterText).put(text.replace("nodes = 2", "nodes = 12"))
        await shows(pilot, "node11")


async def test_problems_are_said_with_their_lines() -> None:
    """Also of a key that is missing, of a host that must not be there and of one too many."""
    wrong = FILE.replace('time = "04:00:00"\n', "").replace("node1:auto", "node2:auto")
    path = slurm_file(wrong + '[hosts.tf1]\nssh = "tf1"\n')
    async with editor(path, size=(120, 40)) as pilot:
        await shows(pilot, "all nodes !")
        await shows(pilot, 'write such as time = "04:00:00"')
        await pilot.press("home", "enter")
        await form(pilot, "[slurm]")
        await pilot.press("down", "down", *"10", "enter")
        await until(pilot, lambda: "the hosts come from Slurm" in said(pilot))
        table_of(pilot).go("tf1", None)
        await pilot.press("x")
        await until(pilot, lambda: "tf1" not in text_of(pilot))
        await until(pilot, lambda: "Slurm gives node0 … node1" in said(pilot))
        table_of(pilot).go("node2", "worker")
        await pilot.press("x")
        await shows(pilot, "✓")


async def test_the_plan_has_the_batch_script() -> None:
    """As the last entry of the list."""
    async with editor(slurm_file(), size=(120, 40)) as pilot:
        await pilot.press("space", "end")
        await shows(pilot, "sbatch '--account=proj 42' --constraint=a100")
        await shows(pilot, "--ntasks-per-node=1")


def test_tensorboard_on_a_node_has_no_port_here() -> None:
    """Nothing logs in at a node, which could forward it; on a host it has."""
    made = ClusterDocument(FILE).add_task("node0", "tensorboard")
    assert "forward" not in made.text and parse(made.text, PATH).problems == ()
    host = ClusterDocument('[hosts.a]\nssh = "a"\n').add_task("a", "tensorboard")
    assert host.get("jobs", "tensorboard", "forward") is True
    assert parse(host.text, PATH).problems == ()


def test_nodes_of_odd_tables() -> None:
    """A table that says nothing useful has one node; hosts cannot be added beside it."""
    for text in ("slurm = 3\n", "[slurm]\nnodes = true\n", "[slurm]\nnodes = 99999999\n"):
        document = ClusterDocument(text)
        assert document.host_names() == ["node0"]
        with pytest.raises(EditError, match="Slurm gives the hosts"):
            document.add(understand("tf1"))


def test_the_template_has_no_problem() -> None:
    seen = parse(render(SLURM, "fresh", {}, Path("/srv")), PATH)
    assert seen.problems == () and seen.cluster is not None and seen.cluster.slurm is not None
