"""Clipboard of the screen's terminal: tmux's buffer inside tmux, else an escape sequence (OSC 52).

tmux drops OSC 52 of programs in its default setting, so it is asked itself. A terminal says nothing
of an OSC 52: all that is known then is that the text was sent.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from typing import Any

from textual.app import App

_SECONDS = 2.0


async def copy(app: App[Any], text: str) -> str:
    """Copies a text; returns where it went, to stand behind "4 lines"."""
    if app.is_web:
        app.copy_to_clipboard(text)
        return "copied"
    if os.environ.get("TMUX") and (where := await asyncio.to_thread(_to_tmux, text)):
        return where
    app.copy_to_clipboard(text)
    return "sent to the terminal's clipboard"


def _to_tmux(text: str) -> str:
    """Loads tmux's buffer, and through it the terminal's clipboard; returns where the text is
    then, empty where tmux has not taken it."""
    for words in (("-w", "-"), ("-",)):  # -w is of tmux 3.2 and later
        try:
            done = subprocess.run(
                ("tmux", "load-buffer", *words),
                input=text.encode(errors="replace"),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=_SECONDS,
            )
        except (OSError, subprocess.SubprocessError):
            return ""
        if done.returncode == 0:
            return "copied to tmux's buffer"
    return ""
