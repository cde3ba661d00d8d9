"""Outcome panel: how the run ended, below the panes and never over them."""

from __future__ import annotations

from textual.widgets import Static

from launcher.run.snapshot import Snapshot
from tui.outcome import failure_text, headline, paragraphs, receipt_text
from tui.widgets.colours import status_colours

TALL = 36
MANY, FEW = 5, 2
"""Last lines of a failure on a tall and on a low terminal."""


class OutcomePanel(Static):
    """Hidden until the run has ended by itself."""

    def show(self, snapshot: Snapshot) -> None:
        """Shows how it ended, with few last lines of a failure: its pane has them all."""
        tail = MANY if self.app.size.height >= TALL else FEW
        colours = status_colours(self.app)
        failure = failure_text(snapshot, colours, tail)
        receipt = receipt_text(snapshot, colours)
        self.update(paragraphs(headline(snapshot, colours), failure, receipt))
        self.display = True
