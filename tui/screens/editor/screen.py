"""Cluster editor: tables and text of one cluster file, with a live plan beside them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import Static

from launcher.cluster import Slurm
from launcher.cluster.draft import Draft
from launcher.cluster.saved_file import SaveError
from launcher.plan import make_plan
from launcher.quantities import counted
from tui.keys import key_of
from tui.run_clients import RunClients
from tui.screens.editor.document_edits import engine_of
from tui.screens.editor.file_actions import FileActions
from tui.screens.editor.file_pane import FilePane
from tui.screens.editor.preview import PlanPreview
from tui.screens.editor.row_actions import RowActions
from tui.screens.editor.state import UNREADABLE, EditorState
from tui.screens.editor.table import EditTable
from tui.screens.editor.tables import TABLE_PAGES, ClusterTables
from tui.screens.page import OpenRun, Page
from tui.screens.preflight import PreflightScreen
from tui.screens.prompts import PromptDialogs
from tui.widgets.cell_grid import CellGrid
from tui.widgets.colours import theme_colour
from tui.widgets.footer import KeyFooter

PAGES = ("hosts", "jobs", "run", "file", "plan")
DISK_SECONDS = 1.5
"""Between two checks whether the file has changed on disk."""
SIDE_FROM = 140
"""Cells of width from which on the plan stands beside the tables."""
ROOMY = 100
"""Cells of width from which on the names of the pages stand apart."""


class EditorScreen(Page):
    """Edits one cluster file, and launches what it says."""

    CSS_PATH = "screen.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(str(n), f"page('{page}')", f"{page.capitalize()} page", id=f"edit.{page}")
            for n, page in enumerate(PAGES, 1)
        ),
        Binding("enter,f2", "cell", "Edit the cell", id="edit.cell"),
        Binding("tab", "other_table", "The other table", id="edit.other"),
        Binding("a", "add", "Add a row", id="edit.add"),
        Binding("c", "copy_row", "Copy the row", id="edit.copy"),
        Binding("x,delete", "remove", "Delete the row", id="edit.remove"),
        Binding("backspace", "clear", "Empty the cell", id="edit.clear"),
        Binding("f", "fill", "Give all rows the value of the cell", id="edit.fill"),
        Binding("p", "paste", "Paste a cluster spec or TF_CONFIG", id="edit.paste"),
        Binding("w", "switch_hosts", "Nodes of Slurm, or hosts by SSH", id="edit.switch_hosts"),
        Binding("m", "missing", "Add the hosts that tasks name", id="edit.missing"),
        Binding("e", "problem", "Next problem", id="edit.problem"),
        Binding("ctrl+z,u", "undo", "Undo", id="edit.undo"),
        Binding("ctrl+y", "redo", "Redo", id="edit.redo"),
        Binding("ctrl+s", "save", "Save", id="edit.save", priority=True),
        Binding("S", "save_as", "Save under another name", id="edit.save_as"),
        Binding("t", "test", "Test: check every host", id="edit.test"),
        Binding("l", "launch", "Launch", id="edit.launch"),
        Binding("escape", "back", "Back", id="edit.back"),
    ]

    def __init__(
        self, path: Path, clients: RunClients, prompts: PromptDialogs, *, page: str = "hosts"
    ) -> None:
        super().__init__()
        self._clients = clients
        self._prompts = prompts
        self._page = page
        self._state = EditorState(path)
        self._tables = ClusterTables(self._state)
        self._file = FilePane(self._state)
        self._preview = PlanPreview(id="plan")
        self._rows = rows = RowActions(self, self._state, self._tables, self._show)
        self._files = FileActions(self, self._state, self._show)
        self._problem = -1
        self.action_add = self._asking(rows.add)
        self.action_paste = self._asking(rows.paste)
        self.action_copy_row = self._accepting(rows.copy)
        self.action_remove = self._accepting(rows.remove)
        self.action_clear = self._accepting(rows.clear)
        self.action_fill = self._accepting(rows.fill)
        self.action_missing = self._accepting(rows.define_missing)
        self.action_save = self._asking(self._files.save)
        self.action_save_as = self._asking(self._files.save_as)
        self._leave = self._asking(self._files.leave)

    def _asking(self, command: Callable[[], Coroutine[Any, Any, object]]) -> Callable[[], None]:
        """Returns an action that runs a command, which may ask, on the text as it is typed."""
        return self._accepting(lambda: self.run_worker(command(), group="dialog"))

    def _accepting(self, command: Callable[[], object]) -> Callable[[], None]:
        """Returns an action that runs a command on the text as it is typed."""

        def act() -> None:
            if self._accept():
                command()

        return act

    def _accept(self) -> bool:
        """Puts what is being typed, as text or into a cell, into the draft; False if the cell
        does not take it."""
        if self._page == "file":
            self._file.commit()
        return self._tables.accept()

    def compose(self) -> ComposeResult:
        yield Static(id="title", markup=False)
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
            self.notify(str(error), severity="error", timeout=15)
            self.call_after_refresh(self.app.pop_screen)
            return
        self._show()
        self.action_page(self._page)
        self.set_interval(DISK_SECONDS, self._check_disk)

    @property
    def _engine(self) -> type[Slurm] | None:
        document = self._state.displayed.document
        return None if document is None else engine_of(document)

    @property
    def draft(self) -> Draft:
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
        shown = self._state.displayed
        plan = None if shown.cluster is None else make_plan(shown.cluster, "RUN")
        self._preview.show(plan, shown.cluster, shown.problems)
        self._show_title()
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
        self._show_keys(table)

    def _show_title(self) -> None:
        pages = Text()
        for page in PAGES:
            style = "reverse bold" if page == self._page else "dim"
            engine = self._engine if page == "hosts" else None
            title = engine.label if engine else page.capitalize()
            pages.append("   " if self.size.width >= ROOMY else " ")
            pages.append(f" {key_of(self, f'edit.{page}')} {title} ", style)
        verdict = Text("  ✓", f"bold {theme_colour(self.app, 'status-good')}")
        if count := len(self._state.displayed.problems):
            style = f"bold {theme_colour(self.app, 'status-bad')}"
            verdict = Text(f"  ! {counted(count, 'problem')}", style)
        name, width = Text(self.draft.path.stem, "bold"), self.size.width - 2
        room = width - pages.cell_len - verdict.cell_len
        unsaved = " ● not saved" if self.draft.modified else ""
        if name.cell_len + len(unsaved) > room:
            unsaved = unsaved[:2]
        name.truncate(max(1, room - len(unsaved)), overflow="ellipsis")
        text = Text.assemble(name, unsaved, verdict, pages, no_wrap=True, overflow="ellipsis")
        self.query_one("#title", Static).update(text)

    def _show_keys(self, table: EditTable | None) -> None:
        footer = self.query_one(KeyFooter)
        kill = ("kill_all", "kill all")
        if table is not None and table.editing():
            fixed = [("Enter", "accept"), ("Tab", "next cell"), ("Esc", "cancel")]
            footer.show([kill], fixed=[*fixed, ("→", "complete")], typing=True)
            return
        if self._page == "file":
            fixed = [("Ctrl-Z", "undo"), ("Esc", "tables")]
            hints = [("edit.save", "save"), ("edit.launch", "launch"), kill]
            footer.show(hints, fixed=fixed, typing=True)
            return
        hints = [("edit.launch", "launch"), ("edit.test", "test")]
        if self.draft.now.problems:
            hints.append(("edit.problem", "next problem"))
        if self._state.missing_hosts():
            hints.append(("edit.missing", "add missing hosts"))
        if self._page in TABLE_PAGES:
            hints.append(("edit.cell", "edit"))
        if self._page == "hosts":
            hints.append(("edit.switch_hosts", "use SSH hosts" if self._engine else "use Slurm"))
        hints += [("edit.save", "save"), ("edit.back", "back")]
        if table is not None and table.model.one_column:
            hints.append(("edit.remove", "default"))
        elif self._page in TABLE_PAGES:
            hints += [("edit.add", "add"), ("edit.remove", "delete"), ("edit.paste", "paste")]
            hints.append(("edit.fill", "fill column"))
        if self._page == "jobs":
            hints.append(("edit.other", "jobs/tasks"))
        hints += [("edit.undo", "undo"), ("edit.save_as", "save as"), ("help", "help")]
        if self._page == "jobs" or (table is not None and table is self._tables.hosts):
            hints.append(("edit.copy", "copy row"))
        footer.show(hints)

    # pages

    def action_page(self, page: str) -> None:
        if not self._accept():
            return
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
        self._show_title()
        self.call_after_refresh(self._show_about)

    def on_resize(self) -> None:
        if self._state.loaded:
            self._arrange()
            self._show_title()

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
        """Switches between the tables of a page: jobs and their tasks, nodes and hosts."""
        self._tables.focus_other()
        self.call_after_refresh(self._show_about)

    def action_switch_hosts(self) -> None:
        """Lets Slurm give the hosts, or takes them back from an engine."""
        if self._page == "hosts" and self._accept():
            self._rows.switch_hosts()

    def action_problem(self) -> None:
        """Goes to the next problem: its cell, or its line of the file."""
        if not self._accept():
            return
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

    # the file

    def action_cell(self) -> None:
        """Edits the cell under the cursor."""
        if table := self._tables.focused:
            table.body.action_edit()

    def action_undo(self) -> None:
        """Undoes what is typed into an open cell, otherwise the last step."""
        if self._tables.cancel():
            return
        if self.draft.undo():
            self._show()
        else:
            self.notify("nothing to undo")

    def action_redo(self) -> None:
        if not self._tables.cancel() and self.draft.redo():
            self._show()

    def _check_disk(self) -> None:
        if self.app.screen is self:  # else a question about it may be open
            self.run_worker(self._files.check_disk(), group="dialog")

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
            self._leave()
        else:
            self.app.pop_screen()

    def action_test(self) -> None:
        """Checks every host, and starts nothing."""
        if not self._accept():
            return
        cluster = self.draft.now.cluster
        if cluster is None:
            key = key_of(self, "edit.problem")
            self.notify(f"fix the problems first: {key} goes to the next one", severity="warning")
            return
        path = self.draft.path
        self.app.push_screen(PreflightScreen(cluster, path, self._clients, self._prompts))

    def action_launch(self) -> None:
        """Launches what is on the screen, saved or not."""
        if not self._accept():
            return
        run = self._files.launch(self._clients, self._prompts)
        if run is not None:
            self.post_message(OpenRun(run))
