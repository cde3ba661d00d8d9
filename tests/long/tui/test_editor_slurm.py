"""The editor on a cluster whose hosts Slurm gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.cluster import library
from launcher.cluster.draft import parse
from launcher.cluster.edit import ClusterDocument, EditError
from launcher.cluster.shorthand import understand
from launcher.cluster.templates import SLURM, render
from tests.support.editing import editor, form, gone, said, screen_of, table_of, text_of
from tests.support.screens import shows, until
from tui.screens.editor.cluster_text import ClusterText

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
    """The template is complete but for what a site asks for."""
    seen = parse(render(SLURM, "fresh", {}, Path("/srv")), PATH)
    assert seen.problems == () and seen.cluster is not None and seen.cluster.slurm is not None
