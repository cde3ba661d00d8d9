"""From the end of a run to the next one: keys of its screens."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from textual.pilot import Pilot

from launcher.cluster.read import loads
from launcher.errors import TfmuxError
from launcher.ids import TaskId
from launcher.run.snapshot import Failure, HostReceipt, Receipt, Survivor
from launcher.run.states import HostState, Outcome, RunPhase, TaskState
from launcher.session.control import RunControl
from launcher.store.runs import RunFolder
from tests.support.cluster_texts import cluster_text
from tests.support.fakes import ScriptedRun
from tests.support.screens import screen_text, shows, until, visible
from tui.app import TfmuxApp
from tui.config import Config
from tui.run_clients import RunClients
from tui.screens.dialogs import ReceiptScreen
from tui.screens.editor.screen import EditorScreen
from tui.screens.hosts_screen import HostsScreen
from tui.screens.prompt_dialogs import PromptDialogs
from tui.screens.run_screen import RunScreen


@pytest.fixture
def other(tmp_path: Path) -> ScriptedRun:
    """The run that is launched next."""
    (tmp_path / "other").mkdir()
    return ScriptedRun(tmp_path / "other", workers=1)


class Clients(RunClients):
    """Launches no process for a run that is launched again."""

    def __init__(self, launch: Callable[[str], RunControl]) -> None:
        super().__init__()
        self._launch = launch

    def launch_again(self, run_id: str, ask: object) -> RunControl:
        """What the test launches."""
        return self._launch(run_id)

    def kill(self, run_id: str, ask: object) -> Future[RunControl]:
        """The run that is killed again is one of the test, too."""
        done = Future[RunControl]()
        try:
            done.set_result(self._launch(run_id))
        except TfmuxError as error:
            done.set_exception(error)
        return done


@asynccontextmanager
async def showing(
    run: ScriptedRun, launch: Callable[[str], RunControl], size: tuple[int, int] = (80, 24)
) -> AsyncIterator[tuple[TfmuxApp, Pilot[int]]]:
    """The screen of `tfmux up`, from which `launch` launches again."""
    app = TfmuxApp(run, config=Config(), clients=Clients(launch), prompts=PromptDialogs())
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


@pytest.mark.parametrize("size", [(80, 24), (200, 50)], ids=str)
@pytest.mark.parametrize("outcome", [Outcome.KILLED, Outcome.FAILED])
async def test_one_key_kills_again_what_a_kill_has_left(
    run: ScriptedRun, other: ScriptedRun, outcome: Outcome, size: tuple[int, int]
) -> None:
    """Given an end that a host has not confirmed, when the kill key is pressed, which the receipt
    or the summary names, then the run is killed again, and the next receipt is shown."""
    asked: list[str] = []

    def kill(run_id: str) -> RunControl:
        asked.append(run_id)
        return other

    async with showing(run, kill, size) as (app, pilot):
        survivors = (Survivor(4121, "sleep 9", "S"), Survivor(4122, "cat", "D"))
        left = HostReceipt("tf2", 2, survivors)
        if outcome is Outcome.KILLED:
            await pilot.press("f9")
            await until(pilot, lambda: "kill_all" in run.asked)
            await shows(pilot, "F9 KILL now")
        run.end(outcome, 1, receipt=Receipt((left,), begun=True))
        before = (
            "F9 kill again   Esc back" if outcome is Outcome.KILLED else "F9 kill again  l launch"
        )
        await shows(pilot, before)
        await shows(pilot, "kill -KILL 4121")
        assert not visible(app, "4121 4122")
        await pilot.press("f9")
        await until(pilot, lambda: app.control is other)
        assert asked == [run.snapshot().run_id]
        other.end(Outcome.KILLED, 1)
        await until(pilot, lambda: isinstance(app.screen, ReceiptScreen))
        await shows(pilot, "Esc back   l launch again   e edit   y copy report")
        assert not visible(app, "kill again")


async def test_a_refused_kill_is_told(run: ScriptedRun) -> None:
    """The summary stays, and with it the key."""

    def kill(run_id: str) -> RunControl:
        raise TfmuxError("its files cannot be read")

    async with showing(run, kill) as (app, pilot):
        run.end(Outcome.FAILED, 1, receipt=Receipt((HostReceipt("tf2"),), begun=True))
        await shows(pilot, "F9 kill again  l launch")
        await pilot.press("f9")
        await shows(pilot, "its files cannot be read")
        assert app.control is run


async def test_the_receipt_leads_to_the_file(
    run: ScriptedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given the receipt of a run that a person has ended, when its key for the file is pressed,
    then the receipt goes and the file is opened."""
    opened: list[bool] = []

    def edit(app: TfmuxApp) -> None:
        opened.append(app.screen.is_modal)

    monkeypatch.setattr(TfmuxApp, "action_edit_file", edit)
    async with showing(run, _none) as (app, pilot):
        run.end(Outcome.KILLED, exit_code=1)
        await pilot.press("f9")
        await until(pilot, lambda: isinstance(app.screen, ReceiptScreen))
        await shows(pilot, "l launch again   e edit   y copy report")
        await pilot.press("e")
        await until(pilot, lambda: opened == [False])


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
    async with showing(run, _none) as (app, pilot):
        run.end(exit_code=1)
        await shows(pilot, "l launch again  e edit  y copy report  Esc hide")
        assert sum("launch again" in row for row in screen_text(app)) == 1, "one place names it"
        await pilot.press(key)
        await until(pilot, lambda: done == [asked])
        await pilot.press("escape")
        await shows(pilot, "F9 receipt  l launch again  F4 edit")
        await pilot.press("e")
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


