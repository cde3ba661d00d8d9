"""Prompt: the row above the footer where a search, a filter or a name is typed."""

from __future__ import annotations

import asyncio

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.widget import Widget
from textual.widgets import Input, Label


class Prompt(Horizontal):
    """One-line question with an input; takes room on the screen, and the focus, only while `ask`
    waits."""

    def __init__(self) -> None:
        super().__init__()
        self.display = False
        self._question = ""
        self._answer: asyncio.Future[str | None] | None = None
        self._last: dict[str, str] = {}
        self._before: Widget | None = None
        """What had the focus before the question."""

    def compose(self) -> ComposeResult:
        yield Label(markup=False)
        yield Input(compact=True)

    async def ask(self, question: str, text: str | None = None) -> str | None:
        """Asks and waits: the text after Enter, None after Escape or when another question takes
        the prompt. `text` is there to begin with, else the last answer to the same question."""
        self._close(None)
        self._question = question
        answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._answer = answer
        self.query_one(Label).update(question)
        self.display = True
        self._before = self.screen.focused
        field = self.query_one(Input)
        field.value = self._last.get(question, "") if text is None else text
        field.select_all()
        self.screen.set_focus(field)
        return await answer

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self._last[self._question] = event.value
        self._close(event.value)

    def on_key(self, event: events.Key) -> None:
        if event.key == "escape":
            event.stop()
            self._close(None)

    def _close(self, text: str | None) -> None:
        if self.display and self.screen.focused is self.query_one(Input):
            # At once, not by `focus()`: the next key is no answer any more.
            self.screen.set_focus(self._before, scroll_visible=False)
        self.display = False
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(text)
        self._answer = None
