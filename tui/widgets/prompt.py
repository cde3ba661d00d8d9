"""The row above the footer that asks for a word: a search, a filter, a task's name."""

from __future__ import annotations

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import Input, Label


class Prompt(Horizontal):
    """Hidden until `ask`; answers with `Answered`, and with no text when it was left."""

    class Answered(Message):
        """Enter or Escape."""

        def __init__(self, purpose: str, text: str | None) -> None:
            self.purpose = purpose
            self.text = text
            super().__init__()

    def __init__(self) -> None:
        super().__init__()
        self.display = False
        self._purpose = ""
        self._last: dict[str, str] = {}

    def compose(self) -> ComposeResult:
        """A label and an input."""
        yield Label(markup=False)
        yield Input(compact=True)

    def ask(self, purpose: str, label: str, text: str | None = None) -> None:
        """Asks; the last answer to the same question can be sent again."""
        self._purpose = purpose
        self.query_one(Label).update(label)
        self.display = True
        field = self.query_one(Input)
        field.value = self._last.get(purpose, "") if text is None else text
        field.select_all()
        self.screen.set_focus(field)

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self._last[self._purpose] = event.value
        self._leave(event.value)

    def on_key(self, event: events.Key) -> None:
        if event.key == "escape":
            event.stop()
            self._leave(None)

    def _leave(self, text: str | None) -> None:
        self.display = False
        self.post_message(self.Answered(self._purpose, text))
