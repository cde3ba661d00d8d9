"""The dialog that kills active runs from the home screen."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from pathlib import Path

from launcher.hosts.auth_prompt import PromptHandler
from launcher.run.states import RunPhase
from launcher.session.control import RunControl
from launcher.session.run_list import ListedRun
from launcher.store.runs import RunFolder
from launcher.store.stream import Summary
from tests.support.fakes import ScriptedRun
from tests.support.homes import ended_run
from tests.support.patience import PATIENCE
from tests.support.screens import screen_text, shows, until
from tui.app import TfmuxApp
from tui.run_clients import RunClients
from tui.screens.home import HomeScreen
from tui.screens.kill_runs import KillRunsDialog
from tui.screens.prompt_dialogs import PromptDialogs


class SlowClients(RunClients):
    """Reaches runs only when `gate` is set."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.runs: dict[str, ScriptedRun] = {}
        self._folder = folder

    def kill(self, run_id: str, ask: PromptHandler) -> Future[RunControl]:
        """Waits for the gate; `odd` can never be reached."""
        return self._kills.submit(self._reach, run_id)

    def _reach(self, run_id: str) -> RunControl:
        assert self.gate.wait(PATIENCE)
        if run_id == "odd":
            raise OSError("its files cannot be read")
        self.runs[run_id] = run = ScriptedRun(self._folder)
        run.kill_all()
        return run


def entry(run_id: str, folder: Path) -> ListedRun:
    seen = Summary(run_id, "mine", RunPhase.RUNNING, 1000.0)
    return ListedRun(seen, RunFolder(folder), launcher=4121)


async def test_leaving_the_dialog_stops_no_kill(tmp_path: Path) -> None:
    """Runs are killed though they are slow, and more than are attached to at a time; nor does
    leaving tfmux stop that."""
    clients = SlowClients(tmp_path)
    names = [f"run-{number}" for number in range(40)]
    app = TfmuxApp(pages=[home := HomeScreen(clients)])
    async with app.run_test(size=(120, 40)) as pilot:
        await shows(pilot, "demos")
        runs = [entry(name, tmp_path) for name in [*names, "odd"]]
        app.push_screen(KillRunsDialog(runs, clients, PromptDialogs()))
        await shows(pilot, "Kill these 41 runs")
        await pilot.press("y")
        await shows(pilot, "connecting")
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is home)
    clients.gate.set()
    clients.close()
    assert {name: run.asked for name, run in clients.runs.items()} == {
        name: ["kill_all"] for name in names
    }


async def test_the_second_press_reaches_runs_that_are_still_being_attached_to(
    tmp_path: Path,
) -> None:
    """They get KILL as soon as they can; one that cannot be reached is named."""
    clients = SlowClients(tmp_path)
    app = TfmuxApp(pages=[HomeScreen(clients)])
    async with app.run_test(size=(120, 40)) as pilot:
        await shows(pilot, "demos")
        runs = [entry("far", tmp_path), entry("odd", tmp_path)]
        app.push_screen(KillRunsDialog(runs, clients, PromptDialogs()))
        await shows(pilot, "Kill these 2 runs")
        await pilot.press("y", "f9")
        clients.gate.set()
        await shows(pilot, "its files cannot be read")
        await until(pilot, lambda: "far" in clients.runs)  # its thread may be the slower one
        await until(pilot, lambda: clients.runs["far"].asked == ["kill_all", "kill_all force"])
    clients.close()


async def test_a_run_that_has_ended_meanwhile_shows_its_stored_receipt() -> None:
    """The run is not taken up again."""
    ended = ended_run("fine")
    clients = RunClients()
    app = TfmuxApp(pages=[HomeScreen(clients)])
    async with app.run_test(size=(120, 40)) as pilot:
        await shows(pilot, "demos")
        runs = [entry(ended.run_id, ended.path)]
        app.push_screen(KillRunsDialog(runs, clients, PromptDialogs()))
        await shows(pilot, "Kill this run")
        await pilot.press("y")
        await shows(pilot, "Receipts")
        assert any("no process is left" in row for row in screen_text(app))
    clients.close()
    assert ended.launcher_pid() is None
