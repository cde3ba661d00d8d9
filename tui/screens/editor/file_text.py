"""The file as text."""

from __future__ import annotations

from textual import events
from textual.widgets import TextArea


class FileText(TextArea):
    """A text area in which Tab indents and Escape leads back, as everywhere in the editor.

    The stock one moves the focus on Escape, which on a page of one widget does nothing.
    """

    def __init__(self) -> None:
        super().__init__(show_line_numbers=True, tab_behavior="indent")

    async def on_key(self, event: events.Key) -> None:
        """Escape."""
        if event.key == "escape":
            event.stop()
            event.prevent_default()
            await self.run_action("screen.back")
