"""Names of bound keys: every text names the key that is bound, not the one of the program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import pytest
from textual.app import App
from textual.binding import Binding, BindingsMap, BindingType
from textual.dom import DOMNode
from textual.screen import ModalScreen, Screen

from tui.app import TfmuxApp
from tui.keys import bound_keys, classes_with_keys, display_name, key_hints, key_of
from tui.screens.host_key_dialog import HostKeyList


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
    # To what is to be mended: a problem, a finding, an error, or the file of a run.
    "e": {"edit.problem", "check.next", "error.next", "home.edit", "end.edit"},
    "f4": {"edit.settings", "edit.file", "home.edit"},
    "slash": {"home.filter", "search"},
    "E": {"check.previous", "error.previous"},
    "l": {"again", "check.launch", "edit.launch", "home.launch"},
    "T": {"edit.test", "home.test"},
    "f6": {"edit.test", "home.test"},
    "u": {"edit.undo", "home.undo"},
    "ctrl+z": {"edit.undo", "home.undo"},
    "f5": {"check.again", "home.again", "stacks.again"},
    "space": {"edit.plan", "layout.next"},
    "ctrl+s": {"edit.save", "log.save"},
    "x": {"edit.remove", "home.remove", "check.leftovers", "task.term"},
    "delete": {"edit.remove", "home.remove"},
    "plus": {"edit.add_task", "metrics.smoother"},
    "minus": {"edit.remove_task", "metrics.rougher"},
    "tab": {"home.other", "check.other", "pane.next"},
    "t": {"log.stamps", "metrics.axis"},  # how time is shown
    "o": {"metrics.draw", "task.open"},  # takes a task out of what is drawn, or in
    "left": {"metrics.earlier", "pane.left"},
    "right": {"metrics.later", "pane.right"},
    "ctrl+d": {"check.down", "scroll.half_down"},
    "ctrl+u": {"check.up", "scroll.half_up"},
    "H": {"hosts", "hosts.back"},  # opens and closes
    "M": {"metrics", "metrics.back"},
    "b": {"stacks", "stacks.back"},
    "C": {"cause", "cause.back"},
    "z": {"stacks.zoom", "zoom"},
    "y": {"log.copy", "report"},  # copies
    "r": {"end.again", "task.restart"},  # starts it once more
    # Opens what has the cursor, or what it is about.
    "enter": {"edit.form", "home.open", "cause.go", "check.repair", "zoom"},
    "escape": {
        *("edit.to_table", "edit.back", "hosts.back", "metrics.back", "stacks.back"),
        *("check.back", "cause.back", "back", "home.all"),
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
    """The program's keys are in force, else the keymap's; a priority key is nobody else's, and a
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


def test_f5_refreshes_and_nothing_else() -> None:
    """On each screen that has it; `l` launches, on home, in the editor and at a run's end."""
    bound = {
        (key, binding.id)
        for owner in classes_with_keys()
        for binding in vars(owner)["BINDINGS"]
        if isinstance(binding, Binding)
        for key in binding.key.split(",")
    }
    again = {"home.again", "check.again", "stacks.again"}
    assert {name for key, name in bound if key == "f5"} == again
    launching = {"home.launch", "edit.launch", "check.launch", "again", "starting.retry"}
    assert {name for key, name in bound if key == "l"} == launching
    assert {key for key, name in bound if name in again} == {"f5"}
