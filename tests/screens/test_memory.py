"""Choices on a screen hold on the next one."""

from __future__ import annotations

import json
from functools import partial

import pytest

from launcher.paths import state_home
from tests.support.fakes import ScriptedRun
from tests.support.patience import until as patiently
from tests.support.screens import screen_text, shows, until
from tui.app import TfmuxApp
from tui.config import Config


def stored(name: str) -> object:
    """A choice in the file; None while it is not there."""
    try:
        return json.loads((state_home() / "screens.json").read_text()).get(name)
    except FileNotFoundError:
        return None


def is_stored(name: str, value: object) -> bool:
    """Whether a choice is in the file."""
    return stored(name) == value


async def test_theme_layout_and_lines_are_kept(run: ScriptedRun) -> None:
    """Given a screen on which a person has chosen theme, layout, wrap and time stamps, when the
    next one opens, then it looks the same."""
    run.write("ps:0", b"a-line\n")
    app = TfmuxApp(run, config=Config())
    async with app.run_test(size=(120, 40)) as pilot:
        await shows(pilot, "a-line")
        app.theme = "nord"
        await pilot.press(*["space"] * 3, "t", "w")
        await shows(pilot, "all logs")
        for name, value in (("theme", "nord"), ("layout", "merged log"), ("wrap", False)):
            await patiently(partial(is_stored, name, value), name)
        await patiently(lambda: stored("stamps") == "time of day", "time stamps")
    app = TfmuxApp(run, config=Config())
    async with app.run_test(size=(120, 40)) as pilot:
        await shows(pilot, "all logs")
        assert app.theme == "nord"
        await until(pilot, lambda: any(":" in row.split("a-line")[0] for row in lines(app)))


def lines(app: TfmuxApp) -> list[str]:
    """Rows with the line of the log."""
    return [row for row in screen_text(app) if "a-line" in row]


async def test_a_theme_of_the_settings_comes_first(run: ScriptedRun) -> None:
    """Given a remembered theme and another one in config.toml, then that of config.toml is
    shown."""
    state_home().mkdir(parents=True)
    (state_home() / "screens.json").write_text('{"theme": "nord"}')
    app = TfmuxApp(run, config=Config(theme="textual-light"))
    async with app.run_test():
        assert app.theme == "textual-light"


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"theme": 3, "layout": "spiral", "wrap": "yes"}', "\udcff" * 9]
)
async def test_a_broken_memory_is_no_reason_to_stop(run: ScriptedRun, text: str) -> None:
    """Given a file that was cut, or that another version has written, then the screen opens as it
    does without."""
    run.write("ps:0", b"a-line\n")
    state_home().mkdir(parents=True)
    (state_home() / "screens.json").write_bytes(text.encode(errors="surrogateescape"))
    app = TfmuxApp(run, config=Config())
    async with app.run_test(size=(120, 40)) as pilot:
        await shows(pilot, "a-line")
        assert app.theme == "textual-dark"


async def test_a_theme_of_the_settings_is_no_choice(run: ScriptedRun) -> None:
    """Given a theme in config.toml, when a screen opens and closes, then nothing is remembered: a
    person has chosen nothing."""
    app = TfmuxApp(run, config=Config(theme="nord"))
    async with app.run_test() as pilot:
        await until(pilot, lambda: app.theme == "nord")
        await pilot.press("w")  # a choice, behind which the theme's would have been kept
        await patiently(partial(is_stored, "wrap", False), "wrap")
    assert stored("theme") == ""
