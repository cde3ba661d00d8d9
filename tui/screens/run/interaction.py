"""Interaction of commands with the person: messages, questions, the clipboard."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, Protocol

from textual.notifications import SeverityLevel
from textual.screen import Screen

from tui.keys import key_of
from tui.screens.dialogs import Confirm
from tui.widgets.prompt import Prompt

_GRAPHIC = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")


class Interaction(Protocol):
    """The part of the screen that commands need. A question is awaited."""

    def notify(
        self,
        message: str,
        *,
        severity: SeverityLevel = "information",
        timeout: float | None = None,
    ) -> None:
        """Shows a message for some seconds."""

    async def ask(self, question: str, text: str | None = None) -> str | None:
        """A line of text; None when there was no answer. `text` is there to begin with, else the
        last answer to the same question."""

    async def confirm(self, question: str, why: str) -> bool:
        """Yes or no."""

    def copy(self, text: str) -> None:
        """Copies to the terminal's clipboard."""

    def open_url(self, url: str) -> bool:
        """Opens an address in a browser; False where there can be none."""

    def key(self, command: str) -> str:
        """The displayed name of a command's key."""


class ScreenInteraction:
    """Interaction on a screen with a prompt."""

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
        """Shows a toast."""
        self._screen.notify(message, severity=severity, timeout=timeout)

    async def ask(self, question: str, text: str | None = None) -> str | None:
        """Asks in the prompt above the footer."""
        answer = await self._prompt.ask(question, text)
        self._prompt_closed()
        return answer

    async def confirm(self, question: str, why: str) -> bool:
        """Asks in a dialog."""
        answer: bool | None = await self._screen.app.push_screen_wait(Confirm(question, why))
        return answer is True

    def copy(self, text: str) -> None:
        """Copies through the terminal (OSC 52)."""
        self._screen.app.copy_to_clipboard(text)

    def open_url(self, url: str) -> bool:
        """Opens a browser of this machine's desktop or, in a page of `tfmux serve`, of the
        person's. The standard library would start a text browser over this screen."""
        app = self._screen.app
        if app.is_web or sys.platform == "darwin" or any(map(os.environ.get, _GRAPHIC)):
            app.open_url(url)
            return True
        return False

    def key(self, command: str) -> str:
        """The key in force."""
        return key_of(self._screen, command)
