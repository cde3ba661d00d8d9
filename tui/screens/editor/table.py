"""A table whose cells are edited where they stand."""

from __future__ import annotations

from rich.cells import cell_len
from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Input, Static

from tui.cells import GAP
from tui.screens.editor.completion import Completion
from tui.widgets.cell_grid import WIDEST, CellGrid
from tui.widgets.line_input import LineInput

EDITOR_WIDTH = 60


class CellInput(LineInput):
    """The field over a cell."""

    class Left(Message):
        """Escape, or Tab in a direction (0: Escape)."""

        def __init__(self, by: int) -> None:
            self.by = by
            super().__init__()

    async def on_key(self, event: events.Key) -> None:
        """Keys that leave the field."""
        by = {"escape": 0, "tab": 1, "shift+tab": -1}.get(event.key)
        if by is not None:
            event.stop()
            event.prevent_default()
            self.post_message(self.Left(by))


class EditTable(Widget):
    """The cells, and over them the field with a line for what is wrong or what the field is for."""

    DEFAULT_CSS = """
    EditTable { height: 1fr; layers: cells field; }
    EditTable #over { layer: field; position: absolute; height: auto; display: none; }
    EditTable #over Input { background: $primary-muted; color: $text; }
    EditTable #over Static { background: $surface; color: $text-muted; height: auto; padding: 0 1; }
    EditTable #over Static.wrong { color: $status-bad; }
    """

    class Typed(Message):
        """The field's text is another one."""

        def __init__(self, table: EditTable, text: str) -> None:
            self.table = table
            self.text = text
            super().__init__()

    class Done(Message):
        """The field is to be taken; `by` is where the cursor goes after that."""

        def __init__(self, table: EditTable, text: str, by: int) -> None:
            self.table = table
            self.text = text
            self.by = by
            super().__init__()

    class Cancelled(Message):
        """The field was left without taking it."""

        def __init__(self, table: EditTable) -> None:
            self.table = table
            super().__init__()

    def __init__(
        self,
        nothing: str,
        *,
        id: str,  # noqa: A002
        first: int = 0,
        widest: int = WIDEST,
    ) -> None:
        super().__init__(id=id)
        self.body = CellGrid(nothing, first, widest)
        self.original = ""
        """What stood in the cell when the field was opened: the cells already show what is being
        typed as soon as it has been checked."""

    def compose(self) -> ComposeResult:
        """The cells, and the field."""
        yield self.body
        with Vertical(id="over"):
            yield CellInput(compact=True, select_on_focus=False)
            yield Static(markup=False)

    def editing(self) -> bool:
        """The field is open."""
        return bool(self.query_one("#over").display)

    def open(self, text: str, about: str, completion: Completion | None) -> None:
        """Opens the field over the cell under the cursor."""
        over, field = self.query_one("#over"), self.query_one(CellInput)
        x, y = self.body.seen_at(self.body.row, self.body.column)
        wide = self.body.region_of(self.body.row, self.body.column).width + GAP
        width = min(self.size.width, max(wide, EDITOR_WIDTH, cell_len(text) + 3))
        over.styles.width = width
        over.styles.offset = (
            max(0, min(x, self.size.width - width)),
            max(0, min(y, self.size.height - 3)),
        )
        field.suggester = completion
        self.original = text
        with self.prevent(Input.Changed):
            field.value = text
        field.cursor_position = len(text)
        self.say("", about)
        over.display = True
        self.screen.set_focus(field)  # now, not after keys that have already come
        # Before it has a size it cannot know how far to scroll.
        self.call_after_refresh(self._show_end)

    def _show_end(self) -> None:
        field = self.query_one(CellInput)
        if field.cursor_position == len(field.value):
            field.action_home()
            field.action_end()

    def close(self) -> None:
        """Closes the field; the cells have the focus again."""
        self.query_one("#over").display = False
        self.screen.set_focus(self.body)

    def say(self, problem: str, about: str) -> None:
        """What is wrong with what stands in the field, else what it is for."""
        line = self.query_one("#over Static", Static)
        line.set_class(bool(problem), "wrong")
        line.update(f"⚠ {problem}" if problem else about)

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        event.stop()
        self.post_message(self.Typed(self, event.value))

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.post_message(self.Done(self, event.value, 0))

    @on(CellInput.Left)
    def _left(self, event: CellInput.Left) -> None:
        event.stop()
        if event.by:
            self.post_message(self.Done(self, self.query_one(CellInput).value, event.by))
        else:
            self.close()
            self.post_message(self.Cancelled(self))
