"""Dialogs that ask for a line of text, or for one of a few choices."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import ClassVar, TypeVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen, Screen
from textual.suggester import Suggester
from textual.widgets import Input, Label, OptionList
from textual.widgets.option_list import Option

from tui.widgets.line_input import LineInput

Answer = TypeVar("Answer")


async def ask(screen: Screen[None], dialog: Screen[Answer | None]) -> Answer | None:
    """Shows a dialog over a screen and returns its answer; for Textual workers.

    None if it was cancelled, or if another dialog is open already: keys may come faster than the
    first one appears.
    """
    if screen.app.screen is not screen:
        return None
    # Not `push_screen_wait`, which lets other tasks run before the dialog is on the stack; a
    # cancelled worker must not cancel what the dialog answers to.
    return await asyncio.shield(screen.app.push_screen(dialog, wait_for_dismiss=True))


class AskText(ModalScreen[str | None]):
    """Asks for a line of text, and checks it while it is typed."""

    DEFAULT_CSS = """
    AskText .problem { color: $status-bad; height: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Back", show=False),
    ]

    def __init__(
        self,
        title: str,
        value: str = "",
        problem: Callable[[str], str] = lambda text: "",
        about: str = "",
        suggester: Suggester | None = None,
    ) -> None:
        """`problem` returns what is wrong with a text, or an empty string."""
        super().__init__()
        self._title = title
        self._value = value
        self._problem = problem
        self._about = about
        self._suggester = suggester

    def compose(self) -> ComposeResult:
        """Title, field, and a line for the problem or the description."""
        with Vertical(classes="dialog wide"):
            yield Label(self._title, classes="dialog-title", markup=False)
            yield LineInput(self._value, suggester=self._suggester)
            yield Label(self._about, classes="problem", markup=False)
            yield Label("Enter accepts, Esc cancels", classes="dialog-note", markup=False)

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        problem = self._problem(event.value)
        self.query_one(".problem", Label).update(f"⚠ {problem}" if problem else self._about)

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        if self._problem(event.value):
            self.app.bell()
        else:
            self.dismiss(event.value)


class Choose(ModalScreen[str | None]):
    """Asks for one of a few choices; each has a key of its own."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Back", show=False),
    ]

    def __init__(self, title: str, choices: Sequence[tuple[str, str]], about: str = "") -> None:
        """`choices` are pairs of a key and what it does; the key is the answer."""
        super().__init__()
        self._title = title
        self._choices = choices
        self._about = about

    def compose(self) -> ComposeResult:
        """Title, choices and a note."""
        with Vertical(classes="dialog wide"):
            yield Label(self._title, classes="dialog-title", markup=False)
            yield OptionList(
                *(Option(f"{key}  {does}", id=key) for key, does in self._choices), markup=False
            )
            yield Label(self._about or "Esc cancels", classes="dialog-note", markup=False)

    def on_key(self, event: events.Key) -> None:
        """Answers with the choice of the key."""
        if event.character in [key for key, _ in self._choices]:
            event.stop()
            self.dismiss(event.character)

    @on(OptionList.OptionSelected)
    def _selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option_id)
