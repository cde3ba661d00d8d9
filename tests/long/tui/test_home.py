"""The home screen: past runs, details of a row, and the dialog that kills active runs."""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future
from pathlib import Path

import pytest

from launcher.cluster import library
from launcher.cluster.read import load
from launcher.history.control import RunControl
from launcher.history.run_list import ListedRun
from launcher.hosts.auth_prompt import PromptHandler
from launcher.ids import TaskId
from launcher.run.cause import Kind, Verdict
from launcher.run.snapshot import Failure, KeptResults
from launcher.run.states import Outcome, RunPhase
from launcher.store.logs import LogStore
from launcher.store.runs import RunFolder
from launcher.store.stream import Summary
from tests.support.fakes import ScriptedRun, append, write_end
from tests.support.homes import TEXT, ended_run, home
from tests.support.patience import PATIENCE
from tests.support.screens import screen_text, shows, until, visible
from tui.app import TfmuxApp
from tui.run_clients import RunClients
from tui.screens.editor.screen import EditorScreen
from tui.screens.home import HomeScreen
from tui.screens.kill_runs import KillRunsDialog
from tui.screens.prompt_dialogs import PromptDialogs

# Details of the row under Home's cursor, where there is room for them.

SIZES = [(200, 50), (120, 70)]
GUILTY = TaskId("worker", 0)
RAISED = "ValueError: shard 3 has 7 columns"
DIGITS = """name = "digits"
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
    library.create("digits", DIGITS)
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
        await until(pilot, lambda: any("! " in row for row in screen_text(app)))


# Past runs on the home screen: filtered, edited, deleted.


async def test_words_filter_the_rows_of_both_tables() -> None:
    """While they are typed; all of them must be in a row, and none behind a `!`. Enter keeps the
    filter, Escape in the prompt goes back to the one before, and Escape shows all again."""
    ended_run("mnist")
    ended_run("cifar", outcome=Outcome.FAILED, exit_code=1, first_failure=None)
    library.create("mnist", TEXT)
    async with home(size=(100, 30)) as pilot:
        app = pilot.app
        await shows(pilot, "Runs 2")
        await pilot.press("slash", *"MNIST")
        await shows(pilot, "Runs 1 of 2")
        await shows(pilot, "rows with MNIST")
        assert visible(app, "mnist-2026") and not visible(app, "cifar")
        await pilot.press("enter")
        await until(pilot, lambda: not visible(app, "filter:"))
        assert visible(app, "rows with MNIST") and visible(app, "Esc all rows")
        await pilot.press("slash", "home", *"failed ")
        await until(pilot, lambda: visible(app, "has these words"))
        await pilot.press("escape")
        await shows(pilot, "Runs 1 of 2")
        await pilot.press("escape")
        await shows(pilot, "Runs 2")
        assert not visible(app, "rows with")
        await pilot.press("slash", *"!mnist 20261120")
        await shows(pilot, "Runs 1 of 2")
        assert not visible(app, "kill all"), "no run is active"
        await pilot.press("enter")
        await shows(pilot, "launch again")
        assert visible(app, "cifar-2026") and not visible(app, "mnist-2026")
        await pilot.press("down")  # no cluster has these words: the cursor stays
        await pilot.press("delete")
        await shows(pilot, "Delete cifar-2026")


async def test_a_filter_finds_demos_that_are_not_shown() -> None:
    """The group is closed as soon as there is a cluster."""
    library.create("mine", TEXT)
    async with home(size=(100, 30)) as pilot:
        app = pilot.app
        await shows(pilot, "▸ 25 demos")
        await pilot.press("slash", *"downpour", "enter")
        await shows(pilot, "Downpour SGD")
        rows = [row for row in screen_text(app) if "mine" in row or "hello" in row]
        assert rows == []


async def test_a_past_run_is_deleted_after_a_question() -> None:
    """Which says what is lost with it; a no leaves it."""
    kept = KeptResults("tf1", files=3, bytes=2048, folder="/srv/kept")
    folder = ended_run("mine", results_kept=(kept,))
    async with home(size=(100, 30)) as pilot:
        app = pilot.app
        await shows(pilot, "Runs 1")
        await pilot.press("tab")
        await shows(pilot, "x delete")
        await pilot.press("delete")
        await shows(pilot, f"Delete {folder.run_id}?")
        await shows(pilot, "tf1: 3 new files")
        await pilot.press("n")
        await until(pilot, lambda: isinstance(app.screen, HomeScreen))
        assert folder.path.exists()
        await pilot.press("delete")
        await shows(pilot, f"Delete {folder.run_id}?")
        await pilot.press("y")
        await until(pilot, lambda: not visible(app, "mine-2026"))
        assert RunFolder.all() == [] and isinstance(app.screen, HomeScreen)


async def test_a_run_that_has_become_active_is_not_deleted() -> None:
    """Given one that another screen takes up while the question is open."""
    folder = ended_run("mine")
    async with home(size=(100, 30)) as pilot:
        await shows(pilot, "Runs 1")
        await pilot.press("tab", "delete")
        await shows(pilot, f"Delete {folder.run_id}?")
        lock = folder.take_lock()
        assert lock is not None
        try:
            await pilot.press("y")
            await shows(pilot, "is active")
        finally:
            os.close(lock)
        assert folder.path.exists()


async def test_the_file_of_a_run_is_opened(tmp_path: Path) -> None:
    """The one that it was launched from; where that has gone, its copy as a new file there."""
    (tmp_path / "project").mkdir()
    file = tmp_path / "project/mine.toml"
    file.write_text(TEXT)
    folder = RunFolder.create("mine-20261120-183002-7f3a", TEXT, load(file))
    write_end(folder, 1000.0, 1062.0)
    async with home(size=(100, 30)) as pilot:
        app = pilot.app
        await shows(pilot, "Runs 1")
        await pilot.press("tab", "e")
        await until(pilot, lambda: isinstance(app.screen, EditorScreen))
        assert isinstance(app.screen, EditorScreen) and app.screen.draft.path == file
        assert not app.screen.modified
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, HomeScreen))
        file.unlink()
        await pilot.press("f4")
        await until(pilot, lambda: isinstance(app.screen, EditorScreen))
        editor = app.screen
        assert isinstance(editor, EditorScreen) and editor.modified and editor.draft.path == file
        await shows(pilot, "not saved")
        await pilot.press("ctrl+s")
        await until(pilot, file.exists)
        assert load(file).jobs == load(folder.cluster_file).jobs


async def test_a_cluster_with_a_problem_opens_on_its_line(tmp_path: Path) -> None:
    """Given a cluster file with an error, when `e` is pressed on it, then the cursor is on the line
    of the error."""
    file = tmp_path / "wrong.toml"
    file.write_text(TEXT.replace("[run]", "[run]\nlogdri = 'x'"))
    wrong = file.read_text().split("\n").index("logdri = 'x'")
    async with home(file, size=(100, 30)) as pilot:
        app = pilot.app
        await shows(pilot, "logdri")
        await pilot.press("e")
        await until(pilot, lambda: isinstance(app.screen, EditorScreen))
        editor = app.screen
        assert isinstance(editor, EditorScreen)
        await until(pilot, lambda: app.focused is editor._text)
        await until(pilot, lambda: editor._text.cursor_location[0] == wrong)


# The dialog that kills active runs from the home screen.


class SlowClients(RunClients):
    """Reaches runs only when `gate` is set."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.runs: dict[str, ScriptedRun] = {}
        self._folder = folder

    def kill(self, run_id: str, ask: PromptHandler) -> Future[RunControl]:
        """Waits for the gate; `odd` can never be reached."""
        return self._kills.submit(self._reach, run_id)

    def _reach(self, run_id: str) -> RunControl:
        assert self.gate.wait(PATIENCE)
        if run_id == "odd":
            raise OSError("its files cannot be read")
        self.runs[run_id] = run = ScriptedRun(self._folder)
        run.kill_all()
        return run


