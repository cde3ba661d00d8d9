"""Table of the editor: shows a table model, and edits its cells in place."""

from __future__ import annotations

import asyncio

from rich.cells import cell_len
from rich.text import Text
from textual import events, on, work
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Input

from launcher.cluster.draft import parse
from launcher.cluster.edit import EditError
from tui.cells import GAP
from tui.keys import key_of
from tui.screens.editor.completion import Completion, matching
from tui.screens.editor.document_edits import candidates
from tui.screens.editor.fields import Field
from tui.screens.editor.state import EDIT_ERRORS, EditorState
from tui.screens.editor.table_models import TableModel
from tui.widgets.cell_grid import CellGrid
from tui.widgets.colours import theme_colour
from tui.widgets.line_input import LineInput, ProblemLine

PAUSE = 0.12
"""Seconds without a key after which a typed text is checked: checking a large cluster takes longer
than a finger needs for the next key."""
_FIELD_WIDTH = 60
_FIELD_HEIGHT = 3


class CellInput(LineInput):
    """An input that Escape and Tab leave."""

    class Left(Message):
        """Escape (0), Tab (1) or Shift-Tab (-1)."""

        def __init__(self, by: int) -> None:
            self.by = by
            super().__init__()

    async def on_key(self, event: events.Key) -> None:
        by = {"escape": 0, "tab": 1, "shift+tab": -1}.get(event.key)
        if by is not None:
            event.stop()
            event.prevent_default()
            self.post_message(self.Left(by))


