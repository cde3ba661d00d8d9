"""Interaction of commands with the person: messages, questions, the clipboard."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from textual.notifications import SeverityLevel
from textual.screen import Screen

from tui.keys import key_of
from tui.screens.dialogs import Confirm, ask
from tui.widgets.prompt import Prompt

_GRAPHIC = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")


class Interaction:
    """The part of a screen with a prompt that commands need. A question is awaited."""

    def __init__(
        self, screen: Screen[Any], prompt: Prompt, prompt_closed: Callable[[], None]
    ) -> None:
        """`prompt_closed` gives the focus back to where it belongs."""
        self._screen = screen
        self._prompt = prompt
        self._prompt_closed = prompt_closed

    def notify(
        self,
        message: str,
        *,
        severity: SeverityLevel = "information",
        timeout: float | None = None,
    ) -> None:
        """Shows a message for some seconds."""
        self._screen.notify(message, severity=severity, timeout=timeout)

    async def ask(self, question: str, text: str | None = None) -> str | None:
        """Asks for a line of text in the prompt above the footer; None when there was no answer.
        `text` is there to begin with, else the last answer to the same question."""
        answer = await self._prompt.ask(question, text)
        self._prompt_closed()
        return answer

    async def confirm(self, question: str, why: str) -> bool:
        """Asks yes or no in a dialog."""
        return await ask(self._screen, Confirm(question, why)) is True

    def copy(self, text: str) -> None:
        """Copies to the terminal's clipboard (OSC 52)."""
        self._screen.app.copy_to_clipboard(text)

    def open_url(self, url: str) -> bool:
        """Opens a browser of this machine's desktop or, in a page of `tfmux serve`, of the
        person's; False where there is none. The standard library would start a text browser over
        this screen."""
        app = self._screen.app
        if app.is_web or sys.platform == "darwin" or any(map(os.environ.get, _GRAPHIC)):
            app.open_url(url)
            return True
        return False

    def key(self, command: str) -> str:
        """The displayed name of a command's key."""
        return key_of(self._screen, command)
