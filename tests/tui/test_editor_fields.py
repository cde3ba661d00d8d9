"""Every field of the editor with every kind of bad input: explained, and the file stays one."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.cluster.draft import Examined, examine
from launcher.cluster.edit import ClusterText, EditError
from launcher.cluster.paste import entries
from launcher.cluster.templates import PS_WORKERS, render
from launcher.plan.plan import make_plan
from tui.control_pictures import invisible, visible
from tui.screens.editor.fields import HOST, JOB, RUN
from tui.screens.editor.kinds import (
    ENV,
    FLAG,
    NUMBER,
    ORDER,
    READY,
    TASKS,
    TEXT,
    WORDS,
    line_of,
    words,
)
from tui.screens.editor.sheets import HostSheet, JobSheet, RunSheet, Sheet, TaskSheet

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
    "number": "7",
}


@functools.cache
def start() -> Examined:
    return examine(render(PS_WORKERS, "mission", HOSTS, Path("/srv")), PATH)


SHEETS: list[tuple[str, Sheet, int, int]] = [
    *((f"host.{f.title}", HostSheet(), 0, column) for column, f in enumerate(HOST)),
    *((f"job.{f.title}", JobSheet(), 1, column) for column, f in enumerate(JOB)),
    *((f"run.{f.title}", RunSheet(), row, 1) for row, f in enumerate(RUN)),
    ("task.host", TaskSheet("worker"), 0, 1),
    ("task.port", TaskSheet("worker"), 0, 2),
]


@pytest.mark.parametrize(
    ("sheet", "row", "column"), [s[1:] for s in SHEETS], ids=[s[0] for s in SHEETS]
)
@pytest.mark.parametrize("line", BAD.values(), ids=BAD)
def test_any_line_in_any_field(sheet: Sheet, row: int, column: int, line: str) -> None:
    """It is refused with a sentence, or stands in a file that can be read and saved; what is
    then wrong with the cluster is said at a place that the editor can go to, printable."""
    before = start()
    assert before.document is not None and not before.problems
    try:
        document = sheet.put(before.document, row, column, line)
    except ValueError as error:
        assert str(error) and str(error).isprintable()
        return
    except EditError as error:
        assert str(error).isprintable()
        return
    after = examine(document.text, PATH)
    assert after.document is not None
    rows = sheet.rows(after)
    if after.cluster is not None:
        assert make_plan(after.cluster, "RUN").tasks
        return
    shown = [cell.problem for each in rows for cell in each.cells if cell.problem]
    shown += [each.problem for each in rows if each.problem]
    everywhere = [*SHEETS[:1], *SHEETS[len(HOST) : len(HOST) + 1], SHEETS[-3], SHEETS[-1]]
    for problem in after.problems:
        assert problem.message.isprintable() and len(str(problem)) < 500
        assert any(s.place(problem, document) for _, s, _, _ in everywhere) or problem.line, problem
    assert shown or not any(sheet.place(p, document) for p in after.problems)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("root@tf1 ", 'blanks or quotes inside: write "root@tf1"'),
        ('"tf1"', 'blanks or quotes inside: write "tf1"'),
        ("-oProxyCommand=x", "does not begin with '-'"),
        ("tf1:0", "1 to 65535"),
        ("tf1:65536", "1 to 65535"),
        ("tf1:abc", "a port is a number"),
        ("größe", "host names are ASCII"),
        ("fd00::1", "stands in brackets"),
        ("$(reboot)", "only letters, digits"),
        ("../..", "only letters, digits"),
        ("ssh root@tf1", "the destination alone"),
        ("[fd00::1]:22", ""),
        ("root@[fe80::1%eth0]:2200", ""),
    ],
)
def test_ssh_destinations(line: str, said: str) -> None:
    """The message stands in the cell of the field; valid IPv6 literals are none."""
    sheet, document = HostSheet(), start().document
    assert document is not None
    after = examine(sheet.put(document, 1, 1, line).text, PATH)
    cell = sheet.rows(after)[1].cells[1]
    assert said in cell.problem if said else not cell.problem
    assert cell.text == line


@pytest.mark.parametrize(
    ("column", "line", "said"),
    [
        (2, "0", "1 to 65535"),
        (2, "65536", "1 to 65535"),
        (2, "abc", "a number from 1 to 65535 or auto"),
        (2, "", "port"),
        (1, "", "host name is missing"),
        (1, "tf9", "the host tf9 is nowhere defined"),
        (1, "127.0.0.1", "this machine is called localhost"),
        (1, "localhost", "localhost means another machine on"),
    ],
)
def test_tasks(column: int, line: str, said: str) -> None:
    """Host and port of a task say what is wrong where it stands."""
    sheet, document = TaskSheet("worker"), start().document
    assert document is not None
    after = examine(sheet.put(document, 0, column, line).text, PATH)
    assert said in " ".join(cell.problem for cell in sheet.rows(after)[0].cells)


def test_a_port_taken_twice_names_its_owner() -> None:
    """The second task on a port says whose it is."""
    document = start().document
    assert document is not None
    sheet = JobSheet()
    after = examine(sheet.put(document, 1, 1, "tf1:2222, tf2:2222").text, PATH)
    assert "already belongs to ps:0" in sheet.rows(after)[1].cells[1].problem
    assert "already belongs to ps:0" in TaskSheet("worker").rows(after)[0].cells[2].problem


def test_localhost_among_ssh_hosts_with_an_address() -> None:
    """`[hosts.localhost] address` makes this machine a member like any other."""
    document = start().document
    assert document is not None
    document = document.put(("hosts", "localhost"), {"address": "10.0.0.9"})
    after = examine(TaskSheet("worker").put(document, 0, 1, "localhost").text, PATH)
    assert after.cluster is not None and not after.problems


def test_a_pasted_tf_config_becomes_jobs_tasks_and_hosts() -> None:
    """In the tasks cell of any job; hosts that are nowhere defined are added."""
    document = start().document
    assert document is not None
    line = '{"cluster": {"ps": ["a:1"], "worker": ["b:1", "c:1"], "chief": ["a:2"]}}'
    after = examine(JobSheet().put(document, 0, 1, line).text, PATH)
    assert after.cluster is not None
    assert set(after.cluster.hosts) == {"tf1", "tf2", "a", "b", "c"}
    assert [str(t) for t in after.cluster.jobs["worker"].tasks] == ["b:1", "c:1"]


def test_five_workers_are_one_line() -> None:
    """`tf[3-7]:2222` adds five tasks."""
    document = start().document
    assert document is not None
    after = TaskSheet("worker").add(document, entries("tf[3-7]:2222"))
    assert len(after.get("jobs", "worker", "tasks")) == 6


def test_five_hundred_tasks_are_shown() -> None:
    """500 tasks: every row is there, and the plan has them all."""
    document = start().document
    assert document is not None
    tasks = ", ".join(f"tf2:{port}" for port in range(3000, 3500))
    after = examine(JobSheet().put(document, 1, 1, tasks).text, PATH)
    assert after.cluster is not None
    assert len(TaskSheet("worker").rows(after)) == 500
    assert len(make_plan(after.cluster, "RUN").tasks) == 501


@given(st.lists(st.text(max_size=12), max_size=5))
def test_words_survive_their_line(found: list[str]) -> None:
    """Blanks, quotes, backslashes, newlines: what a line shows reads as what it was."""
    plain = [invisible(visible(word)) for word in found]
    line = line_of(plain)
    assert words(line) == plain
    assert "\n" not in line


@given(
    st.one_of(
        st.tuples(st.just(WORDS), st.lists(st.text("ab \"'\\=", max_size=5), min_size=1)),
        st.tuples(
            st.just(ENV),
            st.dictionaries(
                st.from_regex(r"\A[A-Z_]{1,5}\Z"), st.text("a =\"'\\", max_size=5), min_size=1
            ),
        ),
        st.tuples(st.just(NUMBER), st.one_of(st.integers(-(10**9), 10**9), st.floats(0, 1e6))),
        st.tuples(st.just(FLAG), st.booleans()),
        st.tuples(st.just(TEXT), st.text("ab \"'\\{}=", max_size=8)),
        st.tuples(
            st.just(TASKS), st.lists(st.sampled_from(["a:1", "[::1]:2", "x:auto"]), min_size=1)
        ),
        st.tuples(
            st.just(READY),
            st.sampled_from(["listening", "started", {"log": r"a \d+"}, {"after": 5.5}]),
        ),
        st.tuples(st.just(ORDER), st.sampled_from([[["ps"], ["worker:0", "b"]], [["a"]]])),
    )
)
def test_values_survive_their_line(case: tuple[Any, Any]) -> None:
    """A cell that is opened and taken without a change says the same."""
    kind, value = case
    assert kind.value(kind.line(value)) == value


def test_a_quote_that_is_not_closed_is_explained() -> None:
    """It stands for nothing, and the file is not touched."""
    document = ClusterText('[jobs.w]\ntasks = ["localhost:auto"]\n')
    with pytest.raises(ValueError, match="a quote is not closed"):
        JobSheet().put(document, 0, 2, 'python "train.py')