async def test_the_file_of_an_ended_run_is_edited_and_launched(
    run: ScriptedRun,
    other: ScriptedRun,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Given `tfmux up` on a run whose worker:1 has failed, when `e` is pressed, then the editor
    opens on the place of that task; `q` leads back to the run, and a launch from the editor is
    shown in its place."""
    hosts = {host: {"ssh": f"me@{host}.invalid"} for host in ("tf1", "tf2", "tf3")}
    text = cluster_text({"ps": "tf1:2222", "worker": "tf2:2222 tf3:2222"}, "mnist-async", hosts)
    (tmp_path / "project").mkdir()
    file = tmp_path / "project/mnist.toml"
    file.write_text(text)
    run_id = run.snapshot().run_id
    folder = RunFolder.create(run_id, text, loads(text, str(file), file.parent))
    launched: list[str] = []

    def launch(_: RunClients, cluster: object, text: str, *more: object) -> RunControl:
        launched.append(text)
        return other

    monkeypatch.setattr(RunClients, "launch", launch)
    run.all_tasks(state=TaskState.RUNNING, attempt=1)
    run.change(state=RunPhase.RUNNING)
    async with showing(run, _none) as (app, pilot):
        run.task("worker:1", state=TaskState.FAILED, exit_code=1)
        run.end(exit_code=1, failure=Failure(TaskId("worker", 1), "tf3", "exit 1", 1.0))
        await shows(pilot, "e edit")
        await pilot.press("e")
        await until(pilot, lambda: isinstance(app.screen, EditorScreen))
        editor = app.screen
        assert isinstance(editor, EditorScreen) and editor.draft.path == file, folder
        await until(pilot, lambda: (editor._table.host, editor._table.job) == ("tf3", "worker"))
        await pilot.press("q")
        await until(pilot, lambda: isinstance(app.screen, RunScreen))
        await pilot.press("e")
        await until(pilot, lambda: isinstance(app.screen, EditorScreen))
        await pilot.press("M")  # would take the editor away
        await pilot.press("l")
        await until(pilot, lambda: app.control is other)
        assert launched == [text]
        assert [type(screen) for screen in app.screen_stack] == [RunScreen]


@pytest.mark.parametrize(
    ("code", "field"),
    [
        ("python-missing", "python"),
        ("tcp-refused", "ssh"),
        ("login-refused", "ssh"),
        ("key-file", "identity"),
        ("via-failed", "ssh"),
    ],
)
async def test_a_refused_host_leads_to_the_setting_that_is_about_the_reason(
    run: ScriptedRun, tmp_path: Path, code: str, field: str
) -> None:
    """Given a run of which a host was refused, when its file is opened, then the cursor is on the
    setting of that host which the reason is about; `via` is in the column of ssh."""
    hosts = {
        host: {"ssh": f"me@{host}.invalid", "python": "/opt/python", "identity": "/tmp/key"}
        for host in ("tf1", "tf2", "tf3")
    }
    text = cluster_text({"ps": "tf1:2222", "worker": "tf2:2222 tf3:2222"}, "mnist-async", hosts)
    file = tmp_path / "mnist.toml"
    file.write_text(text)
    RunFolder.create(run.snapshot().run_id, text, loads(text, str(file), tmp_path))
    views = run.snapshot().hosts
    refused = replace(views[1], state=HostState.REFUSED, reason="no", code=code)
    run.change(hosts=(views[0], refused, *views[2:]))
    async with showing(run, _none) as (app, pilot):
        run.end(Outcome.PREFLIGHT, 3)
        await shows(pilot, "e edit")
        await pilot.press("e")
        await until(pilot, lambda: isinstance(app.screen, EditorScreen))
        editor = app.screen
        assert isinstance(editor, EditorScreen)
        await until(pilot, lambda: (editor._table.host, editor._table.field) == ("tf2", field))
