"""Names of bound keys: every text names the key that is bound, not the one of the program."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from textual.binding import Binding

from launcher.cluster import library
from launcher.cluster.file_model import ClusterModel
from launcher.cluster.templates import ONE_MACHINE, render
from launcher.hosts.auth_prompt import AuthPrompt, OfferedKey, PromptKind
from launcher.preflight import Report
from launcher.run.states import Outcome, RunPhase, TaskState
from launcher.session.run_list import ListedRun
from launcher.store.runs import RunFolder
from launcher.store.stream import Summary
from tests.support.fakes import ScriptedRun
from tests.support.screens import screen_text, shows, until
from tui.app import TfmuxApp
from tui.config import Config
from tui.keys import classes_with_keys, display_name
from tui.run_clients import RunClients
from tui.screens.dialogs import Confirm
from tui.screens.home import HomeScreen
from tui.screens.host_key_dialog import HostKeyDialog, OpenPrompt
from tui.screens.kill_runs import KillRunsDialog
from tui.screens.opening import Opening
from tui.screens.page import Page
from tui.screens.prompt_dialogs import PromptDialog
from tui.screens.run_screen import RunScreen
from tui.widgets.footer import KeyFooter

IDS = {
    binding.id: binding.key.split(",")[0]
    for owner in (TfmuxApp, *classes_with_keys())
    for binding in vars(owner)["BINDINGS"]
    if isinstance(binding, Binding) and binding.id
}
OTHERS = dict(
    zip(
        IDS,
        (f"{modifiers}f{number}" for modifiers in
         ("", "ctrl+", "shift+", "alt+", "ctrl+shift+", "ctrl+alt+", "alt+shift+",
          "ctrl+alt+shift+", "super+", "ctrl+super+")
         for number in range(10, 25)),
        strict=False,
    )
)  # fmt: skip
"""Every command on a key that is nobody's default."""
assert OTHERS.keys() == IDS.keys()
FIXED = {"Enter", "Tab", "→", "Ctrl-Z"}
"""Keys of text fields, and of lists."""
DEFAULTS = {display_name(key) for key in IDS.values()} - FIXED
_NAMED = re.compile(
    r"(?<![\w-])(?:" + "|".join(re.escape(n) for n in DEFAULTS if len(n) > 1) + r")(?![\w-])"
    r"|(?:^|[\s:;,(])[A-Za-z] "
    r"(?:adds?|creates|removes|edits|brings|goes|pastes|copies|saves|leaves?|kills?)\b"
)


def names_no_default(app: TfmuxApp) -> None:
    """No default key stands on the screen, and the footer has only keys in force."""
    text = "\n".join(screen_text(app))
    assert not (found := _NAMED.search(text)), f"{found}\n{text}"
    for footer in app.screen.query(KeyFooter):
        row = footer.render()
        keys = {row.plain[span.start : span.end] for span in row.spans}
        names = {display_name(key) for key in OTHERS.values()}
        assert all(set(key.split()) <= names | FIXED for key in keys), keys


