"""From the end of a run to the next one: keys of its screens."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual.pilot import Pilot

from launcher.errors import TfmuxError
from launcher.run.states import RunPhase, TaskState
from launcher.session.control import RunControl
from tests.support.fakes import ScriptedRun
from tests.support.screens import shows, until, visible
from tui.app import TfmuxApp
from tui.config import Config
from tui.screens.dialogs import ReceiptScreen
from tui.screens.hosts_screen import HostsScreen
from tui.screens.run_screen import RunScreen


@pytest.fixture
def other(tmp_path: Path) -> ScriptedRun:
    """The run that is launched next."""
    (tmp_path / "other").mkdir()
    return ScriptedRun(tmp_path / "other", workers=1)


@asynccontextmanager
async def showing(
    run: ScriptedRun, launch: Callable[[str], RunControl], size: tuple[int, int] = (80, 24)
) -> AsyncIterator[tuple[TfmuxApp, Pilot[int]]]:
    """The screen of `tfmux up`, from which `launch` launches again."""
    app = TfmuxApp(run, config=Config(), launch_again=launch)
    async with app.run_test(size=size, notifications=True) as pilot:
        yield app, pilot


@pytest.mark.parametrize("keys", [[], ["H"], ["f9"], ["M", "H"]], ids=str)
async def test_a_key_launches_the_ended_run_again(
    keys: list[str], run: ScriptedRun, other: ScriptedRun
) -> None:
    """From its logs, from another page of it and from its receipt; what is shown then is the new
    run, and the keys are about that."""
    asked: list[str] = []

    def launch(run_id: str) -> RunControl:
        asked.append(run_id)
        return other

    async with showing(run, launch) as (app, pilot):
        run.end(exit_code=1)
        await shows(pilot, "l launch again")
        await pilot.press(*keys)
        if "H" in keys:
            await until(pilot, lambda: isinstance(app.screen, HostsScreen))
        if "f9" in keys:
            await until(pilot, lambda: isinstance(app.screen, ReceiptScreen))
            await shows(pilot, "l launch again")
        other.change(state=RunPhase.RUNNING)
        other.all_tasks(state=TaskState.RUNNING)
        await pilot.press("l")
        await until(pilot, lambda: app.control is other)
        assert asked == [run.snapshot().run_id]
        assert isinstance(app.screen, RunScreen) and app.screen.control is other
        assert [type(screen) for screen in app.screen_stack] == [RunScreen]
        await until(pilot, lambda: not visible(app, "launch again"))
        await pilot.press("f9")
        await until(pilot, lambda: bool(other.asked))
        assert not run.asked


@pytest.mark.parametrize(("key", "asked"), [("r", "again"), ("e", "edit_file")])
async def test_the_keys_of_the_summary_lead_on(
    run: ScriptedRun, monkeypatch: pytest.MonkeyPatch, key: str, asked: str
) -> None:
    """Given the summary of a failure, when its keys are pressed, then the run is launched again, or
    its file is opened; with the summary hidden, `e` goes to errors again."""
    done: list[str] = []
    for name in ("again", "edit_file"):
        monkeypatch.setattr(TfmuxApp, f"action_{name}", lambda app, name=name: done.append(name))
    run.all_tasks(state=TaskState.RUNNING, attempt=1)
    run.change(state=RunPhase.RUNNING)
    async with showing(run, _none) as (_, pilot):
        run.end(exit_code=1)
        await shows(pilot, "r again  e edit  y copy report  Esc hide")
        await pilot.press(key)
        await until(pilot, lambda: done == [asked])
        await pilot.press("escape", "e")
        await shows(pilot, "no line of any task looks like an")
        assert done == [asked]


def _none(run_id: str) -> RunControl:
    raise AssertionError(run_id)


async def test_an_active_run_is_not_launched_again(run: ScriptedRun) -> None:
    """The key says what comes first."""

    def launch(run_id: str) -> RunControl:
        raise AssertionError(run_id)

    async with showing(run, launch, (120, 40)) as (app, pilot):
        run.change(state=RunPhase.RUNNING)
        await pilot.press("l")
        await shows(pilot, "the run is active: F9 ends it")
        assert app.control is run


async def test_why_it_is_not_launched(run: ScriptedRun) -> None:
    """The sentence of the launch; the ended run stays on the screen."""

    def launch(run_id: str) -> RunControl:
        raise TfmuxError("cluster.toml:3: run.workdir: there is no such directory")

    async with showing(run, launch, (120, 40)) as (app, pilot):
        run.end()
        await shows(pilot, "l launch again")
        await pilot.press("l")
        await shows(pilot, "there is no such directory")
        assert app.control is run and isinstance(app.screen, RunScreen)