def entry(run_id: str, folder: Path) -> ListedRun:
    seen = Summary(run_id, "mine", RunPhase.RUNNING, 1000.0)
    return ListedRun(seen, RunFolder(folder), launcher=4121)


async def test_leaving_the_dialog_stops_no_kill(tmp_path: Path) -> None:
    """Runs are killed though they are slow, and more than are attached to at a time; nor does
    leaving tfmux stop that."""
    clients = SlowClients(tmp_path)
    names = [f"run-{number}" for number in range(40)]
    app = TfmuxApp(pages=[home := HomeScreen(clients)])
    async with app.run_test(size=(120, 40)) as pilot:
        await shows(pilot, "demos")
        runs = [entry(name, tmp_path) for name in [*names, "odd"]]
        app.push_screen(KillRunsDialog(runs, clients, PromptDialogs()))
        await shows(pilot, "Kill these 41 runs")
        await pilot.press("y")
        await shows(pilot, "connecting")
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is home)
    clients.gate.set()
    clients.close()
    assert {name: run.asked for name, run in clients.runs.items()} == {
        name: ["kill_all"] for name in names
    }


async def test_the_second_press_reaches_runs_that_are_still_being_attached_to(
    tmp_path: Path,
) -> None:
    """They get KILL as soon as they can; one that cannot be reached is named."""
    clients = SlowClients(tmp_path)
    app = TfmuxApp(pages=[HomeScreen(clients)])
    async with app.run_test(size=(120, 40)) as pilot:
        await shows(pilot, "demos")
        runs = [entry("far", tmp_path), entry("odd", tmp_path)]
        app.push_screen(KillRunsDialog(runs, clients, PromptDialogs()))
        await shows(pilot, "Kill these 2 runs")
        await pilot.press("y", "f9")
        clients.gate.set()
        await shows(pilot, "its files cannot be read")
        await until(pilot, lambda: "far" in clients.runs)  # its thread may be the slower one
        await until(pilot, lambda: clients.runs["far"].asked == ["kill_all", "kill_all force"])
    clients.close()


async def test_a_run_that_has_ended_meanwhile_shows_its_stored_receipt() -> None:
    ended = ended_run("fine")
    clients = RunClients()
    app = TfmuxApp(pages=[HomeScreen(clients)])
    async with app.run_test(size=(120, 40)) as pilot:
        await shows(pilot, "demos")
        runs = [entry(ended.run_id, ended.path)]
        app.push_screen(KillRunsDialog(runs, clients, PromptDialogs()))
        await shows(pilot, "Kill this run")
        await pilot.press("y")
        await shows(pilot, "Receipts")
        assert any("no process is left" in row for row in screen_text(app))
    clients.close()
    assert ended.launcher_pid() is None
