"""The editor's tables: hosts or nodes, jobs with the tasks of one of them, and everything else."""

from __future__ import annotations

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widget import Widget

from launcher.cluster import Slurm
from launcher.cluster.edit import ClusterDocument
from launcher.errors import Problem
from tui.screens.editor.document_edits import engine_of
from tui.screens.editor.host_model import HostModel
from tui.screens.editor.key_models import EngineModel, RunModel
from tui.screens.editor.state import EditorState
from tui.screens.editor.table import EditTable
from tui.screens.editor.table_models import JobModel, TaskModel
from tui.widgets.cell_grid import CellGrid

TABLE_PAGES = ("hosts", "jobs", "run")


class ClusterTables(Vertical):
    """One page of tables at a time; the table of tasks follows the cursor in that of jobs."""

    DEFAULT_CSS = """
    ClusterTables { height: 1fr; }
    ClusterTables #host-tables, ClusterTables #job-tables { height: 1fr; }
    ClusterTables #jobs { height: 2fr; }
    ClusterTables #tasks { height: 3fr; border-top: solid $panel-lighten-2; }
    """

    def __init__(self, state: EditorState) -> None:
        super().__init__(id="tables")
        self._tasks_of = TaskModel("")
        self._state = state
        self.engines = {kind: EditTable(state, EngineModel(kind.table)) for kind in (Slurm,)}
        self.hosts = EditTable(state, HostModel())
        self.jobs = EditTable(state, JobModel())
        self.tasks = EditTable(state, self._tasks_of)
        self.run = EditTable(state, RunModel())

    def compose(self) -> ComposeResult:
        with Vertical(id="host-tables"):
            yield from self.engines.values()
            yield self.hosts
        with Vertical(id="job-tables"):
            yield self.jobs
            yield self.tasks
        yield self.run

    @property
    def focused(self) -> EditTable | None:
        """The table that has the focus."""
        return next((table for table in self._every if table.has_focus_within), None)

    @property
    def _every(self) -> tuple[EditTable, ...]:
        return (*self.engines.values(), self.hosts, self.jobs, self.tasks, self.run)

    def accept(self) -> bool:
        """Accepts the text typed into a cell; False if it means nothing."""
        return all(table.accept() for table in self._every)

    def cancel(self) -> bool:
        """Drops the text typed into a cell; False if no cell is open."""
        return any(table.cancel() for table in self._every)

    @property
    def job(self) -> str:
        """The job whose tasks are shown."""
        return self._tasks_of.job

    @property
    def chosen_task(self) -> str:
        """The task under the cursor, the first one of the job under it, or nothing."""
        table = self.focused
        if table is self.tasks and table.key:
            return f"{self.job}:{table.key}"
        return f"{self.job}:0" if table is self.jobs else ""

    def show(self) -> None:
        """Shows the draft, or its trial; of hosts and nodes, what there is."""
        focused, document = self.focused, self._state.displayed.document
        if document is not None:
            engine = engine_of(document)
            for kind, table in self.engines.items():
                table.display = kind is engine
            self.hosts.display = engine is None or bool(document.table("hosts"))
        for table in self.engines.values():
            table.show()
        self.hosts.show()
        self.jobs.show()
        if not self.tasks.editing():
            self._tasks_of.job = self.jobs.key
        self.tasks.show()
        self.run.show()
        if focused is not None and not focused.display:
            self.focus_page("hosts")

    def show_page(self, page: str) -> None:
        """Shows the tables of a page."""
        hosts, jobs = self.query_one("#host-tables"), self.query_one("#job-tables")
        parts: dict[str, Widget] = {"hosts": hosts, "jobs": jobs, "run": self.run}
        for name, part in parts.items():
            part.display = name == page

    def focus_page(self, page: str) -> None:
        """Moves the focus to a page's first table."""
        hosts = next((table for table in self.engines.values() if table.display), self.hosts)
        table = {"hosts": hosts, "jobs": self.jobs, "run": self.run}[page]
        self.screen.set_focus(table.body)

    def focus_other(self) -> None:
        """Moves the focus to the other table of the page, if there is one."""
        engine = next((table for table in self.engines.values() if table.display), None)
        pairs = {self.jobs: self.tasks, self.tasks: self.jobs}
        if engine is not None:
            pairs |= {engine: self.hosts, self.hosts: engine}
        other = pairs.get(self.focused) if self.focused is not None else None
        if other is not None and other.display:
            self.screen.set_focus(other.body)

    def place(
        self, problem: Problem, document: ClusterDocument
    ) -> tuple[str, EditTable, tuple[int, int]] | None:
        """Page, table and cell of a problem; for one of a task its job is chosen."""
        match problem.path:
            case ("jobs", str(job), "tasks", int(), *_) if job in document.table("jobs"):
                self.jobs.body.row = list(document.table("jobs")).index(job)
                self._tasks_of.job = job
                self.tasks.show()
        pages = {self.tasks: "jobs"} | dict.fromkeys(self.engines.values(), "hosts")
        pages |= {self.hosts: "hosts", self.jobs: "jobs", self.run: "run"}
        for table, page in pages.items():
            cell = table.model.place(problem, document)
            if cell is not None:
                return page, table, cell
        return None

    @on(CellGrid.Moved)
    def _follow(self) -> None:
        if self.tasks.editing():
            return  # its field belongs to a task of the job that is shown
        if self.focused is self.jobs and self.jobs.key != self.job:
            self._tasks_of.job = self.jobs.key
            self.tasks.show()
