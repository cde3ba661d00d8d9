"""The app with its editor open, and what stands there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from textual.pilot import Pilot

from launcher.cluster import library
from launcher.cluster.templates import PS_WORKERS, render
from tests.support.screens import screen_text, shows, until
from tui.app import TfmuxApp
from tui.run_clients import RunClients
from tui.screens.editor.cluster_table import ClusterTable
from tui.screens.editor.form import Form
from tui.screens.editor.screen import EditorScreen
from tui.screens.home import HomeScreen

HOSTS = {"tf1": "root@tf1", "tf2": "root@tf2", "tf3": "root@tf3"}


@asynccontextmanager
async def editor(
    path: Path | None = None, size: tuple[int, int] = (100, 30)
) -> AsyncIterator[Pilot[int]]:
    """The app with the editor open on a saved cluster of three hosts, or on another file."""
    clients = RunClients()
    if path is None:
        path = library.create("mission", render(PS_WORKERS, "mission", HOSTS, Path("/srv")))
    home = HomeScreen(clients)
    app = TfmuxApp(pages=[home, home.editor(path)])
    try:
        async with app.run_test(size=size, notifications=True) as pilot:
            await until(pilot, lambda: isinstance(app.screen, EditorScreen))
            await shows(pilot, path.name)
            yield pilot
    finally:
        clients.close()


async def open_instead(pilot: Pilot[int], path: Path) -> None:
    """Opens another file in place of the one that is open, whose text is left as it is."""
    home = next(s for s in pilot.app.screen_stack if isinstance(s, HomeScreen))
    await pilot.app.switch_screen(home.editor(path))
    await until(pilot, lambda: screen_of(pilot).draft.path == path)
    await shows(pilot, path.stem[:5])


def screen_of(pilot: Pilot[int]) -> EditorScreen:
    """The editor."""
    screen = next(s for s in pilot.app.screen_stack if isinstance(s, EditorScreen))
    assert isinstance(screen, EditorScreen)
    return screen


def text_of(pilot: Pilot[int]) -> str:
    """The file as it stands in the editor."""
    return screen_of(pilot).text


def said(pilot: Pilot[int]) -> str:
    """What is wrong with the file, in one line: on a screen it may have several."""
    return " ".join(map(str, screen_of(pilot).now.problems))


def table_of(pilot: Pilot[int]) -> ClusterTable:
    """Hosts × jobs."""
    return screen_of(pilot).query_one(ClusterTable)


def gone(pilot: Pilot[int], text: str) -> bool:
    """A text is not on the screen."""
    return not any(text in row for row in screen_text(pilot.app))


def row_of(pilot: Pilot[int], text: str) -> str:
    """The first row with a text."""
    return next(row for row in screen_text(pilot.app) if text in row)


async def form(pilot: Pilot[int], title: str) -> None:
    """Waits until a form is open."""
    await until(pilot, lambda: isinstance(pilot.app.screen, Form))
    await shows(pilot, title)