class EditTable(Widget):
    """Cells of a table model, and over the one being edited a field: an input, and below it the
    problem or the description of its text."""

    DEFAULT_CSS = """
    EditTable { height: 1fr; layers: cells field; }
    EditTable #field { layer: field; position: absolute; height: auto; display: none; }
    EditTable Input { background: $primary-muted; color: $text; }
    EditTable ProblemLine { background: $surface; padding: 0 1; }
    """

    class Changed(Message):
        """The draft or its trial has changed, or the field was opened or closed."""

    def __init__(self, state: EditorState, model: TableModel) -> None:
        super().__init__(id=model.name)
        self.model = model
        self.body = CellGrid(first=model.first, widest=model.widest)
        self._field = Vertical(id="field")
        self._input = CellInput(compact=True, select_on_focus=False)
        self._problem = ProblemLine()
        self._state = state
        self._row_key = ""
        self._column = 0
        """Column of the cell being edited, and above the key of its row: the cursor may move."""
        self._original = ""
        """Text of the cell when the field was opened: the cells already show what is being typed
        as soon as it has been checked."""

    def compose(self) -> ComposeResult:
        yield self.body
        with self._field:
            yield self._input
            yield self._problem

    def editing(self) -> bool:
        """Whether the field is open."""
        return bool(self._field.display)

    @property
    def key(self) -> str:
        """Key of the row under the cursor; empty if there is none."""
        return self.body.rows[self.body.row].key if self.body.rows else ""

    def show(self) -> None:
        """Shows the draft, or its trial."""
        add, paste = key_of(self, "edit.add"), key_of(self, "edit.paste")
        self.body.nothing = f"{self.model.nothing}: {add} adds some, {paste} pastes a cluster"
        if self._state.displayed.document is not None:
            self.body.show(self.model.titles, self.model.rows(self._state.displayed))

    def description(self) -> Text:
        """The problem of the cell under the cursor, otherwise its value and what it is for."""
        text = Text()
        cell = self.body.cell
        if cell is None or self.editing():
            return text
        field = self.model.field(self.body.row, self.body.column)
        if problem := cell.problem or self.body.rows[self.body.row].problem:
            text.append(f"! {problem}", theme_colour(self.app, "status-bad"))
        elif field is not None and not cell.fixed:
            text.no_wrap, text.overflow = True, "ellipsis"
            value = cell.text or (f"{cell.default} (default)" if cell.default else "not set")
            text.append(f"{field.title}: ", "bold")
            text.append(value)
            text.append(f"   {field.about}", "dim")
        else:
            text.append(self.model.about(self.key), "dim")
        return text

    # editing a cell

    @on(CellGrid.Chosen)
    def _open(self) -> None:
        if not self.accept():
            return
        document, cell = self._state.document, self.body.cell
        if document is None or cell is None:
            return
        if self.model.one_column:
            self.body.column = self.model.first
            cell = self.body.cell or cell
        field = self.model.field(self.body.row, self.body.column)
        if field is None or cell.fixed:
            self.notify("this cell cannot be edited")
            return
        self._row_key, self._column = self.key, self.body.column
        self._original = cell.text
        self._input.suggester = Completion(candidates(field, document))
        with self.prevent(Input.Changed):
            self._input.value = cell.text
        self._input.cursor_position = len(cell.text)
        self._place_field(cell.text)
        self._problem.show(cell.problem, self._hint(field, cell.text))
        self.screen.set_focus(self._input)  # now, not after keys that have already come
        # Before it has a size it cannot know how far to scroll.
        self.call_after_refresh(self._show_end)
        self.post_message(self.Changed())

    def _place_field(self, text: str) -> None:
        """Shows the field over the cell under the cursor, within the table."""
        field, place = self._field, (self.body.row, self.body.column)
        wanted = self.body.region_of(*place).width + GAP
        width = min(self.size.width, max(wanted, _FIELD_WIDTH, cell_len(text) + 3))
        x, y = self.body.cell_offset(*place)
        field.styles.width = width
        field.styles.offset = (
            max(0, min(x, self.size.width - width)),
            max(0, min(y, self.size.height - _FIELD_HEIGHT)),
        )
        field.display = True

    def _show_end(self) -> None:
        if self._input.cursor_position == len(self._input.value):
            self._input.action_home()
            self._input.action_end()

    def _hint(self, field: Field, typed: str) -> str:
        """Completions of the typed text, otherwise what the field is for."""
        document = self._state.document
        found = matching(typed, candidates(field, document) if document else [])
        if found:
            return "→ " + "  ".join(found[:8])
        if field.choices and not typed:
            return f"{field.about}: {', '.join(word.strip() for word in field.choices)}"
        return field.about

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        self._check(event.value)

    @work(exclusive=True, group="check")
    async def _check(self, text: str) -> None:
        """Checks a typed text after a short pause, in a thread."""
        await asyncio.sleep(PAUSE)
        document, path = self._state.document, self._state.draft.path
        if document is None or not self.editing():
            return
        column = self._column
        try:
            row = self._edited_row()
            trial = await asyncio.to_thread(
                lambda: parse(self.model.put(document, row, column, text).text, path)
            )
        except EDIT_ERRORS as error:
            self._problem.show(str(error))
            return
        field = self.model.field(row, column)
        if field is None or document is not self._state.document:
            return  # the draft has changed meanwhile
        self._state.trial = trial
        self.post_message(self.Changed())
        rows = self.model.rows(trial)
        cells = rows[row].cells if row < len(rows) else ()
        problem = cells[column].problem if column < len(cells) else ""
        self._problem.show(problem, self._hint(field, text))

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.accept()

    @on(Input.Blurred)
    def _blurred(self, event: Input.Blurred) -> None:
        event.stop()
        # Nothing has the focus while another window of the desktop has it.
        if self.screen.focused not in (None, self._input):
            self.accept()

    def on_hide(self) -> None:
        """Leaves no field open that nobody can see."""
        if not self.accept():
            self.cancel()

    @on(CellInput.Left)
    def _left(self, event: CellInput.Left) -> None:
        event.stop()
        if not event.by:
            self.cancel()
        elif self.accept():
            self._move(event.by)

    def _edited_row(self) -> int:
        """Number, in the draft, of the row whose cell is being edited.

        Raises:
            EditError: the row has gone.
        """
        now = self._state.draft.now
        keys = [] if now.document is None else [row.key for row in self.model.rows(now)]
        if self._row_key not in keys:
            raise EditError("the row of this cell no longer exists")
        return keys.index(self._row_key)

    def accept(self) -> bool:
        """Closes the field if it is open, and puts its text into the cell. False if the text
        means nothing: the field stays open and says why."""
        if not self.editing():
            return True
        column, text, cursor = self._column, self._input.value, self.body.row
        self._state.trial = None
        if text != self._original:
            try:
                row = self._edited_row()
                self._state.edit(lambda d: self.model.put(d, row, column, text))
            except EDIT_ERRORS as error:
                self._problem.show(str(error))
                self.app.bell()
                self.screen.set_focus(self._input)
                return False
        self.show()
        self.body.row = cursor  # a renamed row has another key
        self._close()
        return True

    def cancel(self) -> bool:
        """Closes the field without effect; False if it is not open."""
        if not self.editing():
            return False
        self._state.trial = None
        self._close()
        return True

    def _close(self) -> None:
        self.workers.cancel_group(self, "check")
        self._field.display = False
        if self.screen.focused is self._input:
            self.screen.set_focus(self.body)
        self.post_message(self.Changed())

    def _move(self, by: int) -> None:
        """Moves the cursor to the next or previous cell."""
        body = self.body
        if self.model.one_column:
            body.go_to(body.row + by, self.model.first)
            return
        row, column = body.row, body.column + by
        if column >= len(body.titles):
            row, column = row + 1, 0
        elif column < 0:
            row, column = row - 1, len(body.titles) - 1
        if 0 <= row < len(body.rows):
            body.go_to(row, column)
