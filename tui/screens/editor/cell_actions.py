"""What is done to one cell: chosen, typed into, checked, taken."""

from __future__ import annotations

import asyncio

from textual import on, work

from launcher.cluster.draft import examine
from launcher.cluster.edit import EditError
from launcher.cluster.paste import PasteError
from tui.screens.editor.completion import Completion, matching
from tui.screens.editor.fields import Field
from tui.screens.editor.preview import PlanPreview
from tui.screens.editor.shown import PAUSE, ShownDraft
from tui.screens.editor.table import EditTable
from tui.screens.editor.table_models import candidates
from tui.widgets.cell_grid import CellGrid


class CellActions(ShownDraft):
    """The part of the editor that works on the cell under the cursor."""

    @on(CellGrid.Moved)
    def _moved(self) -> None:
        table = self._table
        if table is not None and table.id == "jobs" and table.body.rows:
            job = table.body.rows[table.body.row].key
            if job != self._tasks.job:
                self._tasks.job = job
                tasks = self.query_one("#tasks", EditTable).body
                tasks.show(self._tasks.titles, self._tasks.rows(self.draft.now))
        if table is not None and table.body.rows:
            if table.id == "tasks":
                self.query_one(PlanPreview).go_to(f"{self._tasks.job}:{table.body.row}")
            elif table.id == "jobs":
                self.query_one(PlanPreview).go_to(f"{self._tasks.job}:0")
        self._show_about()

    @on(CellGrid.Chosen)
    def _chosen(self) -> None:
        table, document = self._table, self.draft.now.document
        if table is None or document is None or table.body.cell is None:
            return
        if table.id == "run":
            table.body.column = 1
        field = self._sheet(table).field(table.body.row, table.body.column)
        if field is None:
            self.notify("this cell follows from its place")
            return
        known = candidates(field, document)
        completion = Completion(lambda _: known) if known else None
        table.open(table.body.cell.text, self._about(field, table.body.cell.text), completion)
        if table.body.cell.problem:
            table.say(table.body.cell.problem, "")
        self._show_about()

    def _about(self, field: Field, typed: str) -> str:
        """What the field is for, or how what is typed could go on."""
        document = self.draft.now.document
        known = candidates(field, document) if document else []
        found = matching(typed, known)
        if found:
            return "→ " + "  ".join(found[:8])
        if field.choices and not typed:
            return f"{field.about}: {', '.join(word.strip() for word in field.choices)}"
        return field.about

    @on(EditTable.Typed)
    def _typed(self, event: EditTable.Typed) -> None:
        self._check(event.table, event.text)

    @work(exclusive=True, group="check")
    async def _check(self, table: EditTable, text: str) -> None:
        """Checks what is typed after a short pause, off this loop."""
        await asyncio.sleep(PAUSE)
        document = self.draft.now.document
        if document is None or not table.editing():
            return
        row, column, sheet = table.body.row, table.body.column, self._sheet(table)
        field = sheet.field(row, column)
        assert field is not None
        try:
            trial = await asyncio.to_thread(
                lambda: examine(sheet.put(document, row, column, text).text, self.draft.path)
            )
        except (EditError, PasteError, ValueError) as error:
            table.say(str(error), "")
            return
        if not table.editing():
            return
        self._trial = trial
        self._show_all(file_too=False)
        rows = sheet.rows(trial)
        cells = rows[row].cells if row < len(rows) else ()
        problem = cells[column].problem if column < len(cells) else ""
        table.say(problem, self._about(field, text))

    @on(EditTable.Done)
    def _done(self, event: EditTable.Done) -> None:
        table, document = event.table, self.draft.now.document
        assert document is not None
        body = table.body
        self._trial = None
        if event.text != table.original:
            try:
                changed = self._sheet(table).put(document, body.row, body.column, event.text)
            except (EditError, PasteError, ValueError) as error:
                table.say(str(error), "")
                self.app.bell()
                return
            before = body.row
            self._take(changed)
            body.row = min(before, max(0, len(body.rows) - 1))
        else:
            self._show_all()
        table.close()
        if event.by:
            self._next_cell(table, event.by)
        self._show_about()

    def _next_cell(self, table: EditTable, by: int) -> None:
        """On to the next cell, which is opened at once."""
        body = table.body
        if table.id == "run":
            body.go_to(body.row + by, 1)
            return
        column = body.column + by
        row = body.row
        if column >= len(body.titles):
            row, column = row + 1, 0
        elif column < 0:
            row, column = row - 1, len(body.titles) - 1
        if 0 <= row < len(body.rows):
            body.go_to(row, column)

    @on(EditTable.Cancelled)
    def _cancelled(self) -> None:
        self._trial = None
        self._show_all()
