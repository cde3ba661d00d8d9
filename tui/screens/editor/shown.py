"""The draft as it is shown: title, tables, text, plan; and making an edit of it."""

from __future__ import annotations

from collections.abc import Callable

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widgets import Static

from launcher.cluster.draft import Disk, Draft, Examined, examine
from launcher.cluster.edit import ClusterText, EditError
from launcher.cluster.paste import PasteError, missing_hosts
from launcher.plan.plan import make_plan
from tui.keys import key_of
from tui.screens.editor.file_text import FileText
from tui.screens.editor.preview import PlanPreview
from tui.screens.editor.sheets import (
    HostSheet,
    JobSheet,
    RunSheet,
    Sheet,
    TaskSheet,
    undefined_hosts,
)
from tui.screens.editor.table import EditTable
from tui.screens.page import Page
from tui.screens.prompts import Asker
from tui.sessions import Sessions
from tui.widgets.colours import theme_colour
from tui.widgets.footer import KeyFooter

PAGES = ("hosts", "jobs", "run", "file", "plan")
SIDE_FROM = 140
"""Cells of width from which on the plan stands beside the tables."""
PAUSE = 0.12
"""Seconds without a key after which what is typed is checked: a large cluster takes longer to
check than a finger to the next key."""


class ShownDraft(Page):
    """The part of the editor that shows the draft and takes edits of it; which keys make them
    is said by the parts above."""

    def __init__(self, sessions: Sessions, asker: Asker, page: str) -> None:
        super().__init__()
        self.sessions = sessions
        self.asker = asker
        self._draft: Draft | None = None
        self._page = page
        self._told_disk = Disk.SAME
        self._trial: Examined | None = None
        """The file with what is being typed, as far as it is checked."""
        self._host = HostSheet()
        self._job = JobSheet()
        self._tasks = TaskSheet("")
        self._run = RunSheet()

    @property
    def draft(self) -> Draft:
        """The file being edited."""
        assert self._draft is not None
        return self._draft

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
        plan = None if now.cluster is None else make_plan(now.cluster, "RUN")
        self.query_one(PlanPreview).show(plan, now.problems)
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
                        f"bold {theme_colour(self.app, 'mood-bad')}")  # fmt: skip
        else:
            text.append("   ✓", f"bold {theme_colour(self.app, 'mood-good')}")
        self.query_one("#title", Static).update(text)

    def _show_problems(self, now: Examined) -> None:
        colour = theme_colour(self.app, "mood-bad")
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
                text.append(f"⚠ {problem}", theme_colour(self.app, "mood-bad"))
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
            return [*keys, ("→", "complete"), (key_of(self, "kill_all"), "kill all")]
        if self._page == "file":
            keys = [("Ctrl-S", "save"), ("Ctrl-Z", "undo"), ("F5", "launch"), ("Esc", "tables")]
            return [*keys, (key_of(self, "kill_all"), "kill all")]
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

    # pages

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

    # an edit

    def _take(self, document: ClusterText) -> None:
        """Takes an edit as one step."""
        self._trial = None
        self.draft.edit(examine(document.text, self.draft.path))
        self._show_all()

    def _try(self, change: Callable[[ClusterText], ClusterText]) -> None:
        """Makes an edit; what cannot be done is said."""
        document = self.draft.now.document
        if document is None:
            self.notify("first make the file readable, on page 4")
            return
        try:
            self._take(change(document))
        except (EditError, PasteError, ValueError) as error:
            self.notify(str(error), severity="error", timeout=10)
