"""Past runs on the home screen: filtered, edited, deleted."""

from __future__ import annotations

import os
from pathlib import Path

from launcher.cluster import library
from launcher.cluster.read import load
from launcher.run.snapshot import KeptResults
from launcher.run.states import Outcome
from launcher.store.runs import RunFolder
from tests.support.fakes import write_end
from tests.support.homes import TEXT, ended_run, home
from tests.support.screens import screen_text, shows, until, visible
from tui.app import TfmuxApp
from tui.screens.editor.screen import EditorScreen
from tui.screens.home import HomeScreen


async def test_words_filter_the_rows_of_both_tables() -> None:
    """While they are typed; all of them must be in a row, and none behind a `!`. Enter keeps the
    filter, Escape in the prompt goes back to the one before, and Escape shows all again."""
    ended_run("mnist")
    ended_run("cifar", outcome=Outcome.FAILED, exit_code=1, first_failure=None)
    library.create("mnist", TEXT)
    async with home(size=(100, 30)) as pilot:
        app = pilot.app
        assert isinstance(app, TfmuxApp)
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
        assert isinstance(app, TfmuxApp)
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
        assert isinstance(app, TfmuxApp)
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
        app = pilot.app
        assert isinstance(app, TfmuxApp)
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
        assert isinstance(app, TfmuxApp)
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
