"""Terminals of sixteen colours: yellow is told from red."""

from __future__ import annotations

import pytest
from rich.color import Color, ColorSystem

from tests.support.fakes import ScriptedRun
from tests.support.screens import screen_text, showing, until
from tui.app import TfmuxApp
from tui.config import Config
from tui.format import StatusColor
from tui.widgets.colours import status_colours, theme_colour


@pytest.fixture(autouse=True)
def sixteen_colours(many_colours: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal that says no more of itself than that it is one."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("COLORTERM")


def shown(colour: str) -> int | None:
    """The one of the sixteen that the terminal gets."""
    return Color.parse(colour).downgrade(ColorSystem.STANDARD).number


@pytest.mark.parametrize("theme", ["textual-dark", "textual-light"])
async def test_statuses_are_told_apart(theme: str) -> None:
    """What is busy is not in the red of what has failed."""
    app = TfmuxApp(config=Config(theme=theme))
    async with app.run_test():
        status = {name: shown(colour) for name, colour in status_colours(app).items()}
        accent = shown(theme_colour(app, "accent-text"))
    apart = (StatusColor.BUSY, StatusColor.GOOD, StatusColor.BAD, StatusColor.OFF)
    assert len({*(status[name] for name in apart), accent}) == 5, status
    assert status[StatusColor.BAD] in (1, 9) and status[StatusColor.GOOD] in (2, 10)


async def test_yellow_lines_of_a_log_stay_yellow(run: ScriptedRun) -> None:
    """They are warnings, and red ones are errors."""
    run.write("ps:0", b"\x1b[33myellow-line\x1b[0m\n")
    async with showing(run, (120, 40)) as (app, pilot):
        await until(pilot, lambda: any("yellow-line" in row for row in screen_text(app)))
        strips = app.screen._compositor.render_strips()
        drawn = [strip.render(app.console) for strip in strips if "yellow-line" in strip.text]
    assert any("\x1b[33;40myellow-line" in row for row in drawn), drawn
