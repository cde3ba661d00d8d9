"""Input over a cell, with a line below it for the problem or the description of its text."""

from __future__ import annotations

from rich.cells import cell_len
from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.geometry import Offset, Size
from textual.message import Message
from textual.widgets import Input, Static

from tui.screens.editor.completion import Completion
from tui.widgets.line_input import LineInput

_WIDTH = 60
_HEIGHT = 3


class CellInput(LineInput):
    """An input that Escape and Tab leave."""

    class Left(Message):
        """Escape (0), Tab (1) or Shift-Tab (-1)."""

        def __init__(self, by: int) -> None:
            self.by = by
            super().__init__()

    async def on_key(self, event: events.Key) -> None:
        """Keys that leave the input."""
        by = {"escape": 0, "tab": 1, "shift+tab": -1}.get(event.key)
        if by is not None:
            event.stop()
            event.prevent_default()
            self.post_message(self.Left(by))


class CellField(Vertical):
    """Hidden until it is opened over a cell."""

    DEFAULT_CSS = """
    CellField { layer: field; position: absolute; height: auto; display: none; }
    CellField Input { background: $primary-muted; color: $text; }
    CellField Static { background: $surface; color: $text-muted; height: auto; padding: 0 1; }
    CellField Static.wrong { color: $status-bad; }
    """

    class Typed(Message):
        """The text has changed."""

        def __init__(self, text: str) -> None:
            self.text = text
            super().__init__()

    class Accepted(Message):
        """The text is accepted; `by` is how far the cursor then moves."""

        def __init__(self, text: str, by: int) -> None:
            self.text = text
            self.by = by
            super().__init__()

    class Cancelled(Message):
        """The text is to be dropped."""

    def compose(self) -> ComposeResult:
        """Input and line."""
        yield CellInput(compact=True, select_on_focus=False)
        yield Static(markup=False)

    def open(
        self, text: str, at: Offset, width: int, around: Size, completion: Completion | None
    ) -> None:
        """Opens over a cell of `width` at an offset within a table of size `around`."""
        edit = self.query_one(CellInput)
        width = min(around.width, max(width, _WIDTH, cell_len(text) + 3))
        self.styles.width = width
        self.styles.offset = (
            max(0, min(at.x, around.width - width)),
            max(0, min(at.y, around.height - _HEIGHT)),
        )
        edit.suggester = completion
        with self.prevent(Input.Changed):
            edit.value = text
        edit.cursor_position = len(text)
        self.display = True
        self.screen.set_focus(edit)  # now, not after keys that have already come
        # Before it has a size it cannot know how far to scroll.
        self.call_after_refresh(self._show_end)

    def _show_end(self) -> None:
        edit = self.query_one(CellInput)
        if edit.cursor_position == len(edit.value):
            edit.action_home()
            edit.action_end()

    def tell(self, problem: str, about: str = "") -> None:
        """Shows a problem, otherwise a description."""
        line = self.query_one(Static)
        line.set_class(bool(problem), "wrong")
        line.update(f"⚠ {problem}" if problem else about)

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        event.stop()
        self.post_message(self.Typed(event.value))

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.post_message(self.Accepted(event.value, 0))

    @on(CellInput.Left)
    def _left(self, event: CellInput.Left) -> None:
        event.stop()
        if event.by:
            self.post_message(self.Accepted(self.query_one(CellInput).value, event.by))
        else:
            self.post_message(self.Cancelled())
