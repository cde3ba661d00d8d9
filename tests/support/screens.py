"""Fixtures of the app's tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from textual import _wait
from textual.app import App
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet
from textual.css.types import CSSLocation
from textual.pilot import Pilot

from tests.support.fakes import ScriptedRun
from tui.app import TfmuxApp
from tui.config import Config
from tui.screens.run_screen import RunScreen
from tui.widgets.pane import Pane


@pytest.fixture
def run(tmp_path: Path) -> Iterator[ScriptedRun]:
    """1 ps and 3 workers on four hosts."""
    scripted = ScriptedRun(tmp_path, workers=3, hosts=4)
    yield scripted
    scripted.logs.close()


@pytest.fixture(autouse=True)
def messages_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages at the edge of the screen do not leave before a busy machine has seen them."""
    notify = App.notify

    def longer(app: App[Any], message: str, **options: Any) -> None:
        notify(app, message, **{**options, "timeout": 600})

    monkeypatch.setattr(App, "notify", longer)


@pytest.fixture(autouse=True)
def many_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Colours do not depend on the terminal in which the tests run."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLORTERM", "truecolor")


@pytest.fixture(autouse=True)
def short_waits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """An app is looked at for 5 ms, instead of 20, to see whether it is idle: after each key.

    Pictures are compared of apps that have come to rest, also where that takes longer.
    """
    if request.path.name == "test_snapshots.py":
        return
    granularity = 1 / 200
    monkeypatch.setattr(_wait, "SLEEP_GRANULARITY", granularity)
    monkeypatch.setattr(_wait, "SLEEP_IDLE", granularity / 20)
    monkeypatch.setattr(_wait.wait_for_idle, "__defaults__", (granularity, 1))


_PARSE = Stylesheet._parse_rules
_PARSED: dict[tuple[object, ...], list[RuleSet]] = {}


@pytest.fixture(autouse=True)
def rules_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first app parses the rules of its widgets; for the same colours they are the same in the
    next, whose start is a quarter cheaper."""

    def parse(
        sheet: Stylesheet, css: str, read_from: CSSLocation, *others: Any, **more: Any
    ) -> Any:
        colours = tuple(sheet._variables.items())
        key = (css, read_from, others, tuple(more.items()), colours)
        if key not in _PARSED:
            _PARSED[key] = _PARSE(sheet, css, read_from, *others, **more)
        return _PARSED[key]

    monkeypatch.setattr(Stylesheet, "_parse_rules", parse)


@asynccontextmanager
async def showing(
    run: ScriptedRun, size: tuple[int, int]
) -> AsyncIterator[tuple[TfmuxApp, Pilot[int]]]:
    """The app with a run on its screen, in a terminal of this size, and who presses keys."""
    app = TfmuxApp(run, config=Config())
    async with app.run_test(size=size) as pilot:
        yield app, pilot


def screen_text(app: App[Any]) -> list[str]:
    """The rows of the screen as a person reads them."""
    width, height = app.size
    return [strip.text for strip in app.screen._compositor.render_strips()][:height] or [
        " " * width
    ]


async def until(pilot: Pilot[int], condition: Callable[[], bool], seconds: float = 60) -> None:
    """Waits for the screen to come to a state, and stay there when it has done what it was told;
    fails with what it shows instead. To ask each widget whether it is idle costs more than a look.
    A test that holds a widget's messages would wait for itself here: `patience.until` asks none.
    """
    if condition():
        return
    for _ in range(int(seconds / 0.02)):
        await asyncio.sleep(0.02)
        if condition():
            await pilot.pause(0)
            if condition():
                return
    raise AssertionError("never came:\n" + "\n".join(screen_text(pilot.app)))


async def shows(pilot: Pilot[int], text: str) -> None:
    """Waits until a text stands on the screen."""
    app = pilot.app
    await until(pilot, lambda: any(text in row for row in screen_text(app)))


def focused_task(app: TfmuxApp) -> str:
    """The task whose pane has the focus."""
    pane = app.focused
    assert isinstance(pane, Pane) and pane.view
    return str(pane.view.task)


def run_screen(app: TfmuxApp) -> RunScreen:
    """The run's screen, below whatever is over it."""
    screen = app.screen_stack[0]
    assert isinstance(screen, RunScreen)
    return screen


def visible(app: App[Any], text: str) -> bool:
    """Whether a row of the screen has this text."""
    return any(text in row for row in screen_text(app))
