"""`tfmux ps`: a table, names, JSON; no login for a run that has a launcher process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

from launcher.ids import TaskId
from launcher.run.snapshot import AllocationView
from launcher.run.states import RunPhase
from launcher.session.run_list import ActiveHost, ListedRun, active_runs_json, active_runs_schema
from launcher.store.runs import RunFolder
from launcher.store.stream import Summary
from tests.support import command
from tests.support.cluster_texts import cluster_text
from tests.support.command import Up, write
from tests.support.paths import REPOSITORY
from tui.commands.ps import table

TEXT = cluster_text(
    {"ps": 1, "worker": 2},
    "lists",
    command=["sleep", "1000"],
    workdir="",
    start={"ready": {"ps": "started", "worker": "started"}},
)
WORKERS = (TaskId("worker", 0), TaskId("worker", 1))
FAR = ListedRun(
    Summary("far-20261122-101132-e78e", "far", RunPhase.RUNNING, 1000.0, tasks=3),
    RunFolder(Path("far-20261122-101132-e78e")),
    hosts=(ActiveHost("tf1", WORKERS, agent=True), ActiveHost("tf2", unreachable="timed out")),
)
_LONG = "a-very-long-name-20261122-101132-e78e"
QUEUED = ListedRun(
    Summary(_LONG, "a very long name", RunPhase.QUEUED, 1000.0, tasks=16),
    RunFolder(Path(_LONG)),
    launcher=17,
    queued=AllocationView("Slurm", "8123", "PENDING", "Resources"),
    queued_since=1000.0,
)


def test_a_line_for_each_run_in_aligned_columns() -> None:
    """No blank within a column, whatever a cluster is called: `awk` and `cut` can read it."""
    titles, *rows = table((FAR, QUEUED), 1083.0).splitlines()
    cells = [row.split() for row in rows]
    assert titles.split() == ["RUN", "CLUSTER", "PHASE", "TASKS", "HOSTS", "STARTED", "ELAPSED"]
    assert [len(row) for row in cells] == [7, 7]
    assert cells[0][:5] == ["far-20261122-101132-e78e", "far", "unsupervised", "2/3", "1/2"]
    assert cells[1][2:5] == ["queued", "0/16", "0/0"] and cells[1][6] == "1:23"
    assert {row.index(cells[at][2]) for at, row in enumerate(rows)} == {titles.index("PHASE")}


@pytest.mark.parametrize("run", [FAR, QUEUED], ids=["unsupervised", "queued"])
def test_the_json_form_fits_its_schema(run: ListedRun) -> None:
    """Each field is described, and nothing else is printed."""
    schema, (record,) = active_runs_schema(), active_runs_json((run,))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate([record], schema)
    keys = [
        "attempt",
        "attempt_text",
        "background",
        "cause_text",
        "detached_lease",
        "hosts",
        "job_ended",
        "launcher",
        "name",
        "queue",
        "run",
        "stalled",
        "stalled_since",
        "started",
        "state",
        "tasks",
    ]
    assert sorted(record) == keys
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate([record | {"more": 1}], schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate([{key: record[key] for key in keys[1:]}], schema)


@pytest.fixture
def active(tmp_path: Path) -> Iterator[str]:
    """The id of a run on this machine that has a launcher process."""
    with Up("up", str(write(tmp_path, TEXT)), "--json") as up:
        up.state("worker:1", "ready")
        yield up.run_id
        up.press_ctrl_c()
        assert up.wait() == 130, up.transcript()


def test_the_three_forms_tell_of_the_same_run(active: str) -> None:
    """A pipe gets the table without colours; `-q` its name alone; `--json` its tasks."""
    _, row = command.run("ps").stdout.splitlines()
    assert row.split()[:5] == [active, "lists", "running", "3/3", "1/1"]
    assert command.run("ps", "-q").stdout == f"{active}\n"
    done = command.run("ps", "--json")
    jsonschema.validate(json.loads(done.stdout), active_runs_schema())
    (run,) = json.loads(done.stdout)
    assert run["hosts"][0]["tasks"] == ["ps:0", "worker:0", "worker:1"] and run["launcher"]
    assert command.run("ps", "-q", "--json").returncode == 2


def test_a_run_with_a_launcher_process_needs_no_ssh(active: str) -> None:
    """Not even imported: half of the time that `tfmux ps` took."""
    code = (
        "import sys\nfrom tui.main import main\nmain(['ps'])\n"
        "print([name for name in ('asyncssh', 'rich', 'asyncio') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=REPOSITORY,
        env=os.environ,
    )
    assert active in done.stdout and done.stdout.splitlines()[-1] == "[]"
