"""Title line of the editor: file, pages, number of problems."""

from __future__ import annotations

from rich.text import Text
from textual.widgets import Static

from launcher.quantities import counted
from tui.screens.editor.state import EditorState
from tui.widgets.colours import theme_colour

PAGES = ("hosts", "jobs", "run", "file", "plan")


class EditorTitle(Static):
    """One line."""

    def __init__(self, state: EditorState) -> None:
        super().__init__(id="title", markup=False)
        self._state = state

    def show(self, current: str) -> None:
        """Shows the draft's title; `current` is the page that is open."""
        text = Text(no_wrap=True, overflow="ellipsis")
        text.append(self._state.draft.path.stem, "bold")
        text.append(" ● not saved" if self._state.draft.modified else "")
        for number, page in enumerate(PAGES, 1):
            text.append("   ")
            style = "reverse bold" if page == current else "dim"
            text.append(f" {number} {page.capitalize()} ", style)
        if count := len(self._state.shown.problems):
            colour = theme_colour(self.app, "status-bad")
            text.append(f"   ⚠ {counted(count, 'problem')}", f"bold {colour}")
        else:
            text.append("   ✓", f"bold {theme_colour(self.app, 'status-good')}")
        self.update(text)
