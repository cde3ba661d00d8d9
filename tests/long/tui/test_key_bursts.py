"""Keys that come in one burst, as from a paste, a script or a slow connection: each goes where the
key before it has led."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pytest
from textual import events

from launcher.cluster import library
from launcher.cluster.read import load
from launcher.cluster.templates import ONE_MACHINE, render
from launcher.run.snapshot import Snapshot
from launcher.run.states import TaskState
from tests.support import patience
from tests.support.fakes import ScriptedRun
from tests.support.screens import showing, shows, until
from tui.app import TfmuxApp
from tui.config import Config
from tui.run_clients import RunClients
from tui.screens.dialogs import Confirm
from tui.screens.home import HomeScreen
from tui.screens.hosts_screen import HostsScreen
from tui.screens.run_screen import RunScreen
from tui.widgets.pane import Pane


def burst(app: TfmuxApp, keys: Iterable[str]) -> None:
    """Keys that are all there before the app has a turn."""
    for key in keys:
        app.post_message(events.Key(key, key if len(key) == 1 else None))


@pytest.mark.parametrize("to_the_hosts", ["tab", "enter"])
async def test_from_a_template_to_a_cluster(to_the_hosts: str) -> None:
    """Template, name, Tab or Enter, hosts, Enter; a paste waits for its turn, too."""
    clients = RunClients()
    app = TfmuxApp(pages=[HomeScreen(clients)], config=Config())
    async with app.run_test(size=(120, 40)) as pilot:
        await shows(pilot, "demos")
        erase = ["backspace"] * len("ps-workers")
        burst(app, ["a", "2", *erase, *"mission", to_the_hosts])
        app.post_message(events.Paste("tf[1-4]"))
        burst(app, ["enter"])
        await shows(pilot, "hosts × jobs")
    clients.close()
    assert list(load(library.path_of("mission")).hosts) == ["tf1", "tf2", "tf3", "tf4"]


async def test_a_form_a_text_and_the_key_that_saves(tmp_path: Path) -> None:
    """Ctrl-S has priority over the text's own keys, but does not overtake what was typed."""
    path = library.create("mine", render(ONE_MACHINE, "mine", {}, tmp_path))
    clients = RunClients()
    home = HomeScreen(clients)
    app = TfmuxApp(pages=[home], config=Config())
    async with app.run_test(size=(120, 40)) as pilot:
        app.push_screen(home.editor(path))
        await shows(pilot, "hosts × jobs")
        burst(app, ["f4", "1", *" --seed=7", "enter", "tab", "#", "4", "enter", "ctrl+s"])
        await until(pilot, lambda: '"--seed=7"' in path.read_text())
        assert "#4\n" in path.read_text()
    clients.close()


async def test_the_answer_right_behind_a_command_that_asks(
    run: ScriptedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer waits for the dialog; that one waits for nothing, whatever else the app does."""
    app, release, snapshot = TfmuxApp(run, config=Config()), asyncio.Event(), run.snapshot
    run.all_tasks(state=TaskState.RUNNING)

    def busy() -> Snapshot:
        app.call_next(release.wait)
        return snapshot()

    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: isinstance(app.focused, Pane))
        assert isinstance(app.screen, RunScreen)
        monkeypatch.setattr(run, "snapshot", busy)
        burst(app, "xyrn")
        asyncio.get_running_loop().call_later(1, release.set)
        await until(pilot, lambda: bool(run.asked))
        await until(pilot, lambda: not isinstance(app.screen, Confirm))
        burst(app, "H")
        await until(pilot, lambda: isinstance(app.screen, HostsScreen))
    assert run.asked == ["signal worker:0 TERM"]


async def test_a_search_and_what_follows_it(run: ScriptedRun) -> None:
    """The prompt has the letters, and the screen what comes behind Enter."""
    async with showing(run, (120, 40)) as (app, pilot):
        await until(pilot, lambda: isinstance(app.focused, Pane))
        burst(app, ["slash", *"xH", "enter", "H"])
        await until(pilot, lambda: isinstance(app.screen, HostsScreen))
    assert run.asked == []


async def test_the_kill_key_waits_for_no_other(run: ScriptedRun) -> None:
    """The kill key is handled before keys that wait for the one before them."""
    held = asyncio.Event()
    async with showing(run, (120, 40)) as (app, pilot):
        await until(pilot, lambda: isinstance(app.focused, Pane))
        assert app.focused is not None
        app.focused.call_later(held.wait)  # the focused widget is busy
        burst(app, ["j", "k", "f9"])
        try:
            await patience.until(lambda: run.asked, "the kill")
        finally:
            held.set()
    assert run.asked == ["kill_all"]


async def test_a_key_that_is_held_down_leaves_nothing_to_be_done(run: ScriptedRun) -> None:
    """What has come while the screen was busy is handled in one turn, and another key after it."""
    for number in range(2000):
        run.write("worker:0", b"line %d\n" % number)
    turns = 0
    async with showing(run, (120, 40)) as (app, pilot):
        await shows(pilot, "line 1999")
        burst(app, [*["k"] * 1000, "H"])
        while not isinstance(app.screen, HostsScreen):
            await asyncio.sleep(0)
            turns += 1
        assert turns < 1000
        await pilot.press("escape")
        await shows(pilot, "line 999")


async def test_each_step_of_a_search_counts(run: ScriptedRun) -> None:
    """Steps that are asked for before the first hit is found, and several within one frame."""
    run.write(
        "worker:0", b"".join(b"needle %d\n" % i if i % 100 == 5 else b"hay\n" for i in range(1000))
    )
    async with showing(run, (120, 40)) as (app, pilot):
        await shows(pilot, "hay")
        burst(app, ["slash", *"needle", "enter", "N", "N"])
        await shows(pilot, "/needle 8 of 10")
        burst(app, ["n", "n", "n", "n"])
        await shows(pilot, "/needle 2 of 10")
        burst(app, ["N", "n", "n", "N", "n"])
        await shows(pilot, "/needle 3 of 10")
        await shows(pilot, "needle 205")


async def test_each_step_from_error_to_error_counts(run: ScriptedRun) -> None:
    """Steps that are asked for before all logs have been searched, and several within one frame."""
    for number in range(5):
        run.write("worker:0", b"fine\nValueError: bad %d\n" % number)
    async with showing(run, (120, 40)) as (app, pilot):
        await shows(pilot, "fine")
        burst(app, ["e", "e", "e"])
        await until(pilot, lambda: "error 3 of 5" in messages(app))
        burst(app, ["E", "E", "e", "e", "e"])
        await until(pilot, lambda: "error 4 of 5" in messages(app))


def messages(app: TfmuxApp) -> list[str]:
    """What notifications say."""
    return [note.message for note in app._notifications]
