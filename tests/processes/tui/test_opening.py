"""Keys and pictures before the home screen is there."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from tests.support.paths import REPOSITORY
from tests.support.patience import PATIENCE
from tests.support.screens import shows, until
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
        "launcher.run.snapshot", "launcher.session.run_shell", "launcher.cluster.file_model",
        "tui.screens.run_screen", "tui.screens.editor.screen",
    )  # fmt: skip
    code = "import sys, tui.main, tui.app, tui.crash, tui.screens.opening, tui.commands.open\n"
    code += f"print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_launcher_whose_tasks_all_run_here_imports_no_ssh() -> None:
    """What SSH needs takes as long to import as half of the launcher."""
    code = "import sys, launcher.session.process\n"
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
