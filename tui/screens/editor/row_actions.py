"""Commands on rows of the editor's tables: add, copy, delete, paste, define missing hosts."""

from __future__ import annotations

from collections.abc import Callable

from textual.screen import Screen

from launcher.cluster.edit import ClusterDocument
from launcher.cluster.shorthand import entries, spec
from tui.keys import key_of
from tui.screens.dialogs import AskText, ask
from tui.screens.editor.document_edits import (
    add_missing,
    all_tasks,
    differing,
    engine_of,
    put_spec,
    use_hosts,
    use_slurm,
)
from tui.screens.editor.state import EDIT_ERRORS, Change, EditorState
from tui.screens.editor.table import EditTable
from tui.screens.editor.table_models import problem_of
from tui.screens.editor.tables import ClusterTables


class RowActions:
    """Row commands of one editor; dialogs are awaited, so they run in Textual workers."""

    def __init__(
        self,
        screen: Screen[None],
        state: EditorState,
        tables: ClusterTables,
        changed: Callable[[], None],
    ) -> None:
        """`changed` shows the draft after an edit."""
        self._screen = screen
        self._state = state
        self._tables = tables
        self._changed = changed

    def edit(self, change: Change) -> bool:
        """Changes the document; shows an error and returns False if that is impossible."""
        try:
            self._state.edit(change)
        except EDIT_ERRORS as error:
            self._screen.notify(str(error), severity="error", timeout=10)
            return False
        self._changed()
        return True

    async def add(self) -> None:
        """Asks for a line, and adds the rows that it stands for."""
        table, document = self._tables.focused, self._state.document
        dialog = table.model.add_dialog(document) if table and document else None
        if table is None or dialog is None:
            return
        line = await ask(self._screen, dialog)
        before = {row.key for row in table.body.rows}
        if line and self.edit(lambda d: table.model.add(d, line)):
            self._go_to_new(table, before)

    def copy(self) -> None:
        """Adds a row like the one under the cursor."""
        table = self._tables.focused
        if table is None or not table.body.rows:
            return
        before = {row.key for row in table.body.rows}
        if self.edit(lambda d: table.model.copy(d, table.body.row)):
            self._go_to_new(table, before)

    def fill(self) -> None:
        """Gives all rows of a column the value of the cell under the cursor."""
        table = self._tables.focused
        if table is None or not table.body.rows:
            return
        row, column = table.body.row, table.body.column
        if self.edit(lambda d: table.model.fill(d, row, column)):
            title, undo = table.body.titles[column], key_of(self._screen, "edit.undo")
            self._screen.notify(f"{title} is the same in all rows; {undo} undoes it", timeout=4)

    def _go_to_new(self, table: EditTable, before: set[str]) -> None:
        """Moves to the last of the rows that were not there before."""
        column = table.body.column if table is self._tables.tasks else 0
        new = [number for number, row in enumerate(table.body.rows) if row.key not in before]
        if new:
            table.body.go_to(new[-1], column)

    def remove(self) -> None:
        """Deletes the row under the cursor."""
        table = self._tables.focused
        if table is not None and table.body.rows:
            self.edit(lambda d: table.model.remove(d, table.body.row))

    def clear(self) -> None:
        """Empties the cell under the cursor."""
        table = self._tables.focused
        if table is not None and table.body.rows:
            row, column = table.body.row, table.body.column
            self.edit(lambda d: table.model.put(d, row, column, ""))

    async def paste(self) -> None:
        """Asks for a cluster spec in any form, and makes jobs, tasks and hosts of it."""
        job = self._tables.job or "worker"
        about = "a TF_CONFIG, ps=tf1:2222 worker=tf2:2222,tf3:2222, or tasks for "
        about += f"{job}: tf1:2222,tf2:2222"
        dialog = AskText("Paste a cluster", "", _spec_problem, about)
        line = await ask(self._screen, dialog)
        if line:
            self.edit(lambda d: _pasted(d, line, job))

    def switch_hosts(self) -> None:
        """Lets Slurm give the hosts, or takes them back from it."""
        document = self._state.document
        engine = document is not None and engine_of(document) is not None
        lost = [] if document is None or engine else differing(document)
        if self.edit(use_hosts if engine else use_slurm):
            undo = key_of(self._screen, "edit.undo")
            now = "[hosts], by SSH" if engine else "nodes of Slurm"
            dropped = f"; not kept, since hosts differ in it: {', '.join(lost)}" if lost else ""
            self._screen.notify(f"the tasks run on {now}{dropped}; {undo} undoes it", timeout=10)

    def define_missing(self) -> None:
        """Defines the hosts that tasks name and the file does not."""
        missing = self._state.missing_hosts()
        if missing and self.edit(lambda d: add_missing(d, all_tasks(d))):
            names = ", ".join(missing[:8])
            self._screen.notify(f"added {names}; SSH logs in by these names")


def _pasted(document: ClusterDocument, line: str, job: str) -> ClusterDocument:
    found = spec(line)
    return put_spec(document, {job: entries(line)} if found is None else found)


def _spec_problem(line: str) -> str:
    return problem_of(line, lambda text: spec(text) or entries(text))
