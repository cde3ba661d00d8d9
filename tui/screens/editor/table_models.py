"""Table models of the editor: rows of a cluster file, and edits of the file by cell and row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from launcher.cluster import AddressPart
from launcher.cluster.draft import ParsedDraft
from launcher.cluster.edit import ClusterDocument, EditError
from launcher.cluster.shorthand import ShorthandError, entries, next_like, spec
from launcher.errors import Problem
from launcher.printable import visible
from tui.cells import Cell, Row
from tui.screens.dialogs import AskText
from tui.screens.editor.cell_codecs import READY, TEXT, WORDS
from tui.screens.editor.completion import Completion
from tui.screens.editor.document_edits import engine_of, halves, host_names, put_spec, task_hosts
from tui.screens.editor.fields import Field, job_fields
from tui.widgets.cell_grid import WIDEST

_TENSORBOARD = {
    "in_cluster": False,
    "forward": True,
    "command": ["{python}", "-m", "tensorboard.main", "--logdir", "{logdir}", "--port", "{port}",
                "--host", "127.0.0.1"],
    "env": {"PYTHONSAFEPATH": "1"},  # else a `queue.py` in its directory would be imported
}  # fmt: skip
_LONGEST_DEFAULT = 200
_JOB_NAMES = ("ps", "worker", "chief", "evaluator", "tensorboard")
_HOST = Field("host", ("host",), TEXT, "a host of this file, or localhost", completion="hosts")
_PORT = Field(
    "port", ("port",), TEXT, "1 to 65535, or auto: a free one at launch", choices=("auto",)
)


class TableModel:
    """One table of the editor. A line that means nothing raises `ValueError`, `ShorthandError` or
    `EditError` with the sentence to show."""

    name = ""
    nothing = ""
    """Text shown while there are no rows."""
    titles: Sequence[str] = ()
    first = 0
    """First column that the cursor goes to."""
    one_column = False
    """Only the first column is edited, and Tab goes down."""
    widest = WIDEST
    """Most cells of width of all columns but the last."""

    def rows(self, seen: ParsedDraft) -> list[Row]:
        """All rows with their problems."""
        raise NotImplementedError

    def field(self, row: int, column: int) -> Field | None:
        """Field of a cell; None if it cannot be edited."""
        raise NotImplementedError

    def about(self, key: str) -> str:
        """Purpose of a row, if its cells do not say it."""
        return ""

    def put(self, document: ClusterDocument, row: int, column: int, line: str) -> ClusterDocument:
        """Puts a text into a cell."""
        raise NotImplementedError

    def remove(self, document: ClusterDocument, row: int) -> ClusterDocument:
        """The document without what a row stands for."""
        raise NotImplementedError

    def place(self, problem: Problem, document: ClusterDocument) -> tuple[int, int] | None:
        """Row and column of the cell that a problem is about, if it is in this table."""
        raise NotImplementedError

    def add_dialog(self, document: ClusterDocument) -> AskText | None:
        """Dialog for the line that `add` takes; None if there can be no more rows."""

    def add(self, document: ClusterDocument, line: str) -> ClusterDocument:
        """Adds the rows that a line stands for."""
        raise NotImplementedError

    def copy(self, document: ClusterDocument, row: int) -> ClusterDocument:
        """Adds one more row like this, if rows of this table can be copied."""
        return document

    def fill(self, document: ClusterDocument, row: int, column: int) -> ClusterDocument:
        """Gives all rows of a column the value of a cell."""
        raise EditError("there is no column to fill: each row has a key of its own")


class NamedTables(TableModel):
    """Tables with names of their own, such as `[hosts.*]`: a table a row, a key a column."""

    own: Sequence[str] = ()
    """Titles of columns in which rows differ."""

    def __init__(self, fields: Sequence[Field]) -> None:
        self._fields = fields
        self.titles = [field.title for field in fields]

    def _names(self, document: ClusterDocument) -> list[str]:
        return list(document.table(self.name))

    def _defaults(self, document: ClusterDocument, name: str, entry: Any) -> dict[str, str]:
        """Defaults of a row that depend on the file, by the title of their column."""
        return {}

    def _rename(self, document: ClusterDocument, old: str, new: str) -> ClusterDocument:
        raise NotImplementedError

    def rows(self, seen: ParsedDraft) -> list[Row]:
        assert seen.document is not None
        return [
            self._row(seen.document, name, entry, seen.problems)
            for name, entry in seen.document.table(self.name).items()
        ]

    def _row(
        self, document: ClusterDocument, name: str, entry: Any, problems: Sequence[Problem]
    ) -> Row:
        values = entry if isinstance(entry, dict) else {}
        defaults = self._defaults(document, name, entry)
        wrong: dict[int, str] = {}
        rest = ""
        for problem in problems:
            if problem.path[:2] != (self.name, name):
                continue
            column = self._column(problem)
            if column is None:
                rest = rest or str(problem)
            else:
                wrong.setdefault(column, problem.message)
        cells = [Cell(visible(name), problem=wrong.get(0, ""))]
        for column, field in enumerate(self._fields[1:], 1):
            text = field.codec.line(values.get(field.path[0]))
            default = defaults.get(field.title, field.default)
            cells.append(Cell(text, default, wrong.get(column, "")))
        return Row(name, tuple(cells), rest)

    def _column(self, problem: Problem) -> int | None:
        path = problem.path[2:3]
        return next((i for i, field in enumerate(self._fields) if field.path == path), None)

    def field(self, row: int, column: int) -> Field | None:
        return self._fields[column]

    def put(self, document: ClusterDocument, row: int, column: int, line: str) -> ClusterDocument:
        """Changes a value, or renames the table."""
        name = self._names(document)[row]
        if not column:
            return self._rename(document, name, self._name(line))
        field = self._fields[column]
        return document.put((self.name, name, *field.path), field.codec.value(line))

    def fill(self, document: ClusterDocument, row: int, column: int) -> ClusterDocument:
        """Gives all tables the value of one; a key that it does not have is removed."""
        field, names = self._fields[column], self._names(document)
        if not column or field.title in self.own:
            raise EditError(f"each {self.name.rstrip('s')} has its own {field.title}")
        paths = ((self.name, name, *field.path) for name in names)
        return document.put_all(paths, document.get(self.name, names[row], *field.path))

    def _name(self, line: str) -> str:
        if not line.strip():
            raise EditError(f"a {self.name.rstrip('s')} needs a name")
        return line.strip()

    def remove(self, document: ClusterDocument, row: int) -> ClusterDocument:
        names = self._names(document)
        if len(names) == 1:  # the form of the file has no place for an empty table
            return document.put((self.name,), None)
        return document.remove(self.name, names[row])

    def place(self, problem: Problem, document: ClusterDocument) -> tuple[int, int] | None:
        names = self._names(document)
        match problem.path:
            case (self.name, str(name), *_) if name in names:
                return names.index(name), self._column(problem) or 0
        return None


class JobModel(NamedTables):
    """Table of the jobs: a row for each `[jobs.*]`."""

    name = "jobs"
    nothing = "no jobs"
    own = ("tasks",)

    def __init__(self) -> None:
        super().__init__(job_fields())

    def _defaults(self, document: ClusterDocument, name: str, entry: Any) -> dict[str, str]:
        defaults = {}
        command = document.get("run", "command")
        if isinstance(command, list):
            defaults["command"] = WORDS.line(command)[:_LONGEST_DEFAULT]
        helper = isinstance(entry, dict) and entry.get("in_cluster") is False
        usual = "started" if helper or name == "evaluator" else "listening"
        ready = document.get("start", "ready", name)
        return defaults | {"ready": usual if ready is None else READY.line(ready)}

    def _rename(self, document: ClusterDocument, old: str, new: str) -> ClusterDocument:
        return document.rename_job(old, new)

    def put(self, document: ClusterDocument, row: int, column: int, line: str) -> ClusterDocument:
        """Changes a value, renames the job, or puts a whole cluster spec given as tasks."""
        if self.titles[column] == "tasks" and (found := spec(line)) is not None:
            return put_spec(document, found)
        return super().put(document, row, column, line)

    def add_dialog(self, document: ClusterDocument) -> AskText:
        free = [name for name in _JOB_NAMES if name not in document.table("jobs")]
        about = f"its name, such as {', '.join(free[:4]) or 'helper'}"
        return AskText("Add a job", next(iter(free), ""), about=about, suggester=Completion(free))

    def add(self, document: ClusterDocument, line: str) -> ClusterDocument:
        """Adds a job with one task on the first host."""
        name = self._name(line)
        if name in document.table("jobs"):
            raise EditError(f"there is already a job {visible(name[:60])}")
        host = task_hosts(document)[0]
        entry: dict[str, Any] = {"tasks": [f"{host}:auto"]}
        if name == "tensorboard":
            entry |= _TENSORBOARD
            if engine_of(document) is not None:  # no SSH to a node, which could forward its port
                del entry["forward"]
        return document.put(("jobs", name), entry)

    def copy(self, document: ClusterDocument, row: int) -> ClusterDocument:
        """Adds a job under the next name; fixed ports become `auto`."""
        names = self._names(document)
        entry = dict(document.table("jobs", names[row]))
        if isinstance(entry.get("tasks"), list):
            entry["tasks"] = [f"{halves(str(task))[0]}:auto" for task in entry["tasks"]]
        return document.put(("jobs", next_like(names, names[row])), entry)


class TaskModel(TableModel):
    """`[jobs.*] tasks` of one job, host and port in columns of their own. Tasks are not copied:
    adding one proposes the next."""

    name = "tasks"
    nothing = "no tasks"
    titles = ("task", "host", "port")
    first = 1

    def __init__(self, job: str) -> None:
        self.job = job

    def _tasks(self, document: ClusterDocument) -> list[Any]:
        found = document.get("jobs", self.job, "tasks")
        return list(found) if isinstance(found, list) else []

    def rows(self, seen: ParsedDraft) -> list[Row]:
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
        return (None, _HOST, _PORT)[column]

    def put(self, document: ClusterDocument, row: int, column: int, line: str) -> ClusterDocument:
        tasks = self._tasks(document)
        host, port = halves(str(tasks[row]))
        value = str(TEXT.value(line) or "")
        if column == 1:
            host = f"[{value}]" if value.count(":") > 1 and "[" not in value else value
        else:
            port = value
        tasks[row] = f"{host}:{port}"
        return document.put(("jobs", self.job, "tasks"), tasks)

    def fill(self, document: ClusterDocument, row: int, column: int) -> ClusterDocument:
        """Puts all tasks on the host, or the port, of one."""
        places = [halves(str(task)) for task in self._tasks(document)]
        host, port = places[row]
        tasks = [f"{host}:{p}" if column == 1 else f"{h}:{port}" for h, p in places]
        return document.put(("jobs", self.job, "tasks"), tasks)

    def remove(self, document: ClusterDocument, row: int) -> ClusterDocument:
        return document.remove("jobs", self.job, "tasks", row)

    def place(self, problem: Problem, document: ClusterDocument) -> tuple[int, int] | None:
        match problem.path:
            case ("jobs", self.job, "tasks", int(index), *part):
                return index, 2 if part == [AddressPart.PORT] else 1
        return None

    def add_dialog(self, document: ClusterDocument) -> AskText:
        return AskText(
            f"Add tasks to {self.job}",
            self._next(document),
            lambda line: problem_of(line, entries),
            "host:port, … ; tf[2-6]:2222 is five tasks, localhost:auto*5 too",
            Completion([f"{host}:" for host in host_names(document)]),
        )

    def add(self, document: ClusterDocument, line: str) -> ClusterDocument:
        tasks = [*self._tasks(document), *entries(line)]
        return document.put(("jobs", self.job, "tasks"), tasks)

    def _next(self, document: ClusterDocument) -> str:
        """The next task of the series: on the next host, if there is one."""
        tasks = [str(task) for task in self._tasks(document)]
        if not tasks:
            return f"{task_hosts(document)[0]}:auto"
        host, port = halves(tasks[-1])
        names = host_names(document)
        after = names[names.index(host) + 1 :] if host in names else []
        used = {halves(task)[0] for task in tasks}
        free = next((name for name in after if name not in used), None)
        return f"{free}:{port}" if free else f"{host}:auto"


def problem_of(line: str, parse: Callable[[str], object]) -> str:
    """The problem of a line that stands for many entries; empty if there is none."""
    try:
        parse(line)
    except ShorthandError as error:
        return str(error)
    return ""