async def test_no_screen_of_a_run_names_a_default_key(run: ScriptedRun) -> None:
    """With every command on another key: panes, merged log, metrics, hosts, help, receipt."""
    app = TfmuxApp(run, config=Config(keys=OTHERS))
    run.all_tasks(state=TaskState.RUNNING)
    async with app.run_test(size=(240, 60), notifications=True) as pilot:
        await shows(pilot, f"{display_name(OTHERS['kill_all'])} kill all")
        names_no_default(app)
        screen = app.screen
        assert isinstance(screen, RunScreen)
        for command, text, back in (
            ("layout.merged", "task on/off", "layout.merged"),
            ("metrics", "smoothing", "metrics.back"),
            ("hosts", "tf1:2222", "hosts.back"),
            ("help", "Letters of the status strip", "help"),
            ("leave", "Stay", "leave"),
        ):
            await pilot.press(OTHERS[command])
            await shows(pilot, text)
            names_no_default(app)
            await pilot.press(OTHERS[back])
            await until(pilot, lambda: app.screen is screen)
        offered = [OfferedKey(host, "ssh-ed25519", "SHA256:abc") for host in ("tf1", "tf2")]
        keys = [AuthPrompt(each.place, "", False, PromptKind.HOST_KEY, each) for each in offered]
        for dialog in (
            Confirm("Detach?", "The run goes on."),
            PromptDialog(AuthPrompt("tf1", "Password", True)),
            HostKeyDialog([OpenPrompt(key) for key in keys]),
        ):
            app.push_screen(dialog)
            await until(pilot, lambda shown=dialog: app.screen is shown)  # type: ignore[misc]
            await shows(pilot, dialog.note())
            names_no_default(app)
            await pilot.press(OTHERS["dialog.back"])
            await until(pilot, lambda: app.screen is screen)
        await pilot.press(OTHERS["kill_all"])
        await until(pilot, lambda: run.asked == ["kill_all"])
        await shows(pilot, "again: KILL now")
        names_no_default(app)
        run.end(Outcome.KILLED, 130)
        await shows(pilot, " back   ")
        names_no_default(app)
        await pilot.press(OTHERS["dialog.back"])
        await shows(pilot, "receipt")
        names_no_default(app)
        await pilot.press(OTHERS["leave"])
    assert app.return_value == 130


async def test_no_page_names_a_default_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first frame, home, its dialogs, the editor, and the preflight."""

    async def fake(cluster: ClusterModel, *_: object) -> Report:
        return Report(cluster.name, (), (), (), (), 0.1)

    monkeypatch.setattr("tui.screens.preflight_screen.preflight", fake)
    path = library.create("mine", render(ONE_MACHINE, "mine", {}, tmp_path))
    clients = RunClients()
    home = HomeScreen(clients)
    app = TfmuxApp(pages=[home], config=Config(keys=OTHERS))

    async def stay(pages: Sequence[Page]) -> Page:
        return pages[0]

    async def press(command: str, text: str) -> None:
        await pilot.press(OTHERS.get(command, command))
        await shows(pilot, text)
        names_no_default(app)

    async with app.run_test(size=(240, 60), notifications=True) as pilot:
        await shows(pilot, "1 ps + 2 workers on this machine")
        names_no_default(app)
        await press("kill_all", "no active runs")
        await press("home.test", "ready to launch")
        await press("check.other", "Connections between hosts")
        await press("check.back", "demos")
        await press("home.copy", "the name of the new file")
        await press("dialog.back", "demos")
        await press("home.open", "this machine")
        await press("edit.add", "Add hosts")
        await press("dialog.back", "adds a ps task")
        await press("edit.form", "Enter accepts")
        await press("dialog.back", "adds a ps task")
        await press("edit.settings", "[metrics]")
        await press("dialog.back", "adds a ps task")
        await press("tab", f"{display_name(OTHERS['edit.to_table'])} table")
        await press("edit.to_table", "adds a ps task")
        await press("edit.plan", "TF_CONFIG")
        await press("edit.back", "adds a ps task")
        await press("edit.back", "demos")
        path.write_text("name = 7\n")
        await press("home.again", "the file has no jobs")
        await press("home.open", "next problem")
        await press("edit.test", "fix the problems first")
        await press("edit.back", "demos")
        await press("home.remove", "brings it back")
        await press("home.again", "creates one from a template")
        await press("home.new", "Enter chooses")
        await press("dialog.back", "creates one from a template")
        seen = Summary("mine-1", "mine", RunPhase.RUNNING, 1000.0)
        run = ListedRun(seen, RunFolder(tmp_path), launcher=4121)
        app.push_screen(KillRunsDialog([run], clients, home.prompts))
        await shows(pilot, f"{display_name(OTHERS['kill_all'])} kills")
        names_no_default(app)
        await pilot.press(OTHERS["dialog.no"])
        await until(pilot, lambda: app.screen is home)
        app.push_screen(Opening(lambda: lambda: [home], stay))
        await shows(pilot, "kill all active runs")
        names_no_default(app)
        assert "no such command" not in "\n".join(screen_text(app))
    clients.close()
