"""Cluster editor: tables and text of one cluster file, with a live plan beside them."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import Static

from launcher.cluster.draft import Draft
from launcher.cluster.library import SaveError
from launcher.plan.plan import make_plan
from tui.keys import key_of
from tui.screens.editor.file_actions import FileActions
from tui.screens.editor.file_pane import FilePane
from tui.screens.editor.preview import PlanPreview
from tui.screens.editor.row_actions import RowActions
from tui.screens.editor.state import UNREADABLE, EditorState
from tui.screens.editor.table import EditTable
from tui.screens.editor.tables import TABLE_PAGES, ClusterTables
from tui.screens.editor.title import PAGES, EditorTitle
from tui.screens.page import OpenRun, Page
from tui.screens.preflight import PreflightScreen
from tui.screens.prompts import Asker
from tui.sessions import Sessions
from tui.widgets.cell_grid import CellGrid
from tui.widgets.footer import KeyFooter

DISK_SECONDS = 1.5
"""Between two looks whether the file has changed on disk."""
SIDE_FROM = 140
"""Cells of width from which on the plan stands beside the tables."""


class EditorScreen(Page):
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
        Binding("t", "test", "Test: check every host", id="edit.test"),
        Binding("l,f5", "launch", "Launch", id="edit.launch"),
        Binding("escape", "back", "Back", id="edit.back"),
    ]

    def __init__(
        self, path: Path, sessions: Sessions, asker: Asker, *, page: str = "hosts"
    ) -> None:
        super().__init__()
        self._sessions = sessions
        self._asker = asker
        self._page = page
        self._state = EditorState(path)
        self._title = EditorTitle(self._state)
        self._tables = ClusterTables(self._state)
        self._file = FilePane(self._state)
        self._preview = PlanPreview(id="plan")
        self._rows = RowActions(self, self._state, self._tables, self._show)
        self._files = FileActions(self, self._state, self._show)
        self._problem = -1

    def compose(self) -> ComposeResult:
        """From top to bottom."""
        yield self._title
        with Horizontal():
            with Vertical(id="content"):
                yield self._tables
                yield self._file
            yield self._preview
        yield Static(id="about", markup=False)
        yield KeyFooter()

    def on_mount(self) -> None:
        try:
            self._state.load()
        except SaveError as error:
            self.notify(str(error), severity="error", timeout=15, markup=False)
            self.call_after_refresh(self.app.pop_screen)
            return
        self._show()
        self.action_page(self._page)
        self.set_interval(DISK_SECONDS, self._look_at_disk)

    @property
    def draft(self) -> Draft:
        """The file being edited."""
        return self._state.draft

    # showing

    @on(EditTable.Changed)
    def _show(self) -> None:
        """Shows the draft, or its trial, everywhere."""
        self._tables.show()
        self._file.show()
        self._show_plan()

    @on(FilePane.Changed)
    def _text_edited(self) -> None:
        self._tables.show()
        self._file.show_problems()
        self._show_plan()

    def _show_plan(self) -> None:
        shown = self._state.shown
        plan = None if shown.cluster is None else make_plan(shown.cluster, "RUN")
        self._preview.show(plan, shown.problems)
        self._title.show(self._page)
        self._show_about()

    @on(CellGrid.Moved)
    def _moved(self) -> None:
        if task := self._tables.chosen_task:
            self._preview.go_to(task)
        self._show_about()

    def _show_about(self) -> None:
        """The line above the footer, and the footer."""
        table = self._tables.focused
        self.query_one("#about", Static).update(table.description() if table else "")
        self.query_one(KeyFooter).show(self._keys(table))

    def _keys(self, table: EditTable | None) -> list[tuple[str, str]]:
        if table is not None and table.editing():
            keys = [("Enter", "accept"), ("Tab", "next cell"), ("Esc", "cancel")]
            return [*keys, ("→", "complete"), (key_of(self, "kill_all"), "kill all")]
        if self._page == "file":
            keys = [("Ctrl-S", "save"), ("Ctrl-Z", "undo"), ("F5", "launch"), ("Esc", "tables")]
            return [*keys, (key_of(self, "kill_all"), "kill all")]
        keys = [("l", "launch"), ("t", "test")]
        if self.draft.now.problems:
            keys.append(("e", "next problem"))
        if self._state.missing_hosts():
            keys.append(("m", "add missing hosts"))
        if self._page in TABLE_PAGES:
            keys.append(("Enter", "edit"))
        keys += [("Ctrl-S", "save"), ("Esc", "back")]
        if self._page == "run":
            keys.append(("x", "default"))
        elif self._page in TABLE_PAGES:
            keys += [("a", "add"), ("x", "delete"), ("p", "paste")]
        if self._page == "jobs":
            keys.append(("Tab", "jobs/tasks"))
        keys += [("u", "undo"), ("1-5", "pages"), ("S", "save as")]
        return keys + ([("c", "copy row")] if self._page in ("hosts", "jobs") else [])

    # pages

    def action_page(self, page: str) -> None:
        """Goes to a page."""
        if self._state.document is None and page != "file":
            self.notify(UNREADABLE, severity="warning")
            page = "file"
        self._page = page
        self._arrange()
        if page == "file":
            self._file.focus_text()
        elif page == "plan":
            self._preview.focus_tasks()
        else:
            self._tables.focus_page(page)
        self._title.show(page)
        self.call_after_refresh(self._show_about)

    def on_resize(self) -> None:
        if self._state.loaded:
            self._arrange()

    def _arrange(self) -> None:
        """Shows the parts that belong to this page at this width."""
        wide = self.size.width >= SIDE_FROM
        plan = self._page == "plan"
        self.query_one("#content").display = wide or not plan
        self._preview.display = wide or plan
        self._preview.styles.width = "40%" if wide and not plan else "1fr"
        self._file.display = self._page == "file"
        self._tables.display = self._page != "file"
        self._tables.show_page("jobs" if plan else self._page)

    def action_other_table(self) -> None:
        """Switches between jobs and their tasks."""
        if self._page == "jobs":
            self._tables.focus_other()
            self.call_after_refresh(self._show_about)

    def action_problem(self) -> None:
        """Goes to the next problem: its cell, or its line of the file."""
        now = self.draft.now
        if not now.problems:
            self.notify("no problems")
            return
        self._problem = (self._problem + 1) % len(now.problems)
        problem = now.problems[self._problem]
        place = self._tables.place(problem, now.document) if now.document is not None else None
        if place is None:
            self.action_page("file")
            self._file.go_to(problem.line or 1)
            return
        page, table, cell = place
        self.action_page(page)
        self.set_focus(table.body)
        self.call_after_refresh(table.body.go_to, *cell)

    # rows

    @work(group="dialog")
    async def action_add(self) -> None:
        """Adds hosts, a job, or tasks: many with one line."""
        await self._rows.add()

    @work(group="dialog")
    async def action_paste(self) -> None:
        """Pastes a cluster spec."""
        await self._rows.paste()

    def action_copy_row(self) -> None:
        """Adds one more host or job like this."""
        self._rows.copy()

    def action_remove(self) -> None:
        """Deletes the row."""
        self._rows.remove()

    def action_clear(self) -> None:
        """Empties the cell."""
        self._rows.clear()

    def action_missing(self) -> None:
        """Defines the hosts that tasks name and the file does not."""
        self._rows.define_missing()

    def action_undo(self) -> None:
        """Takes the last step back."""
        if self.draft.undo():
            self._show()
        else:
            self.notify("nothing to undo")

    def action_redo(self) -> None:
        """Repeats an undone step."""
        if self.draft.redo():
            self._show()

    # the file

    def _look_at_disk(self) -> None:
        if self.app.screen is self:  # else a question about it may be open
            self._check_disk()

    @work(group="dialog")
    async def _check_disk(self) -> None:
        await self._files.check_disk()

    @work(group="dialog")
    async def action_save(self) -> None:
        """Saves; asks first if the file has changed on disk."""
        self._file.commit()
        await self._files.save()

    @work(group="dialog")
    async def action_save_as(self) -> None:
        """Saves under another name."""
        self._file.commit()
        await self._files.save_as()

    def action_back(self) -> None:
        """Goes from the text to the tables, from there to the page below."""
        if self._page == "file":
            self._file.commit()
            if self._state.document is not None:
                self.action_page("hosts")
                return
        self.leave()

    def leave(self) -> None:
        """Leaves; asks first about unsaved changes."""
        if self._state.loaded:
            self._file.commit()
            self._leave()
        else:
            self.app.pop_screen()

    @work(group="dialog")
    async def _leave(self) -> None:
        if await self._files.may_leave():
            self.app.pop_screen()

    def action_test(self) -> None:
        """Checks every host, and starts nothing."""
        self._file.commit()
        cluster = self.draft.now.cluster
        if cluster is None:
            self.notify("fix the problems first: e goes to the next one", severity="warning")
            return
        self.app.push_screen(PreflightScreen(cluster, self.draft.path, self._sessions, self._asker))

    def action_launch(self) -> None:
        """Launches what is on the screen, saved or not."""
        self._file.commit()
        run = self._files.launch(self._sessions, self._asker)
        if run is not None:
            self.post_message(OpenRun(run))
