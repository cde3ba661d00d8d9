"""The cluster editor."""

from __future__ import annotations

from pathlib import Path

from tui.screens.page import Page
from tui.screens.prompts import Asker
from tui.sessions import Sessions


class EditorScreen(Page):
    """Hosts and jobs in tables."""

    def __init__(self, path: Path, sessions: Sessions, asker: Asker) -> None:
        super().__init__()
