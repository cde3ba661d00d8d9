"""Terminals of sixteen colours: yellow is told from red."""

from __future__ import annotations

import pytest
from rich.style import Style

from tests.support.fakes import ScriptedRun
from tests.support.screens import screen_text, showing, until
from tui.app import TfmuxApp
from tui.config import Config
from tui.format import StatusColor
from tui.widgets.colours import (
    TEXT_CONTRAST,
    readable_style,
    status_colours,
    theme_colour,
)


@pytest.fixture(autouse=True)
def sixteen_colours(many_colours: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal that says no more of itself than that it is one."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("COLORTERM")


def shown(style: str, behind: str) -> int | None:
    """The one of the sixteen colours that the terminal gets for a text."""
    style_here = Style.parse(f"{style} on {behind}")
    color = readable_style(style_here, TEXT_CONTRAST, sixteen=True).color
    return None if color is None else color.number


@pytest.mark.parametrize(
    ("theme", "good", "bad"),
    [("textual-dark", (2, 10), (1, 9)), ("textual-light", (0,), (1, 9))],
    ids=["dark", "light"],
)
async def test_statuses_are_told_apart(
    theme: str, good: tuple[int, ...], bad: tuple[int, ...]
) -> None:
    """What is busy is not in the red of what has failed, and what is good is in neither. On white
    no green is readable: what is good is black there."""
    app = TfmuxApp(config=Config(theme=theme))
    async with app.run_test():
        behind = theme_colour(app, "background")
        status = {name: shown(style, behind) for name, style in status_colours(app).items()}
        accent = shown(theme_colour(app, "accent-text"), behind)
    apart = (StatusColor.BUSY, StatusColor.GOOD, StatusColor.BAD)
    assert len({*(status[name] for name in apart), accent}) == 4, status
    assert status[StatusColor.BAD] in bad and status[StatusColor.GOOD] in good


async def test_yellow_lines_of_a_log_stay_yellow(run: ScriptedRun) -> None:
    """Yellow lines are warnings, and red ones are errors; the yellow that is readable is taken."""
    run.write("ps:0", b"\x1b[33myellow-line\x1b[0m\n")
    async with showing(run, (120, 40)) as (app, pilot):
        await until(pilot, lambda: any("yellow-line" in row for row in screen_text(app)))
        strips = app.screen._compositor.render_strips()
        drawn = [strip.render(app.console) for strip in strips if "yellow-line" in strip.text]
    assert any("\x1b[93;40myellow-line" in row for row in drawn), drawn
