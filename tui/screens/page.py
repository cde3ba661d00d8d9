"""Screens that stand outside of a run: home, the editor, the preflight."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from textual.message import Message
from textual.screen import Screen

if TYPE_CHECKING:
    from launcher.session.control import RunControl


STYLES = Path(__file__).parents[1] / "app.tcss"
"""Styles that several screens and dialogs share; reading them would delay the first frame."""


class OpenRun(Message):
    """Asks the app to show a run above the pages."""

    def __init__(self, run: RunControl) -> None:
        self.run = run
        super().__init__()


class Page(Screen[None]):
    """A screen without a run. The app's keys for leaving end up in `leave`, and the kill key in
    `kill_active_runs` of the page at the bottom, which knows all active runs."""

    def leave(self) -> None:
        """Goes back to the page below; may ask first."""
        self.app.pop_screen()

    def kill_active_runs(self) -> None:
        """Kills all active runs, after one question."""
