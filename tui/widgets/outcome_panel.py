"""Outcome panel: how the run ended, below the panes and never over them."""

from __future__ import annotations

from textual.containers import VerticalScroll
from textual.widgets import Static

from launcher.run.snapshot import Snapshot
from tui.outcome import failure_text, headline, paragraphs, receipt_text
from tui.widgets.colours import status_colours

TALL = 36
LAST_LINES = 5
"""Last lines of a failure on a tall terminal; on a low one they stand in the pane of the task."""


class OutcomePanel(VerticalScroll, can_focus=False):
    """Hidden until the run has ended by itself; what has no room scrolls."""

    def __init__(self) -> None:
        self._text = Static(markup=False)
        super().__init__(self._text)

    def show(self, snapshot: Snapshot) -> None:
        """Shows the outcome, the first failure and the receipt."""
        colours = status_colours(self.app)
        tall = self.app.size.height >= TALL
        head = headline(snapshot, colours)
        failure = failure_text(snapshot, colours, LAST_LINES if tall else 0)
        receipt = receipt_text(snapshot, colours)
        if tall:
            self._text.update(paragraphs(head, failure, receipt))
        else:
            self._text.update(head.append_text(failure).append_text(receipt))
        self.display = True
