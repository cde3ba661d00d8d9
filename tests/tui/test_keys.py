"""Names of bound keys: every text names the key that is bound, not the one of the program."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest
from textual.app import App
from textual.binding import Binding, BindingType
from textual.screen import Screen

from launcher.cluster.templates import ONE_MACHINE, render
from launcher.hosts.auth_prompt import AuthPrompt
from launcher.run.states import Outcome, TaskState
from tests.tui.conftest import screen_text, shows, until
from tests.tui.fakes import ScriptedRun
from tui.app import TfmuxApp
from tui.config import Config
from tui.keys import bound_keys, display_name, key_hints, key_of
from tui.screens.dialogs import LeaveDialog, ReceiptScreen
from tui.screens.help import HelpScreen
from tui.screens.home import HomeScreen
from tui.screens.hosts import HostsScreen
from tui.screens.metrics import MetricsScreen
from tui.screens.prompts import QuestionDialog
from tui.screens.run.screen import RunScreen
from tui.sessions import Sessions


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("f9", "F9"),
        ("ctrl+p", "Ctrl-P"),
        ("ctrl+shift+f5", "Ctrl-Shift-F5"),
        ("shift+tab", "Shift-Tab"),
        ("escape", "Esc"),
        ("question_mark", "?"),
        ("G", "G"),
        ("left", "←"),
        ("ctrl+left", "Ctrl-←"),
    ],
)
def test_display_names(key: str, name: str) -> None:
    """As people write them."""
    assert display_name(key) == name


class Letters(Screen[None]):
    """A screen with two commands, one of them on two keys."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("z,enter", "zoom", id="zoom"),
        Binding("s", "save", id="save"),
    ]


class Small(App[None]):
    """An app with a command that goes first."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("f9", "stop", id="stop", priority=True)]

    def get_default_screen(self) -> Letters:
        return Letters()


async def test_keys_in_force() -> None:
    """Those of the program, else those of the keymap; a priority key is nobody else's, and a
    command without a key is left out of hints."""
    app = Small()
    async with app.run_test():
        screen = app.screen
        assert key_of(screen, "stop") == "F9"
        assert key_hints(screen, [("zoom save", "both"), ("nothing", "no")]) == [("z s", "both")]
        app.set_keymap({"stop": "z", "save": "ctrl+s,f2"})
        assert bound_keys(app, [Letters]) == {
            "stop": ["z"],
            "zoom": ["enter"],
            "save": ["ctrl+s", "f2"],
        }
        named = [key_of(screen, command) for command in ("stop", "save", "none")]
        assert named == ["z", "Ctrl-S", ""]
        app.set_keymap({"stop": "s"})
        assert key_of(screen, "save") == ""


async def test_a_rebound_kill_key_is_named_everywhere(run: ScriptedRun) -> None:
    """With kill-all on another key no F9 stands on any screen or dialog of a run."""
    config = Config(keys={"kill_all": "f12", "leave": "Q", "log.copy": "Y"})
    app = TfmuxApp(run, config=config)
    run.all_tasks(state=TaskState.RUNNING)

    def seen() -> str:
        text = "\n".join(screen_text(app))
        assert "F9" not in text, text
        return text

    async with app.run_test(size=(180, 40), notifications=True) as pilot:
        await shows(pilot, "F12 kill all  Q leave")
        assert "Y copy" in seen()
        screen = app.screen
        assert isinstance(screen, RunScreen)
        screen.line_commands.show_keys()
        await shows(pilot, "Y copies, Ctrl-S saves, Esc leaves")
        for key, kind in (
            ("M", MetricsScreen),
            ("H", HostsScreen),
            ("question_mark", HelpScreen),
            ("Q", LeaveDialog),
        ):
            await pilot.press(key)
            await until(pilot, lambda kind=kind: isinstance(app.screen, kind))  # type: ignore[misc]
            await pilot.pause()
            assert kind is LeaveDialog or "F12" in seen()
            await pilot.press("escape")
            await until(pilot, lambda: isinstance(app.screen, RunScreen))
        app.push_screen(QuestionDialog(AuthPrompt("tf1", "Password", True)))
        await shows(pilot, "F12 kills all")
        seen()
        await pilot.press("escape", "f12")
        assert run.asked == ["kill_all"]
        await shows(pilot, "F12 again: KILL now")
        seen()
        run.end(Outcome.KILLED, 130)
        await until(pilot, lambda: isinstance(app.screen, ReceiptScreen))
        await shows(pilot, "Esc back to the logs   Q leave")
        await pilot.press("escape")
        await shows(pilot, "F12 receipt")
        await shows(pilot, "Q leaves")
        await pilot.press("f12")
        await until(pilot, lambda: isinstance(app.screen, ReceiptScreen))
        seen()
        await pilot.press("Q")
    assert app.return_value == 130


async def test_pages_without_a_run_name_the_bound_key(tmp_path: Path) -> None:
    """Home and the editor."""
    path = tmp_path / "mine.toml"
    path.write_text(render(ONE_MACHINE, "mine", {}, tmp_path))
    sessions = Sessions()
    home = HomeScreen(sessions)
    app = TfmuxApp(pages=[home, home.editor(path)], config=Config(keys={"kill_all": "f12"}))
    async with app.run_test(size=(160, 40)) as pilot:
        await shows(pilot, "1 Hosts")
        for keys in ((), ("2",), ("4",), ("escape",), ("escape",)):
            await pilot.press(*keys)
            await pilot.pause()
            assert not any("F9" in row for row in screen_text(app))
        await shows(pilot, "F12 kill all")
    sessions.close()
