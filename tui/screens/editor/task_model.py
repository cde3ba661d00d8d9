"""Table model of one job's tasks."""

from __future__ import annotations

from typing import Any

from launcher.cluster.addresses import LOCALHOST, AddressPart
from launcher.cluster.draft import ParsedDraft
from launcher.cluster.edit import ClusterDocument
from launcher.cluster.shorthand import entries
from launcher.errors import Problem
from launcher.printable import visible
from tui.cells import Cell, Row
from tui.screens.editor.cell_codecs import TEXT
from tui.screens.editor.document_edits import halves
from tui.screens.editor.fields import Field
from tui.screens.editor.table_models import AddPrompt, many_problem


class TaskModel:
    """`[jobs.*] tasks` of one job, host and port in columns of their own."""

    nothing = "no tasks: a adds some"
    titles = ("task", "host", "port")
    _HOST = Field("host", ("host",), TEXT, "a host of this file, or localhost",
                  completion="hosts")  # fmt: skip
    _PORT = Field("port", ("port",), TEXT, "1 to 65535, or auto: a free one at launch",
                  choices=("auto",))  # fmt: skip

    def __init__(self, job: str) -> None:
        self.job = job

    def _tasks(self, document: ClusterDocument) -> list[Any]:
        found = document.get("jobs", self.job, "tasks")
        return list(found) if isinstance(found, list) else []

    def rows(self, seen: ParsedDraft) -> list[Row]:
        """One row for each task."""
        assert seen.document is not None
        wrong: dict[tuple[int, int], str] = {}
        for problem in seen.problems:
            if (place := self.place(problem, seen.document)) is not None:
                wrong.setdefault(place, problem.message)
        found = []
        for index, task in enumerate(self._tasks(seen.document)):
            host, port = halves(str(task))
            cells = (
                Cell(f"{self.job}:{index}", fixed=True),
                Cell(visible(host), problem=wrong.get((index, 1), "")),
                Cell(visible(port), problem=wrong.get((index, 2), "")),
            )
            found.append(Row(str(index), cells))
        return found

    def field(self, row: int, column: int) -> Field | None:
        """Host or port."""
        return (None, self._HOST, self._PORT)[column]

    def put(self, document: ClusterDocument, row: int, column: int, line: str) -> ClusterDocument:
        """Changes host or port."""
        tasks = self._tasks(document)
        host, port = halves(str(tasks[row]))
        value = str(self._HOST.codec.value(line) or "")
        if column == 1:
            host = f"[{value}]" if value.count(":") > 1 and "[" not in value else value
        else:
            port = value
        tasks[row] = f"{host}:{port}"
        return document.put(("jobs", self.job, "tasks"), tasks)

    def remove(self, document: ClusterDocument, row: int) -> ClusterDocument:
        """Removes the task; those after it move up."""
        return document.remove("jobs", self.job, "tasks", row)

    def place(self, problem: Problem, document: ClusterDocument) -> tuple[int, int] | None:
        """See `TableModel`."""
        match problem.path:
            case ("jobs", self.job, "tasks", int(index), *part):
                return index, 2 if part == [AddressPart.PORT] else 1
        return None

    def add_prompt(self, document: ClusterDocument) -> AddPrompt:
        """Asks for entries of `tasks`."""
        return AddPrompt(
            f"Add tasks to {self.job}",
            "host:port, … ; tf[2-6]:2222 is five tasks, localhost:auto*5 too",
            self._next(document),
            lambda line: many_problem(line, entries),
            [f"{host}:" for host in document.table("hosts")],
        )

    def add(self, document: ClusterDocument, line: str) -> ClusterDocument:
        """Appends tasks."""
        tasks = [*self._tasks(document), *entries(line)]
        return document.put(("jobs", self.job, "tasks"), tasks)

    def copy(self, document: ClusterDocument, row: int) -> None:
        """Not for tasks: adding one proposes the next."""

    def _next(self, document: ClusterDocument) -> str:
        """The next task of the series: on the next host, if there is one."""
        tasks = [str(task) for task in self._tasks(document)]
        if not tasks:
            return f"{next(iter(document.table('hosts')), LOCALHOST)}:auto"
        host, port = halves(tasks[-1])
        names = list(document.table("hosts"))
        after = names[names.index(host) + 1 :] if host in names else []
        used = {halves(task)[0] for task in tasks}
        free = next((name for name in after if name not in used), None)
        return f"{free}:{port}" if free else f"{host}:auto"
