"""A task's page: its address in the title, opened with a key."""

from __future__ import annotations

import pytest

from launcher.run.states import TaskState
from tests.support.fakes import ScriptedRun
from tests.support.screens import showing, shows, until
from tui.app import TfmuxApp
from tui.widgets.pane import Pane

URL = "http://127.0.0.1:6006/"


async def test_o_opens_the_page_in_a_browser(
    run: ScriptedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is a graphic screen; from any pane where there is only one page; a task
    without a page says so where there are several, and opens nothing."""
    monkeypatch.setenv("DISPLAY", ":0")
    opened: list[str] = []
    app = TfmuxApp(run)
    monkeypatch.setattr(app, "open_url", opened.append)
    async with app.run_test(size=(200, 50)) as pilot:
        run.all_tasks(state=TaskState.READY)
        run.task("worker:0", url=URL)
        await shows(pilot, URL)
        await until(pilot, lambda: isinstance(app.focused, Pane))
        await pilot.press("1", "o")
        await until(pilot, lambda: opened == [URL])
        run.task("worker:1", url=f"{URL}other")
        await shows(pilot, f"{URL}other")
        await pilot.press("o")
        await until(pilot, lambda: "nothing to open: ps:0" in str([*app._notifications]))
        await pilot.press("tab", "o")
        await until(pilot, lambda: opened == [URL, URL])


async def test_without_a_browser_the_address_is_copied(
    run: ScriptedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over SSH a browser would be a text browser, across this screen: the clipboard gets it."""
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    async with showing(run, (200, 50)) as (app, pilot):
        run.task("ps:0", state=TaskState.READY, url=URL)
        await shows(pilot, URL)
        await until(pilot, lambda: isinstance(app.focused, Pane))
        await pilot.press("o")
        await until(pilot, lambda: app.clipboard == URL)
