"""The command palette, and keys of the config file."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from textual import events
from textual.command import CommandList, CommandPalette, Hits

from tests.support import patience
from tests.support.fakes import ScriptedRun
from tests.support.screens import showing, shows, until
from tui.app import TfmuxApp
from tui.config import load_config
from tui.palette import Palette
from tui.screens.hosts_screen import HostsScreen
from tui.screens.run_screen import RunScreen
from tui.widgets.pane import Pane


async def test_enter_waits_for_the_commands_that_are_looked_for(
    run: ScriptedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a slow machine Enter came before the list was there, and was lost."""
    searched, found, search = [], asyncio.Event(), Palette.search

    async def slow(self: Palette, query: str) -> Hits:
        searched.append(query)
        await found.wait()
        async for hit in search(self, query):
            yield hit

    monkeypatch.setattr(Palette, "search", slow)
    async with showing(run, (120, 40)) as (app, pilot):
        await pilot.press("ctrl+p")
        await until(pilot, lambda: isinstance(app.screen, CommandPalette))
        for key in (*"hosts", "enter"):  # `press` would wait for what holds the palette
            app.post_message(events.Key(key, key if len(key) == 1 else None))
        try:  # Enter holds the palette now, and to ask it whether it is idle would wait for it
            await patience.until(lambda: "hosts" in searched, "the search for all letters")
        finally:
            found.set()
        await until(pilot, lambda: isinstance(app.screen, HostsScreen))
    assert run.asked == []


async def test_the_palette_closes_while_commands_are_looked_for(
    run: ScriptedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A letter typed while the palette closed looked for commands that had no list any more, and
    the app ended with NoMatches."""
    searched, closed, search = [], asyncio.Event(), Palette.search

    async def slow(self: Palette, query: str = "") -> Hits:
        searched.append(query)
        await closed.wait()
        async for hit in search(self, query):
            yield hit

    async def shutdown(self: Palette) -> None:
        closed.set()
        await asyncio.sleep(0.05)

    monkeypatch.setattr(Palette, "search", slow)
    monkeypatch.setattr(Palette, "discover", slow)
    monkeypatch.setattr(Palette, "shutdown", shutdown)
    async with showing(run, (120, 40)) as (app, pilot):
        await pilot.press("ctrl+p")
        await until(pilot, lambda: isinstance(app.screen, CommandPalette))
        app.post_message(events.Key("u", "u"))
        await until(pilot, lambda: "u" in searched)
        app.screen.dismiss()
        await until(pilot, lambda: closed.is_set() and isinstance(app.screen, RunScreen))
        await pilot.press("H")
        await until(pilot, lambda: isinstance(app.screen, HostsScreen))


async def test_the_palette_misses_no_key(run: ScriptedRun) -> None:
    """Letters right behind the key that opens it were lost, and Enter took a command that the
    rest stood for."""
    async with showing(run, (120, 40)) as (app, pilot):
        await until(pilot, lambda: isinstance(app.focused, Pane))
        for key in ("ctrl+p", *"hosts", "enter"):
            app.post_message(events.Key(key, key if len(key) == 1 else None))
        await until(pilot, lambda: isinstance(app.screen, HostsScreen))
    assert run.asked == []


async def test_keys_of_ones_own(run: ScriptedRun, tmp_path: Path) -> None:
    """The config file rebinds keys and sets the theme; what is wrong in it is said."""
    path = tmp_path / "config.toml"
    path.write_text('theme = "nord"\n[keys]\nkill_all = "f12"\n"no.such" = "x"\n')
    app = TfmuxApp(run, config=load_config(path))
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await shows(pilot, "keys.no.such: there is no such command")
        assert app.theme == "nord"
        await pilot.press("f9")
        assert run.asked == []
        await pilot.press("f12")
        assert run.asked == ["kill_all"]


async def test_the_palette_goes_to_a_task(run: ScriptedRun) -> None:
    """By its name, with a sentence beside each command instead of its id."""
    async with showing(run, (120, 40)) as (app, pilot):
        await pilot.press("ctrl+p", *"go to worker:2")
        await shows(pilot, "pending on tf4")
        await pilot.press("enter")
        screen = app.screen_stack[0]
        assert isinstance(screen, RunScreen)
        await until(pilot, lambda: str(screen.area.pane_layout.focused) == "worker:2")
        await pilot.press("ctrl+p", *"zoom")
        await shows(pilot, "The focused pane alone, and back")


async def test_no_line_of_the_palette_says_only_where_a_key_belongs(run: ScriptedRun) -> None:
    """Eight keys that scroll stood before search, filter and layout, each above the word "Log"; now
    they are the last, without a word, and are still found by their names."""
    async with showing(run, (120, 40)) as (app, pilot):
        await until(pilot, lambda: isinstance(app.focused, Pane))
        await pilot.press("ctrl+p")
        await shows(pilot, "All keys of this screen")
        offered = app.screen.query_one(CommandList)
        await until(
            pilot, lambda: any("Line down  (j)" in str(each.prompt) for each in offered.options)
        )
        texts = [str(option.prompt) for option in offered.options]
        names, lines = zip(*(text.partition("\n")[::2] for text in texts), strict=True)
        assert not {"Log", "Panes", "Task"}.intersection(lines)
        at = [names.index(name) for name in ("Merged log  (m)", "Search the whole log  (/)")]
        assert max(at) < names.index("Line down  (j)") < len(names)
        await pilot.press(*"half a page d")
        await shows(pilot, "Half a page down  (Ctrl-D)")
