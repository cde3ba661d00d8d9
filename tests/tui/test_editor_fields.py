"""Every field of the editor with every kind of bad input: explained, and the file stays one."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from launcher.cluster.draft import ParsedDraft, parse
from launcher.cluster.edit import ClusterDocument, EditError
from launcher.cluster.templates import PS_WORKERS, render
from launcher.plan import make_plan
from launcher.printable import invisible, visible
from tui.screens.editor.cell_codecs import (
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
from tui.screens.editor.fields import host_fields, job_fields, run_fields
from tui.screens.editor.host_model import HostModel
from tui.screens.editor.key_models import RunModel
from tui.screens.editor.table_models import JobModel, TableModel, TaskModel

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
def start() -> ParsedDraft:
    return parse(render(PS_WORKERS, "mission", HOSTS, Path("/srv")), PATH)


TABLES: list[tuple[str, TableModel, int, int]] = [
    *((f"host.{f.title}", HostModel(), 0, column) for column, f in enumerate(host_fields())),
    *((f"job.{f.title}", JobModel(), 1, column) for column, f in enumerate(job_fields())),
    *((f"run.{f.title}", RunModel(), row, 1) for row, f in enumerate(run_fields())),
    ("task.host", TaskModel("worker"), 0, 1),
    ("task.port", TaskModel("worker"), 0, 2),
]


@pytest.mark.parametrize(
    ("table", "row", "column"), [s[1:] for s in TABLES], ids=[s[0] for s in TABLES]
)
def test_any_line_in_any_field(table: TableModel, row: int, column: int) -> None:
    """It is refused with a sentence, or stands in a file that can be read and saved; what is
    then wrong with the cluster is said at a place that the editor can go to, printable."""
    for line in BAD.values():
        put(table, row, column, line)


def put(table: TableModel, row: int, column: int, line: str) -> None:
    """Types a line into a cell, and looks at what comes of it."""
    before = start()
    assert before.document is not None and not before.problems
    try:
        document = table.put(before.document, row, column, line)
    except ValueError as error:
        assert str(error) and str(error).isprintable()
        return
    except EditError as error:
        assert str(error).isprintable()
        return
    after = parse(document.text, PATH)
    assert after.document is not None
    rows = table.rows(after)
    if after.cluster is not None:
        assert make_plan(after.cluster, "RUN").tasks
        return
    shown = [cell.problem for each in rows for cell in each.cells if cell.problem]
    shown += [each.problem for each in rows if each.problem]
    everywhere = [
        *TABLES[:1],
        *TABLES[len(host_fields()) : len(host_fields()) + 1],
        TABLES[-3],
        TABLES[-1],
    ]
    for problem in after.problems:
        assert problem.message.isprintable() and len(str(problem)) < 500
        assert any(s.place(problem, document) for _, s, _, _ in everywhere) or problem.line, problem
    assert shown or not any(table.place(p, document) for p in after.problems)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("root@tf1 ", 'it contains blanks or quotes: write "root@tf1"'),
        ('"tf1"', 'it contains blanks or quotes: write "tf1"'),
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
    ],
)
def test_ssh_destinations(line: str, said: str) -> None:
    """The message stands in the cell of the field; valid IPv6 literals are none."""
    table, document = HostModel(), start().document
    assert document is not None
    after = parse(table.put(document, 1, 1, line).text, PATH)
    cell = table.rows(after)[1].cells[1]
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
        (1, "tf9", "the host tf9 is not defined"),
        (1, "127.0.0.1", "use localhost for this machine"),
        (1, "localhost", "localhost means another machine on"),
    ],
)
def test_tasks(column: int, line: str, said: str) -> None:
    """Host and port of a task say what is wrong where it stands."""
    table, document = TaskModel("worker"), start().document
    assert document is not None
    after = parse(table.put(document, 0, column, line).text, PATH)
    assert said in " ".join(cell.problem for cell in table.rows(after)[0].cells)


@pytest.mark.parametrize(
    ("task", "column"),
    [("tf2:0", 2), ("tf2:2222x", 2), ("tf2", 2), (":2222", 1), ("tf9:2222", 1), ("t f:0", 1),
     ("localhost:2222", 1), ("tf1:2222", 2)],
)  # fmt: skip
def test_a_task_s_problem_is_in_its_own_column(task: str, column: int) -> None:
    """Host or port, by what is written there; `e` goes to the same cell. tf1:2222 is the ps."""
    document, table = start().document, TaskModel("worker")
    assert document is not None
    document = document.put(("jobs", "worker", "tasks"), [task])
    seen = parse(document.text, PATH)
    assert [bool(cell.problem) for cell in table.rows(seen)[0].cells[1:]].index(True) == column - 1
    assert [table.place(problem, document) for problem in seen.problems][:1] == [(0, column)]


def test_a_port_taken_twice_names_its_owner() -> None:
    """The second task on a port says whose it is."""
    document = start().document
    assert document is not None
    table = JobModel()
    after = parse(table.put(document, 1, 1, "tf1:2222, tf2:2222").text, PATH)
    assert "already used by ps:0" in table.rows(after)[1].cells[1].problem
    assert "already used by ps:0" in TaskModel("worker").rows(after)[0].cells[2].problem


def test_localhost_among_ssh_hosts_with_an_address() -> None:
    """`[hosts.localhost] address` makes this machine a member like any other."""
    document = start().document
    assert document is not None
    document = document.put(("hosts", "localhost"), {"address": "10.0.0.9"})
    after = parse(TaskModel("worker").put(document, 0, 1, "localhost").text, PATH)
    assert after.cluster is not None and not after.problems


def test_a_host_that_a_command_reaches() -> None:
    """`via` is a cell of words; beside `ssh`, or without an address, it is explained. A copy of
    the host has its own name in the command."""
    document = start().document
    assert document is not None
    table = HostModel()
    at = {field.title: column for column, field in enumerate(host_fields())}
    document = table.put(document, 1, at["via"], "podman exec -i tf2")
    wrong = table.rows(parse(document.text, PATH))[1].cells[at["via"]]
    assert wrong.text == "podman exec -i tf2" and "has both ssh and via" in wrong.problem
    document = table.put(document, 1, at["ssh"], "")
    assert "needs an address" in table.rows(parse(document.text, PATH))[1].cells[0].problem
    document = table.put(document, 1, at["address"], "10.0.0.7")
    document = table.copy(document, 1)
    assert document.get("hosts", "tf3", "via") == ["podman", "exec", "-i", "tf3"]
    after = parse(document.text, PATH)
    assert after.cluster is not None and not after.problems
    assert table.rows(after)[2].cells[at["via"]].text == "podman exec -i tf3"


def test_a_pasted_tf_config_becomes_jobs_tasks_and_hosts() -> None:
    """In the tasks cell of any job; hosts that are nowhere defined are added."""
    document = start().document
    assert document is not None
    line = '{"cluster": {"ps": ["a:1"], "worker": ["b:1", "c:1"], "chief": ["a:2"]}}'
    after = parse(JobModel().put(document, 0, 1, line).text, PATH)
    assert after.cluster is not None
    assert set(after.cluster.hosts) == {"tf1", "tf2", "a", "b", "c"}
    assert [str(t) for t in after.cluster.jobs["worker"].tasks] == ["b:1", "c:1"]


def test_five_workers_are_one_line() -> None:
    """`tf[3-7]:2222` adds five tasks."""
    document = start().document
    assert document is not None
    after = TaskModel("worker").add(document, "tf[3-7]:2222")
    assert len(after.get("jobs", "worker", "tasks")) == 6


def test_five_hundred_tasks_are_shown() -> None:
    """500 tasks: every row is there, and the plan has them all."""
    document = start().document
    assert document is not None
    tasks = ", ".join(f"tf2:{port}" for port in range(3000, 3500))
    after = parse(JobModel().put(document, 1, 1, tasks).text, PATH)
    assert after.cluster is not None
    assert len(TaskModel("worker").rows(after)) == 500
    assert len(make_plan(after.cluster, "RUN").tasks) == 501


@pytest.mark.large
@given(st.lists(st.text(max_size=12), max_size=5))
def test_words_survive_their_line(found: list[str]) -> None:
    """Blanks, quotes, backslashes, newlines: what a line shows reads as what it was."""
    plain = [invisible(visible(word)) for word in found]
    line = line_of(plain)
    assert words(line) == plain
    assert "\n" not in line


@pytest.mark.large
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
@example(case=(TEXT, '""'))
def test_values_survive_their_line(case: tuple[Any, Any]) -> None:
    """A cell that is opened and taken without a change says the same."""
    codec, value = case
    assert codec.value(codec.line(value)) == value


def test_a_quote_that_is_not_closed_is_explained() -> None:
    """It stands for nothing, and the file is not touched."""
    document = ClusterDocument('[jobs.w]\ntasks = ["localhost:auto"]\n')
    with pytest.raises(ValueError, match="a quote is not closed"):
        JobModel().put(document, 0, 2, 'python "train.py')
