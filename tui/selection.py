"""Copying what is selected: in a text field, in a pane of lines, or anywhere by the mouse."""

from __future__ import annotations

from typing import Any

from textual.app import App
from textual.widgets import Input, TextArea

from tui.screens.run import RunScreen


def copy_selected(app: App[Any]) -> bool:
    """Copies what is selected on the present screen; False when nothing is."""
    screen, focused = app.screen, app.focused
    if isinstance(focused, Input | TextArea) and focused.selected_text:
        focused.action_copy()
    elif text := screen.get_selected_text():
        app.copy_to_clipboard(text)
        screen.clear_selection()
        app.notify("copied", timeout=2)
    else:
        pane = screen.area.pane if isinstance(screen, RunScreen) else None
        return pane is not None and pane.copy_selected()
    return True
