"""Before the home screen is there: keys, pictures and imports; and copies inside tmux, which drops
a program's OSC 52."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import pytest
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from tests.support.fakes import ScriptedRun
from tests.support.paths import REPOSITORY
from tests.support.patience import PATIENCE
from tests.support.screens import showing, shows, until
from tui.app import TfmuxApp
from tui.config import Config
from tui.screens.opening import Imported, Opening
from tui.screens.page import Page


class Below(Page):
    """A page that notes what it is asked for."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("j", "down")]

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def compose(self) -> ComposeResult:
        yield Static("the home")

    def action_down(self) -> None:
        self.asked.append("down")

    def kill_active_runs(self) -> None:
        self.asked.append("kill")


async def test_what_is_typed_during_the_import_is_handed_on() -> None:
    """The first frame stands while modules are imported; keys and F9 pressed at it reach the
    home that takes its place."""
    imported = threading.Event()
    home: list[Below] = []

    def load() -> Imported:
        imported.wait(PATIENCE)

        def pages() -> list[Page]:
            home.append(Below())
            return [home[0]]

        return pages

    async def replace(pages: Sequence[Page]) -> Page:
        return await app.replace_pages(pages)

    app = TfmuxApp(pages=[Opening(load, replace)], config=Config())
    async with app.run_test(size=(80, 24)) as pilot:
        await shows(pilot, "looking for clusters")
        await pilot.press("j", "f9")
        imported.set()
        await shows(pilot, "the home")
        await until(pilot, lambda: home[0].asked == ["kill", "down"])
        await pilot.press("j")
        await until(pilot, lambda: home[0].asked == ["kill", "down", "down"])


def test_the_first_frame_imports_nothing_heavy() -> None:
    """Neither the run loop nor what it stands on, nor plots, nor the screens."""
    heavy = (
        "asyncssh", "pydantic", "pathspec", "tomlkit", "tomllib", "hashlib",
        "launcher.run.snapshot", "launcher.process.run_shell", "launcher.cluster.file_model",
        "tui.screens.run_screen", "tui.screens.editor.screen",
    )  # fmt: skip
    code = "import sys, tui.main, tui.app, tui.crash, tui.screens.opening, tui.commands.open\n"
    code += f"print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_launcher_whose_tasks_all_run_here_imports_no_ssh() -> None:
    """What SSH needs takes as long to import as half of the launcher."""
    code = "import sys, launcher.process.entry\n"
    code += "print([name for name in ('asyncssh', 'cryptography') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_help_imports_little() -> None:
    """`tfmux --help` takes three times as long as `python -c pass`, no more."""
    slow = ("typing", "pathlib", "shutil", "dataclasses", "unicodedata")
    code = (
        "import sys, tui.main\ntry:\n    tui.main.main(['--help'])\nexcept SystemExit:\n    pass\n"
    )
    code += f"print([name for name in {slow} if name in sys.modules])"
    command = [
        sys.executable,
        "-I",
        "-S",
        "-c",
        f"import sys; sys.path.append({str(REPOSITORY)!r})\n{code}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "usage: tfmux" in done.stdout and done.stdout.splitlines()[-1] == "[]"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A tmux server, in one of whose windows the test seems to run."""
    tmux = ["tmux", "-S", str(tmp_path / "tmux"), "-f", "/dev/null"]
    subprocess.run([*tmux, "new-session", "-d", "sleep 1000"], check=True)
    monkeypatch.setenv("TMUX", f"{tmp_path / 'tmux'},{os.getpid()},0")
    yield tmux
    subprocess.run([*tmux, "kill-server"], check=True)


async def test_lines_go_to_the_buffer_of_tmux(run: ScriptedRun, server: list[str]) -> None:
    """Given a screen inside tmux, when a person copies lines, then tmux has them, and the message
    says so."""
    run.write("worker:0", b"one\ntwo\n")
    async with showing(run, (120, 40)) as (app, pilot):
        await shows(pilot, "two")
        await pilot.press("2", "v", "k", "y")
        told = "2 lines copied to tmux's buffer"
        await until(pilot, lambda: any(told in note.message for note in app._notifications))
    shown = subprocess.run([*server, "show-buffer"], capture_output=True, check=True)
    assert shown.stdout == b"one\ntwo\n"


async def test_a_tmux_that_is_gone_is_no_error(
    run: ScriptedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a variable of a tmux server that has ended, then the terminal gets the text."""
    assert shutil.which("tmux")
    monkeypatch.setenv("TMUX", f"{tmp_path / 'none'},1,0")
    run.write("worker:0", b"one\ntwo\n")
    async with showing(run, (120, 40)) as (app, pilot):
        await shows(pilot, "two")
        await pilot.press("2", "v", "k", "y")
        await until(pilot, lambda: app.clipboard == "one\ntwo\n")
        told = "2 lines sent to the terminal's clipboard"
        await until(pilot, lambda: any(told in note.message for note in app._notifications))
