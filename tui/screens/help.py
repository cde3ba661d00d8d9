"""Help screen: every key, and the letters of the status strip."""

from __future__ import annotations

from itertools import chain, zip_longest
from pathlib import Path
from typing import ClassVar

from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Label, Static

from tui.config import config_path
from tui.format import STATE_MARKS
from tui.keys import key_of
from tui.palette import Command
from tui.screens.dialogs import Dialog
from tui.widgets.colours import status_colours, theme_colour

_LETTERS_A_ROW = 6


class HelpScreen(Dialog[None]):
    """Lists the commands of the screen it was opened from."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "dismiss(None)", "Back", id="leave", show=False),
        Binding("question_mark,f1", "dismiss(None)", "Back", id="help", show=False),
    ]

    def __init__(self, commands: list[Command]) -> None:
        super().__init__("Keys")
        self._commands = commands

    def note(self) -> str:
        return f"{key_of(self, 'dialog.back')} back"

    def body(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(self._keys(), id="keys", markup=False)
            yield Static(self._letters(), markup=False)
        path = config_path()
        if path.is_relative_to(Path.home()):
            path = Path("~") / path.relative_to(Path.home())
        hint = f"Other keys: [keys] in {path}; the palette shows the ids."
        yield Label(hint, classes="dialog-note", markup=False)

    def _keys(self) -> Table:
        rows: dict[str, str] = {}
        for command in self._commands:
            rows.setdefault(command.name, command.keys)
        digits = [name for name in rows if name.startswith("Pane ") and name[-1].isdigit()]
        keys = [rows.pop(name) for name in digits]
        if keys:
            usual = keys == list("123456789")
            rows["Pane 1 to 9 of the page"] = "1 – 9" if usual else " ".join(keys)
        table = Table.grid(padding=(0, 3, 0, 0))
        accent = f"bold {theme_colour(self.app, 'accent-text')}"
        cells = [(Text(keys, accent), Text(name)) for name, keys in rows.items()]
        across = 2 if self.app.size.width >= 100 else 1
        down = -(-len(cells) // across)
        columns = (cells[i : i + down] for i in range(0, len(cells), down))
        for row in zip_longest(*columns, fillvalue=(Text(), Text())):
            table.add_row(*chain(*row))
        return table

    def _letters(self) -> Text:
        colours = status_colours(self.app)
        text = Text("\nLetters of the status strip:\n")
        for i, (state, (letter, color)) in enumerate(STATE_MARKS.items()):
            text.append("\n" if i == _LETTERS_A_ROW else "")
            text.append(letter, f"bold {colours[color]}")
            text.append(f" {state}   ")
        return text
