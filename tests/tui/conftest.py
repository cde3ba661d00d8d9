"""Fixtures of the app's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from textual.app import App
from textual.pilot import Pilot

from tests.tui.fakes import ScriptedRun
from tui.app import TfmuxApp


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


def screen_text(app: App[Any]) -> list[str]:
    """The rows of the screen as a person reads them."""
    width, height = app.size
    return [strip.text for strip in app.screen._compositor.render_strips()][:height] or [
        " " * width
    ]


async def until(pilot: Pilot[int], condition: Callable[[], bool], seconds: float = 60) -> None:
    """Waits for the screen to come to a state; fails with what it shows instead."""
    for _ in range(int(seconds / 0.02)):
        if condition():
            return
        await pilot.pause(0.02)
    assert isinstance(pilot.app, TfmuxApp)
    raise AssertionError("never came:\n" + "\n".join(screen_text(pilot.app)))


async def shows(pilot: Pilot[int], text: str) -> None:
    """Waits until a text stands on the screen."""
    app = pilot.app
    assert isinstance(app, TfmuxApp)
    await until(pilot, lambda: any(text in row for row in screen_text(app)))
