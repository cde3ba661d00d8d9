"""Whatever is in a cluster file survives the editor: its forms, its table, its text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import tomlkit
from hypothesis import assume, example, given
from hypothesis import strategies as st

from launcher.cluster.edit import ClusterDocument, EditError
from launcher.cluster.file_model import NAMED_TABLES, TABLES, ClusterModel
from launcher.cluster.key_lines import KeyPath
from launcher.cluster.read import loads
from launcher.cluster.reference import keys
from launcher.cluster.shorthand import understand
from tests.support.budgets import examples
from tests.support.cluster_strategies import cluster_tables
from tui.screens.editor.cluster_text import ExactDocument, difference
from tui.screens.editor.form import filled, line_of, lines_of

_COMMENTED = re.compile(r"^.*# (?:c|above )\d+$", re.MULTILINE)
_COMMENT = re.compile(r"# (?:c|above )\d+")
PATH = Path("/srv/project/cluster.toml")
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
