"""Names of bound keys: every text names the key that is bound, not the one of the program."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import pytest
from textual.app import App
from textual.binding import Binding, BindingsMap, BindingType
from textual.dom import DOMNode
from textual.screen import ModalScreen, Screen

from launcher.cluster import ClusterModel, library
from launcher.cluster.templates import ONE_MACHINE, render
from launcher.hosts.auth_prompt import AuthPrompt, OfferedKey, PromptKind
from launcher.preflight import Report
from launcher.run.states import Outcome, TaskState
from launcher.session.records import RunSummary
from launcher.store.runs import RunFolder
from tests.tui.conftest import screen_text, shows, until
from tests.tui.fakes import ScriptedRun
from tui.app import TfmuxApp
from tui.catalog import RunEntry
from tui.config import Config
from tui.keys import bound_keys, classes_with_keys, display_name, key_hints, key_of
from tui.run_clients import RunClients
from tui.screens.dialogs import Confirm
from tui.screens.home import HomeScreen
from tui.screens.host_keys import HostKeyDialog, HostKeyList, OpenPrompt
from tui.screens.kill_runs import KillRunsDialog
from tui.screens.opening import Opening
from tui.screens.page import Page
from tui.screens.prompts import PromptDialog
from tui.screens.run import RunScreen
from tui.widgets.footer import KeyFooter


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


SAME: Mapping[str, set[str]] = {
    "e": {"edit.problem", "check.next", "error.next"},
    "E": {"check.previous", "error.previous"},
    "l": {"edit.launch", "home.launch"},
    "T": {"edit.test", "home.test"},
    "f6": {"edit.test", "home.test"},
    "u": {"edit.undo", "home.undo"},
    "ctrl+z": {"edit.undo", "home.undo"},
    "f2": {"edit.settings", "home.rename"},  # changes what has the cursor
    "f5": {"check.again", "home.again", "stacks.again"},
    "space": {"edit.plan", "layout.next"},
    "ctrl+s": {"edit.save", "log.save"},
    "x": {"edit.remove", "home.remove", "check.leftovers", "task.term"},
    "delete": {"edit.remove", "home.remove"},
    "plus": {"edit.add_task", "metrics.smoother"},
    "minus": {"edit.remove_task", "metrics.rougher"},
    "tab": {"home.other", "check.other", "pane.next"},
    "left": {"metrics.earlier", "pane.left"},
    "right": {"metrics.later", "pane.right"},
    "ctrl+d": {"check.down", "scroll.half_down"},
    "ctrl+u": {"check.up", "scroll.half_up"},
    "H": {"hosts", "hosts.back"},  # opens and closes
    "M": {"metrics", "metrics.back"},
    "b": {"stacks", "stacks.back"},
    "z": {"stacks.zoom", "zoom"},
    "enter": {"edit.form", "home.open", "zoom"},  # opens what has the cursor
    "escape": {
        *("edit.to_table", "edit.back", "hosts.back", "metrics.back", "stacks.back"),
        *("check.back", "back"),
    },
    # The one exception: lines are added where there are rows, and in a log the prefix goes.
    "a": {"edit.add", "home.new", "log.prefix"},
}
"""Commands of different screens that mean the same, by their key."""


def test_a_key_has_one_meaning() -> None:
    """Whatever the screen, but for dialogs, whose keys are their answers."""
    found: dict[str, set[str]] = {}
    owners: list[type[DOMNode]] = [TfmuxApp, *classes_with_keys()]
    for owner in owners:
        if not issubclass(owner, ModalScreen | HostKeyList):
            for key, binding in BindingsMap(owner.BINDINGS):
                if binding.id:
                    found.setdefault(key, set()).add(binding.id)
    assert {key: ids for key, ids in found.items() if len(ids) > 1} == SAME


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
        assert key_hints(screen, [("zoom save", "both"), ("nothing", "no")]) == [
            ("z s", "both", "z")
        ]
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
          "ctrl+alt+shift+")
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
    r"|(?:^|[\s:;,(])[A-Za-z] (?:adds?|makes|brings|goes|pastes|copies|saves|leaves?|kills?)\b"
)


def test_f5_refreshes_and_nothing_else() -> None:
    """On each screen that has it; `l` launches, on home and in the editor."""
    bound = {
        (key, binding.id)
        for owner in classes_with_keys()
        for binding in vars(owner)["BINDINGS"]
        if isinstance(binding, Binding)
        for key in binding.key.split(",")
    }
    again = {"home.again", "check.again", "stacks.again"}
    assert {name for key, name in bound if key == "f5"} == again
    assert {name for key, name in bound if key == "l"} == {"home.launch", "edit.launch"}
    assert {key for key, name in bound if name in again} == {"f5"}


def names_no_default(app: TfmuxApp) -> None:
    """No default key stands on the screen, and the footer has only keys in force."""
    text = "\n".join(screen_text(app))
    assert not (found := _NAMED.search(text)), f"{found}\n{text}"
    for footer in app.screen.query(KeyFooter):
        row = footer.render()
        keys = {row.plain[span.start : span.end] for span in row.spans}
        names = {display_name(key) for key in OTHERS.values()}
        assert all(set(key.split()) <= names | FIXED for key in keys), keys


@pytest.mark.slow
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
            ("help", "Marks of the status strip", "help"),
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
        assert run.asked == ["kill_all"]
        await shows(pilot, "again: KILL now")
        names_no_default(app)
        run.end(Outcome.KILLED, 130)
        await shows(pilot, "back to the logs")
        names_no_default(app)
        await pilot.press(OTHERS["dialog.back"])
        await shows(pilot, "receipt")
        names_no_default(app)
        await pilot.press(OTHERS["leave"])
    assert app.return_value == 130


@pytest.mark.slow
async def test_no_page_names_a_default_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first frame, home, its dialogs, the editor, and the preflight."""

    async def fake(cluster: ClusterModel, *_: object) -> Report:
        return Report(cluster.name, (), (), (), (), 0.1)

    monkeypatch.setattr("tui.screens.preflight.preflight", fake)
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
        await press("edit.add", "SSH destinations")
        await press("dialog.back", "adds a task")
        await press("edit.form", "Enter accepts")
        await press("dialog.back", "adds a task")
        await press("edit.settings", "[metrics]")
        await press("dialog.back", "adds a task")
        await press("tab", f"{display_name(OTHERS['edit.to_table'])} table")
        await press("edit.to_table", "adds a task")
        await press("edit.plan", "TF_CONFIG")
        await press("edit.back", "adds a task")
        await press("edit.back", "demos")
        path.write_text("name = 7\n")
        await press("home.again", "the file has no jobs")
        await press("home.open", "next problem")
        await press("edit.test", "fix the problems first")
        await press("edit.back", "demos")
        await press("home.remove", "brings it back")
        await press("home.again", "makes one from a template")
        await press("home.new", "Enter chooses")
        await press("dialog.back", "makes one from a template")
        summary = RunSummary("mine-1", RunFolder(tmp_path), 1000.0, None)
        app.push_screen(KillRunsDialog([RunEntry(summary, 4121)], clients, home.prompts))
        await shows(pilot, f"{display_name(OTHERS['kill_all'])} kills")
        names_no_default(app)
        await pilot.press(OTHERS["dialog.no"])
        await until(pilot, lambda: app.screen is home)
        app.push_screen(Opening(lambda: lambda: [home], stay))
        await shows(pilot, "kill all active runs")
        names_no_default(app)
        assert "no such command" not in "\n".join(screen_text(app))
    clients.close()
