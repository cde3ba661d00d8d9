"""Table of the editor: shows a table model, and edits its cells in place."""

from __future__ import annotations

import asyncio

from rich.text import Text
from textual import on, work
from textual.app import ComposeResult
from textual.geometry import Offset
from textual.message import Message
from textual.widget import Widget

from launcher.cluster.draft import parse
from tui.cells import GAP
from tui.screens.editor.cell_field import CellField
from tui.screens.editor.completion import Completion, matching
from tui.screens.editor.document_edits import candidates
from tui.screens.editor.fields import Field
from tui.screens.editor.state import EDIT_ERRORS, EditorState
from tui.screens.editor.table_models import TableModel
from tui.widgets.cell_grid import WIDEST, CellGrid
from tui.widgets.colours import theme_colour

PAUSE = 0.12
"""Seconds without a key after which a typed text is checked: checking a large cluster takes longer
than a finger needs for the next key."""


class EditTable(Widget):
    """Cells of a table model, and the field over the one that is being edited."""

    DEFAULT_CSS = """
    EditTable { height: 1fr; layers: cells field; }
    """

    class Changed(Message):
        """The draft or its trial has changed, or the field was opened or closed."""

    def __init__(
        self,
        state: EditorState,
        model: TableModel,
        *,
        id: str,  # noqa: A002
        first: int = 0,
        widest: int = WIDEST,
        one_column: bool = False,
    ) -> None:
        """`first` is the first column that the cursor goes to; with `one_column` it is the only
        one that is edited, and Tab goes down."""
        super().__init__(id=id)
        self.model = model
        self.body = CellGrid(model.nothing, first, widest)
        self._state = state
        self._first = first
        self._one_column = one_column
        self._original = ""
        """Text of the cell when the field was opened: the cells already show what is being typed
        as soon as it has been checked."""

    def compose(self) -> ComposeResult:
        """The cells, and the field."""
        yield self.body
        yield CellField(id="over")

    def editing(self) -> bool:
        """The field is open."""
        return bool(self._field.display)

    @property
    def _field(self) -> CellField:
        return self.query_one(CellField)

    @property
    def key(self) -> str:
        """Key of the row under the cursor; empty if there is none."""
        return self.body.rows[self.body.row].key if self.body.rows else ""

    def show(self) -> None:
        """Shows the draft, or its trial."""
        if self._state.shown.document is not None:
            self.body.show(self.model.titles, self.model.rows(self._state.shown))

    def description(self) -> Text:
        """The problem of the cell under the cursor, otherwise its value and what it is for."""
        text = Text()
        cell = self.body.cell
        if cell is None or self.editing():
            return text
        field = self.model.field(self.body.row, self.body.column)
        if problem := cell.problem or self.body.rows[self.body.row].problem:
            text.append(f"⚠ {problem}", theme_colour(self.app, "status-bad"))
        elif field is not None and not cell.fixed:
            text.no_wrap, text.overflow = True, "ellipsis"
            value = cell.text or (f"{cell.default} (default)" if cell.default else "not set")
            text.append(f"{field.title}: ", "bold")
            text.append(value)
            text.append(f"   {field.about}", "dim")
        return text

    # editing a cell

    @on(CellGrid.Chosen)
    def _open(self) -> None:
        document, cell = self._state.document, self.body.cell
        if document is None or cell is None:
            return
        if self._one_column:
            self.body.column = self._first
            cell = self.body.cell or cell
        field = self.model.field(self.body.row, self.body.column)
        if field is None:
            self.notify("this cell cannot be edited")
            return
        known = candidates(field, document)
        self._original = cell.text
        self._field.open(
            cell.text,
            Offset(*self.body.seen_at(self.body.row, self.body.column)),
            self.body.region_of(self.body.row, self.body.column).width + GAP,
            self.size,
            Completion(lambda _: known) if known else None,
        )
        self._field.tell(cell.problem, self._hint(field, cell.text))
        self.post_message(self.Changed())

    def _hint(self, field: Field, typed: str) -> str:
        """Completions of the typed text, otherwise what the field is for."""
        document = self._state.document
        found = matching(typed, candidates(field, document) if document else [])
        if found:
            return "→ " + "  ".join(found[:8])
        if field.choices and not typed:
            return f"{field.about}: {', '.join(word.strip() for word in field.choices)}"
        return field.about

    @on(CellField.Typed)
    def _typed(self, event: CellField.Typed) -> None:
        event.stop()
        self._check(event.text)

    @work(exclusive=True, group="check")
    async def _check(self, text: str) -> None:
        """Checks a typed text after a short pause, in a thread."""
        await asyncio.sleep(PAUSE)
        document, path = self._state.document, self._state.draft.path
        if document is None or not self.editing():
            return
        row, column = self.body.row, self.body.column
        field = self.model.field(row, column)
        assert field is not None
        try:
            trial = await asyncio.to_thread(
                lambda: parse(self.model.put(document, row, column, text).text, path)
            )
        except EDIT_ERRORS as error:
            self._field.tell(str(error))
            return
        if not self.editing():
            return
        self._state.trial = trial
        self.post_message(self.Changed())
        rows = self.model.rows(trial)
        cells = rows[row].cells if row < len(rows) else ()
        problem = cells[column].problem if column < len(cells) else ""
        self._field.tell(problem, self._hint(field, text))

    @on(CellField.Accepted)
    def _accept(self, event: CellField.Accepted) -> None:
        event.stop()
        row, column = self.body.row, self.body.column
        self._state.trial = None
        if event.text != self._original:
            try:
                self._state.edit(lambda d: self.model.put(d, row, column, event.text))
            except EDIT_ERRORS as error:
                self._field.tell(str(error))
                self.app.bell()
                return
        self.show()
        self.body.row = row  # a renamed row has another key
        self._close()
        if event.by:
            self._move(event.by)

    @on(CellField.Cancelled)
    def _cancel(self, event: CellField.Cancelled) -> None:
        event.stop()
        self._state.trial = None
        self._close()

    def _close(self) -> None:
        self._field.display = False
        self.screen.set_focus(self.body)
        self.post_message(self.Changed())

    def _move(self, by: int) -> None:
        """Moves the cursor to the next or previous cell."""
        body = self.body
        if self._one_column:
            body.go_to(body.row + by, self._first)
            return
        row, column = body.row, body.column + by
        if column >= len(body.titles):
            row, column = row + 1, 0
        elif column < 0:
            row, column = row - 1, len(body.titles) - 1
        if 0 <= row < len(body.rows):
            body.go_to(row, column)
