"""Details of the row under Home's cursor, where there is room for them."""

from __future__ import annotations

import pytest

from launcher.cluster import library
from launcher.ids import TaskId
from launcher.run.cause import Kind, Verdict
from launcher.run.snapshot import Failure
from launcher.run.states import Outcome
from launcher.store.logs import LogStore
from tests.support.fakes import append
from tests.support.homes import ended_run, home
from tests.support.screens import screen_text, shows, until, visible
from tui.app import TfmuxApp

SIZES = [(200, 50), (120, 70)]
GUILTY = TaskId("worker", 0)
RAISED = "ValueError: shard 3 has 7 columns"
TEXT = """name = "digits"
[jobs.ps]
tasks = ["localhost:auto"]
command = ["python3", "serve.py"]
[jobs.worker]
tasks = ["localhost:auto", "localhost:auto"]
command = ["python3", "train.py", "--lr", "0.1"]
"""


@pytest.mark.parametrize("size", SIZES)
async def test_a_run_that_failed_tells_its_cause_and_last_lines(size: tuple[int, int]) -> None:
    """Given a past run that has failed, when the cursor is on it, then its cause, the last lines of
    the guilty task, how each task has ended, the file and the receipt are beside the list or below
    it, in this order."""
    verdict = Verdict((GUILTY,), Kind.RAISED, True, f"worker:0 on localhost raised {RAISED}")
    failure = Failure(GUILTY, "localhost", "exit 1", 1061.0)
    ways = {"outcome": Outcome.FAILED, "exit_code": 1, "verdict": verdict}
    folder = ended_run("mnist", first_failure=failure, **ways)
    logs = LogStore(folder.path)
    append(logs.open(GUILTY), "epoch 3", "return parse(shard)", RAISED)
    logs.close()
    async with home(size=size) as pilot:
        app = pilot.app
        assert isinstance(app, TfmuxApp)
        await shows(pilot, "Runs 1")
        await pilot.press("tab")
        wanted = ["| return parse(shard)", f"| {RAISED}", "outcome   ", "file      "]
        wanted += ["worker:0 on localhost:", "no process is left"]
        await until(pilot, lambda: all(visible(app, text) for text in wanted))
        rows = screen_text(app)
        places = [next(n for n, row in enumerate(rows) if text in row) for text in wanted]
        assert places == sorted(places)


async def test_a_cluster_tells_its_plan() -> None:
    """Given a saved cluster, when the cursor is on it, then the order of the start, what ends a run
    and each command are beside the list."""
    library.create("digits", TEXT)
    async with home(size=(200, 50)) as pilot:
        await shows(pilot, "digits")
        await shows(pilot, "starts    ps:0")
        await shows(pilot, "then      worker:0")
        await shows(pilot, "python3 serve.py")
        await shows(pilot, "python3 train.py --lr 0.1")


async def test_a_record_that_cannot_be_read_is_told_as_such() -> None:
    """Given a run whose cluster file is gone, when the cursor is on it, then the details say so,
    and what the list knows stays."""
    folder = ended_run("mnist")
    folder.cluster_file.write_text("[[[")
    async with home(size=(200, 50)) as pilot:
        await shows(pilot, "Runs 1")
        await pilot.press("tab")
        await shows(pilot, "took      1:02")
        app = pilot.app
        assert isinstance(app, TfmuxApp)
        await until(pilot, lambda: any("! " in row for row in screen_text(app)))
