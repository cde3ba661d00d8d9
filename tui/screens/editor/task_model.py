"""Table model of one job's tasks."""

from __future__ import annotations

from typing import Any

from launcher.cluster.addresses import LOCALHOST, TaskAddress
from launcher.cluster.draft import Examined
from launcher.cluster.edit import ClusterText
from launcher.cluster.paste import entries
from launcher.errors import Problem
from tui.cells import Cell, Row
from tui.one_line import visible
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

    def _tasks(self, document: ClusterText) -> list[Any]:
        found = document.get("jobs", self.job, "tasks")
        return list(found) if isinstance(found, list) else []

    def rows(self, seen: Examined) -> list[Row]:
        """One row for each task."""
        assert seen.document is not None
        wrong: dict[int, str] = {}
        for problem in seen.problems:
            match problem.path:
                case ("jobs", self.job, "tasks", int(index), *_):
                    wrong.setdefault(index, problem.message)
        found = []
        for index, task in enumerate(self._tasks(seen.document)):
            host, port = halves(str(task))
            message = wrong.get(index, "")
            at_port = bool(message) and _port_is_wrong(seen.document, str(task))
            cells = (
                Cell(f"{self.job}:{index}", fixed=True),
                Cell(visible(host), problem="" if at_port else message),
                Cell(visible(port), problem=message if at_port else ""),
            )
            found.append(Row(str(index), cells))
        return found

    def field(self, row: int, column: int) -> Field | None:
        """Host or port."""
        return (None, self._HOST, self._PORT)[column]

    def put(self, document: ClusterText, row: int, column: int, line: str) -> ClusterText:
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

    def remove(self, document: ClusterText, row: int) -> ClusterText:
        """Removes the task; those after it move up."""
        return document.remove("jobs", self.job, "tasks", row)

    def place(self, problem: Problem, document: ClusterText) -> tuple[int, int] | None:
        """See `TableModel`."""
        match problem.path:
            case ("jobs", self.job, "tasks", int(index), *_):
                tasks = self._tasks(document)
                at_port = index < len(tasks) and _port_is_wrong(document, str(tasks[index]))
                return index, 2 if at_port else 1
        return None

    def add_prompt(self, document: ClusterText) -> AddPrompt:
        """Asks for entries of `tasks`."""
        return AddPrompt(
            f"Add tasks to {self.job}",
            "host:port, … ; tf[2-6]:2222 is five tasks, localhost:auto*5 too",
            self._next(document),
            lambda line: many_problem(line, entries),
            [f"{host}:" for host in document.table("hosts")],
        )

    def add(self, document: ClusterText, line: str) -> ClusterText:
        """Appends tasks."""
        tasks = [*self._tasks(document), *entries(line)]
        return document.put(("jobs", self.job, "tasks"), tasks)

    def copy(self, document: ClusterText, row: int) -> None:
        """Not for tasks: adding one proposes the next."""

    def _next(self, document: ClusterText) -> str:
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


def _port_is_wrong(document: ClusterText, task: str) -> bool:
    """The problem of a task is about its port, not its host."""
    try:
        TaskAddress.parse(f"{halves(task)[0]}:1")
    except ValueError:
        return False
    try:
        host = TaskAddress.parse(task).host
    except ValueError:
        return True
    hosts = document.table("hosts")
    if host != LOCALHOST:
        return host in hosts
    remote = any(name != LOCALHOST for name in hosts)
    return not remote or document.get("hosts", LOCALHOST, "address") is not None
