"""Dialogs over a run. Kill-all works in all of them: its key is a priority binding of the app."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import Label, OptionList, Static
from textual.widgets.option_list import Option

from launcher.run.snapshot import Snapshot
from tui.keys import key_of
from tui.outcome import failure_text, headline, paragraphs, receipt_text
from tui.widgets.colours import status_colours


class Confirm(ModalScreen[bool]):
    """One question; y or Enter is yes, anything else no."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y,enter", "answer(True)", "Yes", show=False),
        Binding("n,escape,q", "answer(False)", "No", show=False),
    ]

    def __init__(self, question: str, why: str) -> None:
        super().__init__()
        self._question = question
        self._why = why

    def compose(self) -> ComposeResult:
        """The question, why it is asked, and the keys."""
        with Vertical(classes="dialog"):
            yield Label(self._question, classes="dialog-title", markup=False)
            yield Label(self._why, markup=False)
            yield Label("y yes   n no", classes="dialog-note", markup=False)

    def action_answer(self, yes: bool) -> None:
        """Answers."""
        self.dismiss(yes)


class Leave(StrEnum):
    """Answers of the leave dialog."""

    KILL = "kill"
    DETACH = "detach"
    STAY = "stay"


class LeaveDialog(ModalScreen[Leave]):
    """Asks what to do with the run before leaving it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("k", "choose('kill')", "Kill all", show=False),
        Binding("d", "choose('detach')", "Detach", show=False),
        Binding("s,escape,q", "choose('stay')", "Stay", show=False),
    ]

    def __init__(self, alive: int) -> None:
        super().__init__()
        self._alive = alive

    def compose(self) -> ComposeResult:
        """A question and three answers."""
        tasks = "1 task is" if self._alive == 1 else f"{self._alive} tasks are"
        with Vertical(classes="dialog"):
            yield Label(f"The run is active: {tasks} up", classes="dialog-title", markup=False)
            yield OptionList(
                Option("k  Kill all, show the receipt, leave", id=Leave.KILL),
                Option("d  Detach: the run goes on without a screen", id=Leave.DETACH),
                Option("Esc  Stay", id=Leave.STAY),
                markup=False,
            )
            yield Label("Ctrl-C again: kill all and leave", classes="dialog-note", markup=False)

    def action_choose(self, choice: str) -> None:
        """Answers."""
        self.dismiss(Leave(choice))

    @on(OptionList.OptionSelected)
    def _selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(Leave(event.option_id or Leave.STAY))


TAIL = 20
"""Last lines of the first failure under a receipt."""


class ReceiptScreen(ModalScreen[None]):
    """Shows how the run ended and, per host, what is left of it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,space", "dismiss", "Back", show=False),
        # An app's keys stop at a modal screen.
        Binding("q", "app.leave", "Leave", id="leave", show=False),
    ]

    class Left(Message):
        """The run has been left; there is nothing more to show of it."""

        def __init__(self, code: int) -> None:
            self.code = code
            super().__init__()

    def __init__(self, snapshot: Snapshot, *, leaving: bool) -> None:
        super().__init__()
        self._snapshot = snapshot
        self._leaving = leaving

    def compose(self) -> ComposeResult:
        """The text, which scrolls when it is long, and what to press."""
        with Vertical(classes="dialog wide"):
            yield Label("Receipt", classes="dialog-title", markup=False)
            with VerticalScroll():
                yield Static(self._text(), markup=False)
            leave = key_of(self, "leave")
            hint = "any key leaves" if self._leaving else f"Esc back to the logs   {leave} leave"
            yield Label(hint, classes="dialog-note", markup=False)

    def _text(self) -> Text:
        colours = status_colours(self.app)
        now = self._snapshot
        receipt, failure = receipt_text(now, colours), failure_text(now, colours, TAIL)
        return paragraphs(headline(now, colours), receipt, failure)  # the proof is seen first

    def on_key(self) -> None:
        """Leaves, when that is all there is left to do."""
        if self._leaving:
            self.post_message(self.Left(self._snapshot.exit_code or 0))
