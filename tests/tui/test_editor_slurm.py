"""The editor on a cluster whose hosts Slurm gives, and the way there and back."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.cluster import library
from launcher.cluster.draft import parse
from launcher.cluster.edit import ClusterDocument, EditError
from launcher.cluster.templates import SLURM, render
from tests.tui.conftest import shows, until
from tests.tui.test_editor import editor, gone, screen_of, text_of
from tests.tui.test_editor_fields import BAD
from tui.screens.editor.document_edits import host_names, use_hosts, use_slurm
from tui.screens.editor.key_models import EngineModel
from tui.screens.editor.table import EditTable

PATH = Path("/srv/project/cluster.toml")
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


@pytest.mark.large
async def test_the_table_is_shown_and_edited_and_nothing_else_changes() -> None:
    """Comments, order and the form of lists stay; the page is called Slurm."""
    async with editor(slurm_file()) as pilot:
        await shows(pilot, "1 Slurm")
        await shows(pilot, "'--account=proj 42' --const…")
        assert gone(pilot, "all tasks run on this machine")
        assert gone(pilot, "missing hosts")
        await pilot.press("down", "down", "enter", "home", "ctrl+k", *"30", "enter")
        await until(pilot, lambda: 'time = "30"' in text_of(pilot))
        await pilot.press("down", "enter", *"gpu", "enter", "ctrl+s")
        await shows(pilot, "saved in")
        saved = library.path_of("onslurm").read_text()
    expected = "#:schema ../cluster.schema.json\n" + FILE.replace('"04:00:00"', '"30"')
    assert saved.replace('partition = "gpu"\n', "") == expected


@pytest.mark.large
async def test_errors_stand_at_their_cells() -> None:
    """Also those of a key that is missing, and of a host that must not be there."""
    wrong = FILE.replace('time = "04:00:00"\n', "").replace("node1:auto", "node2:auto")
    async with editor(slurm_file(wrong + '[hosts.tf1]\nssh = "tf1"\n'), size=(120, 40)) as pilot:
        await shows(pilot, 'write such as time = "04:00:00"')
        screen = screen_of(pilot)
        slurm = screen.query_one("#slurm", EditTable)
        hosts = screen.query_one("#hosts", EditTable)
        await pilot.press("e")
        await until(pilot, lambda: slurm.has_focus_within and slurm.key == "time")
        await pilot.press("enter", *"10", "enter")
        await shows(pilot, "the hosts are given by Slurm")
        await pilot.press("tab")
        await until(pilot, lambda: hosts.has_focus_within)
        await pilot.press("x")
        await until(pilot, lambda: "tf1" not in text_of(pilot))
        await until(pilot, lambda: slurm.has_focus_within and not hosts.display)
        await pilot.press("e")
        await shows(pilot, "Slurm gives node0 … node1")


@pytest.mark.large
async def test_hosts_and_slurm_are_exchanged_by_a_key() -> None:
    """As one step of undo; tasks keep their hosts, under the names of nodes."""
    async with editor(size=(120, 40)) as pilot:
        before = text_of(pilot)
        await shows(pilot, "use Slurm")
        await pilot.press("w")
        await shows(pilot, "1 Slurm")
        await shows(pilot, "the tasks run on nodes of Slurm")
        assert "hosts" not in ClusterDocument(text_of(pilot)).data
        assert screen_of(pilot).draft.now.problems == ()
        await pilot.press("enter", "escape", "u")
        await until(pilot, lambda: text_of(pilot) == before)
        await shows(pilot, "1 Hosts")
        await pilot.press("down", "right")
        await shows(pilot, "root@tf2")
        await pilot.press("w")
        await shows(pilot, "use SSH hosts")
        await pilot.press("w")
        await shows(pilot, "1 Hosts")
        assert screen_of(pilot).draft.now.problems == ()
        assert list(ClusterDocument(text_of(pilot)).table("hosts")) == ["node0", "node1", "node2"]


@pytest.mark.large
async def test_the_plan_has_the_batch_script() -> None:
    """As the last entry of the list."""
    async with editor(slurm_file(), size=(120, 40)) as pilot:
        await pilot.press("5", "end")
        await shows(pilot, "sbatch '--account=proj 42' --constraint=a100")
        await shows(pilot, "--ntasks-per-node=1")


@pytest.mark.large
async def test_a_task_is_added_on_the_next_node() -> None:
    """Nodes are hosts like others, for completions too."""
    async with editor(slurm_file(FILE.replace("nodes = 2", "nodes = 3"))) as pilot:
        await pilot.press("2", "tab", "a")
        await shows(pilot, "node2:auto")
        await pilot.press("enter")
        await until(pilot, lambda: '"node2:auto"' in text_of(pilot))
        await pilot.press("2", "a")
        await shows(pilot, "Add a job")
        await pilot.press("enter")
        await until(pilot, lambda: 'tasks = ["node0:auto"]' in text_of(pilot))


@pytest.mark.parametrize("row", range(8))
def test_any_line_in_any_field(row: int) -> None:
    """It is refused with a sentence, or stands in a file that can be read, with what is wrong at
    a place of the table."""
    for line in BAD.values():
        put(row, line)


def put(row: int, line: str) -> None:
    """Types a line into a field, and looks at what comes of it."""
    model = EngineModel("slurm")
    try:
        text = model.put(ClusterDocument(FILE), row, 1, line).text
    except (EditError, ValueError) as error:
        assert str(error).isprintable(), line
        return
    seen = parse(text, PATH)
    assert seen.document is not None, line
    for problem in seen.problems:
        if problem.path[:1] == ("slurm",):
            place = model.place(problem, seen.document)
            assert place is not None and model.rows(seen)[place[0]].cells[1].problem, line


def test_what_hosts_have_in_common_goes_to_the_nodes_and_back() -> None:
    """Interpreter and GPUs, where they are the same on all."""
    text = FILE.replace("nodes = 2", "nodes = 2\npython = '/p'\ngpus = 4")
    hosts = use_hosts(ClusterDocument(text))
    entry = {"python": "/p", "gpus": 4}
    assert hosts.table("hosts") == {name: {"ssh": name, **entry} for name in ("node0", "node1")}
    back = use_slurm(hosts)
    assert back.table("slurm") == {"nodes": 2, "time": "04:00:00", **entry}
    assert "hosts" not in back.data
    uneven = hosts.put(("hosts", "node1", "gpus"), 2)
    assert use_slurm(uneven).table("slurm") == {"nodes": 2, "time": "04:00:00", "python": "/p"}


def test_ports_are_not_forwarded_from_nodes() -> None:
    """Only SSH does that: the key would be an error that the person has not made."""
    text = (
        '[hosts.a]\nssh = "a"\n[jobs.worker]\ntasks = ["a:auto"]\ncommand = ["x"]\n'
        '[jobs.tb]\ntasks = ["a:6006"]\nin_cluster = false\ncommand = ["x"]\nforward = true\n'
    )
    assert parse(text, PATH).problems == ()
    made = use_slurm(ClusterDocument(text))
    assert "forward" not in made.text and parse(made.text, PATH).problems == ()


def test_tables_of_any_kind_are_exchanged() -> None:
    """Of this machine alone; with hosts between other tables, unused, or bracketed; with what is
    no task."""
    local = use_slurm(ClusterDocument('[jobs.w]\ntasks = ["localhost:auto", "localhost:1"]\n'))
    assert local.table("slurm")["nodes"] == 1
    assert local.get("jobs", "w", "tasks") == ["node0:auto", "node0:1"]
    mixed = ClusterDocument(
        '[hosts.a]\nssh = "a"\n[jobs.w]\ntasks = ["b:1", "[fd00::1]:2", 7]\n[hosts.b]\nssh = "b"\n'
    )
    made = use_slurm(mixed)
    assert "hosts" not in made.data and made.table("slurm")["nodes"] == 2
    assert made.get("jobs", "w", "tasks") == ["node0:1", "node1:2", 7]
    assert host_names(made) == ["node0", "node1"]
    assert host_names(ClusterDocument("slurm = 3\n")) == ["node0"]


def test_the_template_has_no_problem() -> None:
    """It is complete but for what a site asks for."""
    seen = parse(render(SLURM, "fresh", {}, Path("/srv")), PATH)
    assert seen.problems == () and seen.cluster is not None and seen.cluster.slurm is not None
