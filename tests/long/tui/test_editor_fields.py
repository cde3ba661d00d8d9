"""Every key of every form with every kind of bad input: explained, and the file stays one."""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from launcher.cluster.draft import ParsedDraft, parse
from launcher.cluster.key_lines import KeyPath
from launcher.cluster.reference import keys
from launcher.cluster.templates import PS_WORKERS, SLURM, render
from launcher.plan.planner import make_plan
from launcher.printable import invisible, visible
from tests.support.budgets import budget
from tui.screens.editor.form import EDIT_ERRORS, NAME, filled, line_of, table_at, value_of

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
