"""Every theme of the list: each screen is drawn, and every colour is one that can be drawn."""

from __future__ import annotations

import pytest
from rich.style import Style

from launcher.run.states import TaskState
from tests.support.budgets import soak
from tests.support.fakes import ScriptedRun
from tests.support.screens import screen_text, shows, until
from tui.app import TfmuxApp
from tui.config import Config
from tui.format import StatusColor
from tui.widgets.colours import status_colours, theme_colour

SHOWN = {"textual-dark", "textual-light", "ansi-dark"}
THEMES = sorted(TfmuxApp(config=Config()).available_themes)


async def test_every_colour_of_every_theme_can_be_drawn() -> None:
    """The themes that use the terminal's own colours (`ansi_blue`, `ansi_blue 50%`) too."""
    app = TfmuxApp(config=Config())
    async with app.run_test():
        for theme in THEMES:
            app.theme = theme
            for name in app.theme_variables:
                Style.parse(f"bold {theme_colour(app, name)}")
            assert set(status_colours(app)) == set(StatusColor), theme
            assert all(status_colours(app).values()), theme
            assert theme_colour(app, "primary-muted"), theme


@pytest.mark.parametrize("theme", [name if name in SHOWN else soak(name) for name in THEMES])
async def test_every_screen_is_drawn_in_every_theme(run: ScriptedRun, theme: str) -> None:
    """The screens of a run; in a soak in all themes, otherwise in a dark, a light and a
    terminal's own."""
    run.all_tasks(state=TaskState.RUNNING)
    run.write("worker:0", b"\x1b[31mred\x1b[0m \x1b[2mdim\x1b[0m line\n" * 40)
    app = TfmuxApp(run, config=Config(theme=theme))
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: any("red dim line" in row for row in screen_text(app)))
        assert app.theme == theme
        for keys, title in (
            (("m",), "all logs"),
            (("M",), "Loss, smoothing"),
            (("escape", "H"), "Tasks on tf1"),
            (("escape", "question_mark"), "Letters of the status strip"),
            (("escape", "q"), "Stay"),
        ):
            await pilot.press(*keys)
            await shows(pilot, title)
