"""The cluster editor: hosts, jobs and rules in tables over the file, and a live plan beside."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import ClassVar

from rich.text import Text
from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import Static

from launcher.cluster.clusters import SaveError
from launcher.cluster.draft import Draft, Examined, examine
from launcher.cluster.edit import ClusterText, EditError
from launcher.cluster.paste import PasteError, missing_hosts
from launcher.plan.plan import Plan, make_plan
from tui.screens.editor.completion import Completion, matching
from tui.screens.editor.fields import Field
from tui.screens.editor.file_actions import PAUSE, FileActions
from tui.screens.editor.file_text import FileText
from tui.screens.editor.preview import PlanPreview
from tui.screens.editor.row_actions import RowActions
from tui.screens.editor.sheets import Sheet, candidates, undefined_hosts
from tui.screens.editor.table import Body, EditTable
from tui.screens.prompts import Asker
from tui.sessions import Sessions
from tui.widgets.footer import KeyFooter

PAGES = ("hosts", "jobs", "run", "file", "plan")
SIDE_FROM = 140
"""Cells of width from which on the plan stands beside the tables."""
LOOK_AT_DISK = 1.5


class EditorScreen(RowActions, FileActions):
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
        super().__init__(sessions, asker)
        self._path = path
        self._page = page
        self._trial: Examined | None = None
        """The file with what is being typed, as far as it is checked."""
        self._checked = ""
        self._plan: Plan | None = None
        self._problem = -1

    def compose(self) -> ComposeResult:
        """From top to bottom."""
        yield Static(id="title", markup=False)
        with Horizontal():
            with Vertical(id="tables"):
                yield EditTable(self._host.nothing, id="hosts")
                with Vertical(id="job-tables"):
                    yield EditTable(self._job.nothing, id="jobs")
                    yield EditTable(self._tasks.nothing, id="tasks", first=1)
                yield EditTable(self._run.nothing, id="run", first=1, widest=28)
                with Vertical(id="file"):
                    yield FileText()
                    yield Static(id="problems", markup=False)
            yield PlanPreview(id="plan")
        yield Static(id="about", markup=False)
        yield KeyFooter()

    def on_mount(self) -> None:
        try:
            self._draft = Draft(self._path)
        except SaveError as error:
            self.notify(str(error), severity="error", timeout=15, markup=False)
            self.call_after_refresh(self.app.pop_screen)
            return
        if self.draft.now.document is None:
            self._page = "file"
        self._show_all()
        self.action_page(self._page)
        self.set_interval(LOOK_AT_DISK, self._look_at_disk)

    # showing

    def _show_all(self, *, file_too: bool = True) -> None:
        """Shows the draft everywhere."""
        now = self._trial or self.draft.now
        if now.document is not None:
            jobs = self.query_one("#jobs", EditTable).body
            self.query_one("#hosts", EditTable).body.show(self._host.titles, self._host.rows(now))
            jobs.show(self._job.titles, self._job.rows(now))
            self._tasks.job = jobs.rows[jobs.row].key if jobs.rows else ""
            self.query_one("#tasks", EditTable).body.show(self._tasks.titles, self._tasks.rows(now))
            self.query_one("#run", EditTable).body.show(self._run.titles, self._run.rows(now))
        area = self.query_one(FileText)
        if file_too and area.text != self.draft.now.text:
            at = area.cursor_location
            area.load_text(self.draft.now.text)
            area.move_cursor(at)
        self._plan = None if now.cluster is None else make_plan(now.cluster, "RUN")
        self.query_one(PlanPreview).show(self._plan, now.problems)
        self._show_problems(now)
        self._show_title(now)
        self._show_about()

    def _show_title(self, now: Examined) -> None:
        text = Text(no_wrap=True, overflow="ellipsis")
        text.append(self.draft.path.stem, "bold")
        text.append(" ● not saved" if self.draft.modified else "")
        for number, page in enumerate(PAGES, 1):
            here = page == self._page
            text.append("   ")
            text.append(f" {number} {page.capitalize()} ", "reverse bold" if here else "dim")
        if now.problems:
            count = len(now.problems)
            text.append(f"   ⚠ {count} problem{'s' if count > 1 else ''}",
                        f"bold {self.app.theme_variables.get('mood-bad', '')}")  # fmt: skip
        else:
            text.append("   ✓", f"bold {self.app.theme_variables.get('mood-good', '')}")
        self.query_one("#title", Static).update(text)

    def _show_problems(self, now: Examined) -> None:
        colour = self.app.theme_variables.get("mood-bad", "")
        text = Text()
        for problem in now.problems[:8]:
            line = f"line {problem.line}: " if problem.line else ""
            text.append(f"⚠ {line}{problem}\n", colour)
        if now.document is None:
            text.append("nobody could read this file: it cannot be saved so\n", "bold")
        self.query_one("#problems", Static).update(text)

    def _show_about(self) -> None:
        """The line above the footer: what the cell under the cursor is, or is wrong with it."""
        line = self.query_one("#about", Static)
        text = Text()
        table = self._table
        if table is not None and not table.editing():
            cell = table.body.cell
            field = self._sheet(table).field(table.body.row, table.body.column) if cell else None
            if cell is not None and (
                problem := cell.problem or table.body.rows[table.body.row].problem
            ):
                text.append(f"⚠ {problem}", self.app.theme_variables.get("mood-bad", ""))
            elif cell is not None and field is not None and not cell.fixed:
                text.no_wrap, text.overflow = True, "ellipsis"
                shown = cell.text or (f"{cell.default} (default)" if cell.default else "not set")
                text.append(f"{field.title}: ", "bold")
                text.append(shown)
                text.append(f"   {field.about}", "dim")
        line.update(text)
        self.query_one(KeyFooter).show(self._keys())

    def _keys(self) -> list[tuple[str, str]]:
        table = self._table
        if table is not None and table.editing():
            keys = [("Enter", "take it"), ("Tab", "next cell"), ("Esc", "as it was")]
            return [*keys, ("→", "complete"), ("F9", "kill all")]
        if self._page == "file":
            keys = [("Ctrl-S", "save"), ("Ctrl-Z", "undo"), ("F5", "launch"), ("Esc", "tables")]
            return [*keys, ("F9", "kill all")]
        keys = [("l", "launch"), ("t", "test"), ("Enter", "edit"), ("Ctrl-S", "save")]
        keys.append(("Esc", "back"))
        if self._page == "plan":
            keys.pop(2)
        elif self._page == "run":
            keys.append(("x", "default"))
        else:
            keys += [("a", "add"), ("x", "delete"), ("p", "paste")]
        if self._missing():
            keys.insert(2, ("m", "add missing hosts"))
        if self.draft.now.problems:
            keys.insert(2, ("e", "next problem"))
        if self._page == "jobs":
            keys.append(("Tab", "jobs/tasks"))
        keys += [("u", "undo"), ("1-5", "pages"), ("S", "save as")]
        return keys + ([("c", "copy row")] if self._page in ("hosts", "jobs") else [])

    def _missing(self) -> list[str]:
        document = self.draft.now.document
        if document is None:
            return []
        return missing_hosts(undefined_hosts(document), document.table("hosts"))

    def on_resize(self) -> None:
        if self._draft is not None:
            self._place()

    def _place(self) -> None:
        """Which parts are to be seen on this page and at this width."""
        wide = self.size.width >= SIDE_FROM
        plan = self._page == "plan"
        self.query_one("#tables").display = wide or not plan
        preview = self.query_one(PlanPreview)
        preview.display = wide or plan
        preview.styles.width = "40%" if wide and not plan else "1fr"
        shown = {"hosts": "#hosts", "jobs": "#job-tables", "run": "#run", "file": "#file"}
        for page, part in shown.items():
            self.query_one(part).display = page == self._page or (plan and wide and page == "jobs")

    # tables

    @property
    def _table(self) -> EditTable | None:
        """The table that has the focus."""
        above = self.focused.ancestors_with_self if self.focused is not None else ()
        return next((widget for widget in above if isinstance(widget, EditTable)), None)

    def _sheet(self, table: EditTable) -> Sheet:
        sheets: dict[str | None, Sheet] = {
            "hosts": self._host,
            "jobs": self._job,
            "tasks": self._tasks,
            "run": self._run,
        }
        return sheets[table.id]

    @on(Body.Moved)
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

    @on(Body.Chosen)
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

    def _take(self, document: ClusterText, kind: str = "") -> None:
        """Takes an edit as one step."""
        self._trial = None
        self.draft.edit(examine(document.text, self.draft.path), kind)
        self._show_all()

    # actions

    def action_page(self, page: str) -> None:
        """Goes to a page."""
        if self.draft.now.document is None and page != "file":
            self.notify("first make the file readable", severity="warning")
            page = "file"
        self._page = page
        self._place()
        if page == "file":
            self.set_focus(self.query_one(FileText))
        elif page == "plan":
            self.set_focus(self.query_one("PlanPreview OptionList"))
        else:
            self.set_focus(self.query_one(f"#{page}", EditTable).body)
        self._show_title(self.draft.now)
        self.call_after_refresh(self._show_about)

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
