"""Every screen at any size of the terminal, also while it works: none fails."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.support.budgets import budget
from tests.support.every_screen import EVERY, happens, opened
from tests.support.screens import screen_text
from tui.app import TfmuxApp
from tui.small_terminal import LEAST

WIDEST, HIGHEST = 400, 120


def sizes(name: str, count: int) -> list[tuple[int, int]]:
    """Sizes by lot, the same for a name in each run: most of them small, where rooms end."""
    lot = random.Random(name)
    near = [(lot.randint(1, 2 * LEAST.width), lot.randint(1, 3 * LEAST.height)) for _ in range(3)]
    more = [
        (lot.randint(1, lot.choice((10, 40, WIDEST))), lot.randint(1, lot.choice((6, 20, HIGHEST))))
        for _ in range(count - 3)
    ]
    return [*near, *more]


@pytest.mark.parametrize("name", EVERY)
async def test_no_size_of_the_terminal_ends_the_app(name: str, tmp_path: Path) -> None:
    """Given a screen that is opened in a small terminal, when that gets other sizes while the run
    and messages go on, then the app goes on, too, and what is drawn has the terminal's size."""
    first, *others = sizes(name, budget(6, 60))
    async with opened(name, tmp_path, first) as (pilot, run):
        app = pilot.app
        assert isinstance(app, TfmuxApp)
        for number, size in enumerate(others):
            happens(run, number)
            if number % 4 == 0:
                app.notify("a message that needs more than one row of a small terminal")
            await pilot.resize_terminal(*size)
            assert app._exception is None, (name, size)
            assert app.is_too_small is (size[0] < LEAST.width or size[1] < LEAST.height)
            if app.is_too_small:
                assert len(app.line) <= size[0]
            else:
                assert tuple(app.size) == size == tuple(app.screen.size)


@pytest.mark.parametrize("size", [(1, 1), (5, 3), (15, 5), (16, 4), LEAST], ids=str)
async def test_a_terminal_without_room_shows_one_line(
    size: tuple[int, int], tmp_path: Path
) -> None:
    """Given a run in a terminal in which no screen has room, then there is one line with the state
    of the run; F9 kills all the same, and the screen is back in a larger terminal."""
    async with opened("grid", tmp_path, size) as (pilot, run):
        app = pilot.app
        assert isinstance(app, TfmuxApp)
        await pilot.pause()
        assert app.is_too_small is (size != LEAST)
        assert app.line == "running; F9 kills all; enlarge the terminal"[: size[0]]
        await pilot.press("f9")
        assert run.asked == ["kill_all"]
        await pilot.resize_terminal(80, 24)
        assert not app.is_too_small
        assert any("killing all" in row for row in screen_text(app))
