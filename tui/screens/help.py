"""Help screen: the keys in force by their owners, and the marks of the status strip."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Label, Static

from launcher.paths import tilde
from tui.config import config_path
from tui.format import STATE_MARKS
from tui.keys import key_of
from tui.palette import Command
from tui.screens.dialogs import Dialog
from tui.widgets.colours import status_colours, theme_colour

_LETTERS_A_ROW = 6
_SCREEN = "This screen"
_TALL = 36
"""Rows of the terminal from which on an empty row stands between two groups."""
_KEY_CELLS = 13
_DIGITS = list("123456789")


class HelpScreen(Dialog[None]):
    """Lists the commands of the screen it was opened from, in two columns of groups."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "dismiss(None)", "Back", id="leave", show=False),
        Binding("question_mark,f1", "dismiss(None)", "Back", id="help", show=False),
    ]

    def __init__(self, commands: Sequence[Command], *, ended: bool = False) -> None:
        """`ended`: the kill key shows the receipt of the run."""
        super().__init__("Keys")
        self._groups: dict[str, dict[str, list[str]]] = {}
        """The keys of each line of each group."""
        for command in commands:
            binding, title = command.binding, command.owner.BINDING_GROUP_TITLE or _SCREEN
            line = binding.group.description if binding.group else binding.description
            if ended and binding.id == "kill_all":
                line = "Receipt: what is left"
            keys = self._groups.setdefault(title, {}).setdefault(line, [])
            keys += [key for key in command.keys if key not in keys]

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as box:
            box.border_title = "Keys"
            box.border_subtitle = Content(f"{key_of(self, 'dialog.back')} back")
            with VerticalScroll():
                with Horizontal():
                    for column in self._columns():
                        yield Static(column, markup=False)
                yield Static(self._letters(), markup=False)
            hint = f"To change keys: [keys] in {tilde(config_path())}; names: docs/keys.md"
            yield Label(hint, classes="dialog-note", markup=False)

    def _columns(self) -> tuple[Text, Text]:
        """The groups, one below the other in two columns of about the same height."""
        accent = f"bold {theme_colour(self.app, 'accent-text')}"
        rows: list[Text] = []
        for title, lines in self._groups.items():
            if rows and self.app.size.height >= _TALL:
                rows.append(Text())
            rows.append(Text(title, "bold underline"))
            for about, keys in lines.items():
                names = f"{keys[0]} – {keys[-1]}" if keys == _DIGITS else " ".join(keys)
                rows.append(Text.assemble((f"{names:<{_KEY_CELLS}} ", accent), about))
        half = -(-len(rows) // 2)
        # No group is torn where blank rows between them say that there is room.
        between = [number for number, row in enumerate(rows) if not row]
        half = min(between, key=lambda number: abs(number - half), default=half)
        columns = rows[:half], rows[half + 1 :] if between else rows[half:]
        left, right = (Text("\n", no_wrap=True, overflow="ellipsis").join(c) for c in columns)
        return left, right

    def _letters(self) -> Text:
        colours = status_colours(self.app)
        text = Text("Letters of the status strip:\n")
        for i, (state, (letter, color)) in enumerate(STATE_MARKS.items()):
            text.append("\n" if i == _LETTERS_A_ROW else "")
            text.append(letter, f"bold {colours[color]}")
            text.append(f" {state}   ")
        return text
