"""Every key of a cluster file survives the editor: cells, rows, the way to Slurm and back."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import tomlkit
from hypothesis import assume, example, given

from launcher.cluster import LOCALHOST, ClusterModel, loads
from launcher.cluster.draft import parse
from launcher.cluster.edit import ClusterDocument, EditError
from launcher.cluster.reference import keys
from launcher.plan import make_plan
from tests.budgets import examples
from tests.launcher.cluster_strategies import cluster_tables
from tui.screens.editor.document_edits import differing, use_hosts, use_slurm
from tui.screens.editor.fields import host_fields, job_fields
from tui.screens.editor.host_model import HostModel
from tui.screens.editor.key_models import RunModel
from tui.screens.editor.table_models import JobModel, TableModel, TaskModel

PATH = Path("/srv/project/cluster.toml")
OTHER = "# begins\n\n[other]\nkey = 1  # ends\n"
HOSTS = """\
[hosts.tf1]
ssh = "tf1"  # the first
python = "/a/python"
env = { A = "1", B = "2" }
[hosts.tf2]
ssh = "tf2"
python = "/b/python"
setup = "conda activate tf"
env = { A = "1", B = "3" }  # the second

[jobs.worker]
tasks = ["tf1:2222", "tf2:2222"]
command = ["{python}", "x"]
"""


def read(document: ClusterDocument) -> ClusterModel:
    """The model of a document."""
    return loads(document.text, str(PATH), PATH.parent)


def cells(model: TableModel, document: ClusterDocument) -> list[tuple[int, int]]:
    """Row and column of each cell that can be edited."""
    return [
        (number, column)
        for number, row in enumerate(model.rows(parse(document.text, PATH)))
        for column, cell in enumerate(row.cells)
        if not cell.fixed and column >= model.first
    ]


@pytest.mark.large
@given(cluster_tables())
@examples(25)
@example({"jobs": {"w": {"tasks": ["a:1"], "command": ["x"]}}, "hosts": {"a": {"ssh": "a"}},
          "defaults": {"host": {"env": {"A": 1, "B": 'a "b" c=d'}, "setup": "a\nb"}}})  # fmt: skip
def test_every_cell_can_be_typed_again(tables: dict[str, Any]) -> None:
    """Its own text, put into the cell, means the same cluster; nothing else is changed."""
    assume(not re.search("[\u2400-\u2426]", str(tables)))  # they stand for control characters
    document = ClusterDocument(OTHER.partition("[")[0] + tomlkit.dumps(tables))
    cluster = read(document)
    models = [HostModel(), JobModel(), RunModel(), *map(TaskModel, tables["jobs"])]
    for model in models:
        rows = model.rows(parse(document.text, PATH))
        for row, column in cells(model, document):
            after = model.put(document, row, column, rows[row].cells[column].text)
            if after.data != document.data:  # a number of `env` is a text in its cell
                assert read(after) == cluster, (model.name, row, column)
            assert after.text.startswith("# begins\n")


def test_every_key_of_hosts_and_jobs_has_a_cell_and_is_copied() -> None:
    """None is dropped from a copy of its row; only what names a row differs."""
    values: dict[str, Any] = {
        "string": "x", "integer": 1, "number": 1, "boolean": True, "array": ["x"],
        "object": {"A": "x"},
    }  # fmt: skip
    for model, fields, table in (
        (HostModel(), host_fields(), "hosts"),
        (JobModel(), job_fields(), "jobs"),
    ):
        entry = {key.name: values[key.schema.get("type", "string")] for key in keys(table)}
        document = ClusterDocument("").put((table, "a1"), entry)
        copy = model.copy(document, 0)
        assert copy.table(table, "a2").keys() == entry.keys() == {f.path[0] for f in fields[1:]}
        assert copy.table(table, "a1") == entry


@pytest.mark.large
@given(cluster_tables())
@examples(25)
def test_what_hosts_have_in_common_survives_slurm(tables: dict[str, Any]) -> None:
    """Each task has the interpreter, the variables, the setup and the shell that it had, but for
    what is named as differing; so it has on the way back."""
    # A `~` is not expanded on nodes: the plan says so.
    document = ClusterDocument(tomlkit.dumps(tables).replace("~/v/python", "/v/python"))
    before = make_plan(read(document), "run-1")
    if any(task.host == LOCALHOST for task in before.tasks):
        return
    named = differing(document)
    shown = {word for name in named for word in (name, name.partition(".")[0])}
    slurm = use_slurm(document)
    back = use_hosts(slurm)
    assert "defaults" not in slurm.data
    for after in (make_plan(read(slurm), "run-1"), make_plan(read(back), "run-1")):
        for old in before.tasks:
            new = after.task(old.id)
            if "setup" not in named:
                assert new.setup == old.setup
            if "shell" not in named:
                assert new.shell == old.shell
            if not shown & {"env", "python"} and "{" not in str(tables):
                own = {n: v for n, v in old.env.items() if n not in ("TF_CONFIG", "no_proxy")}
                assert own.items() <= new.env.items()


def test_variables_of_hosts_go_with_them_to_slurm() -> None:
    """Those that all hosts have, to [run]; what they do not have in common is named."""
    document = ClusterDocument(HOSTS + '[run]\nenv = { A = "0", Z = "9" }\n')
    assert differing(document) == ["python", "env.B", "setup"]
    made = use_slurm(document)
    assert made.get("run", "env") == {"A": "1", "Z": "9"}
    assert "python" not in made.table("slurm") and read(made)
    same = document.put(("hosts", "tf2", "env", "B"), "2").put(("hosts", "tf2", "setup"), None)
    assert differing(same) == ["python"]
    assert use_slurm(same).get("run", "env") == {"A": "1", "B": "2", "Z": "9"}


def test_defaults_of_hosts_go_with_them_to_slurm() -> None:
    """Under what a host says itself."""
    text = HOSTS + '[defaults.host]\npython = "/p"\nsetup = "conda activate tf"\ngpus = 2\n'
    document = ClusterDocument(text)
    for host in ("tf1", "tf2"):
        document = document.put(("hosts", host, "python"), None)
    made = use_slurm(document)
    assert made.table("slurm")["python"] == "/p" and made.table("slurm")["gpus"] == 2
    assert made.get("run", "setup") == "conda activate tf"
    assert "defaults" not in made.data and read(made)


# --- the row of defaults, and filling of columns ----------------------------------------------


def column(title: str) -> int:
    """Of the table of hosts."""
    return [field.title for field in host_fields()].index(title)


def test_the_last_row_edits_the_defaults() -> None:
    """The hosts show them dimmed where they have no value; comments stay."""
    model, document = HostModel(), ClusterDocument(HOSTS)
    document = model.put(document, 0, column("python"), "")
    document = model.put(document, 2, column("python"), "/opt/tf/bin/python")
    document = model.put(document, 2, column("env"), "C=1 D=2")
    assert document.text.endswith(
        '\n[defaults.host]\npython = "/opt/tf/bin/python"\nenv = {C = "1", D = "2"}\n'
    )
    for comment in ("# the first", "# the second"):
        assert comment in document.text
    seen = parse(document.text, PATH)
    rows = model.rows(seen)
    python = column("python")
    assert (rows[0].cells[python].text, rows[0].cells[python].default) == ("", "/opt/tf/bin/python")
    assert rows[1].cells[python].text == "/b/python"
    assert rows[2].cells[python].text == "/opt/tf/bin/python"
    assert seen.cluster is not None and seen.cluster.hosts["tf1"].python == "/opt/tf/bin/python"
    assert model.remove(document, 2).data == model.put(ClusterDocument(HOSTS), 0, python, "").data
    emptied = model.put(model.put(document, 2, python, ""), 2, column("env"), "")
    assert "defaults" not in emptied.text


@pytest.mark.parametrize("title", ["host", "ssh", "address", "via"])
def test_what_names_a_host_has_no_default(title: str) -> None:
    """Its cell is fixed, and not filled either."""
    model, document = HostModel(), ClusterDocument(HOSTS)
    at = column(title)
    assert model.rows(parse(HOSTS, PATH))[2].cells[at].fixed
    with pytest.raises(EditError):
        model.put(document, 2, at, "x")
    if title != "via":
        with pytest.raises(EditError, match="each host has its own"):
            model.fill(document, 0, at)


def test_what_is_wrong_with_a_default_is_in_its_cell() -> None:
    """`e` goes there."""
    model = HostModel()
    text = HOSTS + '[defaults.host]\nuser = "a b"\nzzz = 1\n'
    seen = parse(text, PATH)
    assert seen.document is not None
    row = model.rows(seen)[2]
    assert "not a user name" in row.cells[column("user")].problem and "zzz" in row.problem
    places = {model.place(problem, seen.document) for problem in seen.problems}
    assert (2, column("user")) in places and None not in places


def test_a_column_is_filled_with_the_value_of_a_cell() -> None:
    """Of hosts, of jobs, of tasks; an empty cell empties it; from the defaults, hosts lose what
    they have instead. Other lines keep their comments."""
    model, document = HostModel(), ClusterDocument(HOSTS)
    at = column("env")
    filled = model.fill(document, 1, at)
    assert filled.get("hosts", "tf1", "env") == {"A": "1", "B": "3"}
    assert "# the first" in filled.text and "# the second" in filled.text
    assert model.fill(document, 0, column("setup")).get("hosts", "tf2", "setup") is None
    common = model.put(document, 2, column("python"), "/p")
    cluster = read(model.fill(common, 2, column("python")))
    assert {host.python for host in cluster.hosts.values()} == {"/p"}
    tasks = TaskModel("worker")
    assert tasks.fill(document, 0, 1).get("jobs", "worker", "tasks") == ["tf1:2222", "tf1:2222"]
    auto = tasks.put(document, 1, 2, "auto")
    assert tasks.fill(auto, 1, 2).get("jobs", "worker", "tasks") == ["tf1:auto", "tf2:auto"]
    two = document.put(("jobs", "ps"), {"tasks": ["tf1:1"], "env": {"A": "1"}})
    env = [field.title for field in job_fields()].index("env")
    assert JobModel().fill(two, 1, env).get("jobs", "worker", "env") == {"A": "1"}
    with pytest.raises(EditError, match="no column to fill"):
        RunModel().fill(document, 0, 1)
