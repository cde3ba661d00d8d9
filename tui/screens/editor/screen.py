"""The cluster editor: hosts, jobs and rules in tables over the file, and a live plan beside."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from textual.binding import Binding, BindingType

from launcher.cluster.draft import Draft
from launcher.cluster.library import SaveError
from tui.screens.editor.cell_actions import CellActions
from tui.screens.editor.file_actions import FileActions
from tui.screens.editor.file_text import FileText
from tui.screens.editor.row_actions import RowActions
from tui.screens.editor.shown import PAGES
from tui.screens.editor.table import EditTable
from tui.screens.prompts import Asker
from tui.sessions import Sessions

LOOK_AT_DISK = 1.5


class EditorScreen(RowActions, CellActions, FileActions):
    """Edits one cluster file, and launches what it says."""

    CSS_PATH = "screen.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(str(n), f"page('{page}')", f"{page.capitalize()} page", id=f"edit.{page}")
            for n, page in enumerate(PAGES, 1)
        ),
        Binding("tab", "other_table", "The other table", id="edit.other"),
        Binding("a", "add", "Add a row", id="edit.add"),
        Binding("c", "copy_row", "Copy the row", id="edit.copy"),
        Binding("x,delete", "remove", "Delete the row", id="edit.remove"),
        Binding("backspace", "clear", "Empty the cell", id="edit.clear"),
        Binding("p", "paste", "Paste a cluster spec or TF_CONFIG", id="edit.paste"),
        Binding("m", "missing", "Add the hosts that tasks name", id="edit.missing"),
        Binding("e", "problem", "Next problem", id="edit.problem"),
        Binding("ctrl+z,u", "undo", "Undo", id="edit.undo"),
        Binding("ctrl+y", "redo", "Redo", id="edit.redo"),
        Binding("ctrl+s", "save", "Save", id="edit.save", priority=True),
        Binding("S", "save_as", "Save under another name", id="edit.save_as"),
        Binding("t", "test", "Test: look at every host", id="edit.test"),
        Binding("l,f5", "launch", "Launch", id="edit.launch"),
        Binding("escape", "back", "Back", id="edit.back"),
    ]

    def __init__(
        self, path: Path, sessions: Sessions, asker: Asker, *, page: str = "hosts"
    ) -> None:
        super().__init__(sessions, asker, page)
        self._path = path
        self._problem = -1

    def on_mount(self) -> None:
        try:
            self._draft = Draft(self._path)
        except SaveError as error:
            self.notify(str(error), severity="error", timeout=15)
            self.call_after_refresh(self.app.pop_screen)
            return
        if self.draft.now.document is None:
            self._page = "file"
        self._show_all()
        self.action_page(self._page)
        self.set_interval(LOOK_AT_DISK, self._look_at_disk)

    # actions

    def action_other_table(self) -> None:
        """Between jobs and their tasks."""
        if self._page == "jobs":
            table = self._table
            other = "#tasks" if table is not None and table.id == "jobs" else "#jobs"
            self.set_focus(self.query_one(other, EditTable).body)
            self.call_after_refresh(self._show_about)

    def action_problem(self) -> None:
        """To the next problem: its cell, or its line of the file."""
        now = self.draft.now
        if not now.problems:
            self.notify("nothing is wrong")
            return
        self._problem = (self._problem + 1) % len(now.problems)
        problem = now.problems[self._problem]
        if now.document is not None:
            if (
                problem.path[:1] == ("jobs",)
                and len(problem.path) > 3
                and problem.path[2] == "tasks"
            ):
                self._tasks.job = str(problem.path[1])
                self._show_all()
            for page, name in (
                ("jobs", "tasks"),
                ("hosts", "hosts"),
                ("jobs", "jobs"),
                ("run", "run"),
            ):
                table = self.query_one(f"#{name}", EditTable)
                place = self._sheet(table).place(problem, now.document)
                if place is not None:
                    if name == "tasks":
                        jobs = self.query_one("#jobs", EditTable).body
                        jobs.row = list(now.document.table("jobs")).index(self._tasks.job)
                    self.action_page(page)
                    self.set_focus(table.body)
                    self.call_after_refresh(table.body.go_to, *place)
                    return
        self.action_page("file")
        self.query_one(FileText).move_cursor(((problem.line or 1) - 1, 0), center=True)

    def action_undo(self) -> None:
        """Takes the last step back."""
        if self.draft.undo():
            self._show_all()
        else:
            self.notify("nothing to undo")

    def action_redo(self) -> None:
        """Takes an undone step again."""
        if self.draft.redo():
            self._show_all()
