"""Demos on the home screen."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from launcher.store.runs import RunFolder
from tests.support.homes import home
from tests.support.patience import PATIENCE
from tests.support.screens import shows
from tui import demos, extras
from tui.catalog import Catalog
from tui.extras import Extra
from tui.screens.home import HomeScreen


def test_two_lookups_at_once_find_each_demo_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lookup that was cancelled goes on in its thread beside the next one."""
    real, both = demos.about, threading.Barrier(2, timeout=PATIENCE)

    def slowly(file: Path) -> str:
        if not both.broken and both.n_waiting < 2 and file.stem == demos.names()[0]:
            both.wait()
        return real(file)

    monkeypatch.setattr(demos, "about", slowly)
    found = Catalog()
    threads = [threading.Thread(target=found.demos) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert [entry.name for entry in found.demos()] == list(demos.names())


async def test_a_demo_without_the_trainer_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The sentence of the command line; nothing is launched."""
    monkeypatch.setitem(extras.MODULES, Extra.TRAINER, ("tfmux_no_such_module",))
    async with home() as pilot:
        await pilot.press("end", "l")
        await shows(pilot, "pip install 'tfmux[trainer]'")
        assert isinstance(pilot.app.screen, HomeScreen) and not RunFolder.all()
