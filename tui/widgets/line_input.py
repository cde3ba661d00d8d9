"""Line input: a text field for one line, and the line below it."""

from __future__ import annotations

from textual import events
from textual.widgets import Input, Static

from launcher.printable import visible


class LineInput(Input):
    """An `Input` in which a pasted text of several lines stays one, its line ends shown as ␊. With
    the focus it shows its cursor, which begins at the end, also of a text longer than the field."""

    def on_focus(self) -> None:
        """Scrolls to the cursor, when the field has got its place."""
        if self.cursor_at_end:
            self.call_after_refresh(self._scroll_to_end)

    def _scroll_to_end(self) -> None:
        self.scroll_to(x=self.virtual_size.width, animate=False, force=True)

    def on_paste(self, event: events.Paste) -> None:
        """Pastes all lines as one."""
        event.stop()
        event.prevent_default()
        text = event.text.replace("\r\n", "\n").replace("\r", "\n").strip("\n")
        start, end = sorted(self.selection)
        self.replace(visible(text), start, end)


class ProblemLine(Static):
    """Line below an input: what is wrong with its text, otherwise what it is for."""

    DEFAULT_CSS = """
    ProblemLine { height: auto; color: $text-muted; }
    ProblemLine.wrong { color: $status-bad; }
    """

    def __init__(self, about: str = "", *, classes: str = "") -> None:
        super().__init__(about, classes=classes, markup=False)

    def show(self, problem: str, about: str = "") -> None:
        """Shows a problem, or without one a description."""
        self.set_class(bool(problem), "wrong")
        self.update(f"! {problem}" if problem else about)
