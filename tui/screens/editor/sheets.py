"""What the editor's tables show of a file, and what a change of a cell does to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from launcher.cluster.addresses import LOCALHOST
from launcher.cluster.draft import Examined
from launcher.cluster.edit import ClusterText, EditError
from launcher.cluster.paste import missing_hosts, next_like, spec
from launcher.cluster.ssh_aliases import aliases
from launcher.errors import Problem
from tui.control_pictures import visible
from tui.screens.editor.fields import HOST, JOB, RUN, Field
from tui.widgets.cell_grid import Cell, Row

_TENSORBOARD = {
    "in_cluster": False,
    "forward": True,
    "command": ["{python}", "-m", "tensorboard.main", "--logdir", "{logdir}", "--port", "{port}",
                "--host", "127.0.0.1"],
    "env": {"PYTHONSAFEPATH": "1"},  # else a `queue.py` in its directory would be imported
}  # fmt: skip
_LONGEST_DEFAULT = 200


class Sheet(Protocol):
    """One table of the editor. A line that stands for nothing raises `ValueError` or
    `EditError` with the sentence to show."""

    @property
    def nothing(self) -> str:
        """What is shown where there are no rows."""

    @property
    def titles(self) -> Sequence[str]:
        """The titles of the columns."""

    def rows(self, seen: Examined) -> list[Row]:
        """All rows, with what is wrong in them."""

    def field(self, row: int, column: int) -> Field | None:
        """What a cell is; None for one that cannot be edited."""

    def put(self, document: ClusterText, row: int, column: int, line: str) -> ClusterText:
        """The file with another text in a cell."""

    def remove(self, document: ClusterText, row: int) -> ClusterText:
        """The file without a row."""

    def place(self, problem: Problem, document: ClusterText) -> tuple[int, int] | None:
        """The cell that a problem is about, if it is one of these."""


class HostSheet:
    """`[hosts.*]`."""

    nothing = "no hosts: all tasks run on this machine. a adds hosts"
    titles = tuple(field.title for field in HOST)

    def rows(self, seen: Examined) -> list[Row]:
        """One row a host."""
        assert seen.document is not None
        found = []
        for name, entry in seen.document.table("hosts").items():
            found.append(_row(name, entry, HOST, ("hosts", name), seen.problems))
        return found

    def field(self, row: int, column: int) -> Field | None:
        """One of the host's."""
        return HOST[column]

    def put(self, document: ClusterText, row: int, column: int, line: str) -> ClusterText:
        """A new value, or a new name."""
        name = list(document.table("hosts"))[row]
        if column:
            field = HOST[column]
            return document.put(("hosts", name, *field.path), field.kind.value(line))
        return document.rename_host(name, _named(line, "a host"))

    def remove(self, document: ClusterText, row: int) -> ClusterText:
        """Without the host; tasks that name it are shown as wrong."""
        return document.remove("hosts", list(document.table("hosts"))[row])

    def place(self, problem: Problem, document: ClusterText) -> tuple[int, int] | None:
        """See `Sheet`."""
        return _place("hosts", HOST, problem, document)

    @staticmethod
    def add(document: ClusterText, found: dict[str, str]) -> ClusterText:
        """More hosts; those whose name is taken get the next one in its series."""
        for name, destination in found.items():
            names = list(document.table("hosts"))
            fresh = next_like(names, name) if name in names else name
            document = document.put(("hosts", fresh), {"ssh": destination})
        return document

    @staticmethod
    def copy(document: ClusterText, row: int) -> ClusterText:
        """One more like this, its name and destination the next in their series."""
        names = list(document.table("hosts"))
        entry = dict(document.table("hosts", names[row]))
        taken = [str(document.get("hosts", name, "ssh")) for name in names]
        for key in ("ssh", "address"):
            if isinstance(entry.get(key), str):
                entry[key] = next_like(taken if key == "ssh" else [], entry[key])
        return document.put(("hosts", next_like(names, names[row])), entry)


class JobSheet:
    """`[jobs.*]`."""

    nothing = "no jobs yet. a adds one, p takes a TF_CONFIG"
    titles = tuple(field.title for field in JOB)

    def rows(self, seen: Examined) -> list[Row]:
        """One row a job."""
        assert seen.document is not None
        found = []
        command = seen.document.get("run", "command")
        for name, entry in seen.document.table("jobs").items():
            defaults = {}
            if isinstance(command, list):
                defaults["command"] = JOB[2].kind.line(command)[:_LONGEST_DEFAULT]
            helper = isinstance(entry, dict) and entry.get("in_cluster") is False
            started = helper or name == "evaluator"
            wait = seen.document.get("start", "ready", name)
            defaults["ready"] = "started" if started else "listening"
            if wait is not None:
                defaults["ready"] = JOB[5].kind.line(wait)
            found.append(_row(name, entry, JOB, ("jobs", name), seen.problems, defaults))
        return found

    def field(self, row: int, column: int) -> Field | None:
        """One of the job's."""
        return JOB[column]

    def put(self, document: ClusterText, row: int, column: int, line: str) -> ClusterText:
        """A new value, a new name, or for tasks a whole cluster spec."""
        name = list(document.table("jobs"))[row]
        field = JOB[column]
        if not column:
            return document.rename_job(name, _named(line, "a job"))
        if field.title == "tasks" and (found := spec(line)) is not None:
            return paste(document, found)
        return document.put(("jobs", name, *field.path), field.kind.value(line))

    def remove(self, document: ClusterText, row: int) -> ClusterText:
        """Without the job."""
        return document.remove("jobs", list(document.table("jobs"))[row])

    def place(self, problem: Problem, document: ClusterText) -> tuple[int, int] | None:
        """See `Sheet`."""
        return _place("jobs", JOB, problem, document)

    @staticmethod
    def add(document: ClusterText, name: str) -> ClusterText:
        """One more job, with one task on the first host."""
        if name in document.table("jobs"):
            raise EditError(f"there is already a job {visible(name[:60])}")
        host = next(iter(document.table("hosts")), LOCALHOST)
        entry: dict[str, Any] = {"tasks": [f"{host}:auto"]}
        if name == "tensorboard":
            entry |= _TENSORBOARD
        return document.put(("jobs", _named(name, "a job")), entry)

    @staticmethod
    def copy(document: ClusterText, row: int) -> ClusterText:
        """One more like this, under the next name; fixed ports become free ones."""
        names = list(document.table("jobs"))
        entry = dict(document.table("jobs", names[row]))
        if isinstance(entry.get("tasks"), list):
            entry["tasks"] = [f"{_halves(str(task))[0]}:auto" for task in entry["tasks"]]
        return document.put(("jobs", next_like(names, names[row])), entry)


class TaskSheet:
    """The tasks of one job, host and port apart."""

    nothing = "no tasks. a adds some"
    titles = ("task", "host", "port")
    _HOST = Field("host", ("host",), JOB[0].kind, "a host of this file, or localhost",
                  complete="hosts")  # fmt: skip
    _PORT = Field("port", ("port",), JOB[0].kind, "1 to 65535, or auto: a free one at launch",
                  choices=("auto",))  # fmt: skip

    def __init__(self, job: str) -> None:
        self.job = job

    def _tasks(self, document: ClusterText) -> list[Any]:
        found = document.get("jobs", self.job, "tasks")
        return list(found) if isinstance(found, list) else []

    def rows(self, seen: Examined) -> list[Row]:
        """One row a task."""
        assert seen.document is not None
        wrong: dict[int, str] = {}
        for problem in seen.problems:
            match problem.path:
                case ("jobs", self.job, "tasks", int(index), *_):
                    wrong.setdefault(index, problem.message)
        found = []
        for index, task in enumerate(self._tasks(seen.document)):
            host, port = _halves(str(task))
            said = wrong.get(index, "")
            at_port = said.startswith(("a port", "the port", "port "))
            cells = (
                Cell(f"{self.job}:{index}", fixed=True),
                Cell(visible(host), problem="" if at_port else said),
                Cell(visible(port), problem=said if at_port else ""),
            )
            found.append(Row(str(index), cells))
        return found

    def field(self, row: int, column: int) -> Field | None:
        """Host or port."""
        return (None, self._HOST, self._PORT)[column]

    def put(self, document: ClusterText, row: int, column: int, line: str) -> ClusterText:
        """Another host or port."""
        tasks = self._tasks(document)
        host, port = _halves(str(tasks[row]))
        value = str(self._HOST.kind.value(line) or "")
        if column == 1:
            host = f"[{value}]" if value.count(":") > 1 and "[" not in value else value
        else:
            port = value
        tasks[row] = f"{host}:{port}"
        return document.put(("jobs", self.job, "tasks"), tasks)

    def remove(self, document: ClusterText, row: int) -> ClusterText:
        """Without the task; those after it move up."""
        return document.remove("jobs", self.job, "tasks", row)

    def place(self, problem: Problem, document: ClusterText) -> tuple[int, int] | None:
        """See `Sheet`."""
        match problem.path:
            case ("jobs", self.job, "tasks", int(index), *_):
                return index, 1
        return None

    def add(self, document: ClusterText, fresh: list[str]) -> ClusterText:
        """More tasks, at the end."""
        return document.put(("jobs", self.job, "tasks"), [*self._tasks(document), *fresh])

    def next(self, document: ClusterText) -> str:
        """What one more task would be: the next host in the series, if there is one."""
        tasks = [str(task) for task in self._tasks(document)]
        if not tasks:
            return f"{next(iter(document.table('hosts')), LOCALHOST)}:auto"
        host, port = _halves(tasks[-1])
        names = list(document.table("hosts"))
        after = names[names.index(host) + 1 :] if host in names else []
        used = {_halves(task)[0] for task in tasks}
        free = next((name for name in after if name not in used), None)
        return f"{free}:{port}" if free else f"{host}:auto"


class RunSheet:
    """`name`, `[run]`, `[start]` and `[metrics]`, a key a row."""

    nothing = ""
    titles = ("key", "value", "what it is")

    def rows(self, seen: Examined) -> list[Row]:
        """One row a key, there or not."""
        assert seen.document is not None
        found = []
        for field in RUN:
            problem = next(
                (p for p in seen.problems if p.path[: len(field.path)] == field.path), None
            )
            value = seen.document.get(*field.path)
            cells = (
                Cell(field.title, fixed=True),
                Cell(
                    field.kind.line(value) if value is not None else "",
                    field.default,
                    problem.message if problem else "",
                ),
                Cell("", field.about, fixed=True),
            )
            found.append(Row(field.title, cells))
        return found

    def field(self, row: int, column: int) -> Field | None:
        """The row's key, whichever cell."""
        return RUN[row]

    def put(self, document: ClusterText, row: int, column: int, line: str) -> ClusterText:
        """Another value."""
        return document.put(RUN[row].path, RUN[row].kind.value(line))

    def remove(self, document: ClusterText, row: int) -> ClusterText:
        """Back to the default."""
        return document.put(RUN[row].path, None)

    def place(self, problem: Problem, document: ClusterText) -> tuple[int, int] | None:
        """See `Sheet`."""
        for number, field in enumerate(RUN):
            if problem.path[: len(field.path)] == field.path:
                return number, 1
        return None


def paste(document: ClusterText, found: dict[str, list[str]]) -> ClusterText:
    """Jobs with their tasks, and hosts that are nowhere defined, reached by their own name."""
    for job, tasks in found.items():
        document = document.put(("jobs", job, "tasks"), tasks)
    return add_missing(document, found)


def add_missing(document: ClusterText, found: dict[str, list[str]]) -> ClusterText:
    """Defines the hosts that tasks name and that are nowhere defined."""
    for host in missing_hosts(found, document.table("hosts")):
        document = document.put(("hosts", host), {"ssh": host})
    return document


def undefined_hosts(document: ClusterText) -> dict[str, list[str]]:
    """All tasks of the file, by job, for `add_missing`."""
    found = {}
    for name, entry in document.table("jobs").items():
        tasks = entry.get("tasks") if isinstance(entry, dict) else None
        if isinstance(tasks, list):
            found[name] = [task for task in tasks if isinstance(task, str)]
    return found


def candidates(field: Field, document: ClusterText) -> list[str]:
    """What a field's completion knows."""
    match field.complete:
        case "ssh":
            return aliases()
        case "hosts":
            return [*document.table("hosts"), LOCALHOST]
        case "tasks":
            return [f"{host}:" for host in (*document.table("hosts"), LOCALHOST)]
    return list(field.choices)


def _row(
    name: str,
    entry: Any,
    fields: Sequence[Field],
    table: tuple[str, ...],
    problems: Sequence[Problem],
    defaults: dict[str, str] | None = None,
) -> Row:
    values = entry if isinstance(entry, dict) else {}
    wrong: dict[int, str] = {}
    rest = ""
    for problem in problems:
        if problem.path[: len(table)] != table:
            continue
        column = _column(fields, problem.path[len(table) :])
        if column is None:
            rest = rest or str(problem)
        else:
            wrong.setdefault(column, problem.message)
    cells = [Cell(visible(name), problem=wrong.get(0, ""))]
    for column, field in enumerate(fields[1:], 1):
        value = values.get(field.path[0])
        default = (defaults or {}).get(field.title, field.default)
        text = "" if value is None else field.kind.line(value)
        cells.append(Cell(text, default, wrong.get(column, "")))
    return Row(name, tuple(cells), rest)


def _column(fields: Sequence[Field], path: Sequence[str | int]) -> int | None:
    if not path:
        return 0
    return next((i for i, field in enumerate(fields) if field.path == (path[0],)), None)


def _place(
    table: str, fields: Sequence[Field], problem: Problem, document: ClusterText
) -> tuple[int, int] | None:
    names = list(document.table(table))
    if problem.path[:1] != (table,) or len(problem.path) < 2 or problem.path[1] not in names:
        return None
    return names.index(str(problem.path[1])), _column(fields, problem.path[2:]) or 0


def _named(line: str, what: str) -> str:
    if not line.strip():
        raise EditError(f"{what} needs a name")
    return line.strip()


def _halves(task: str) -> tuple[str, str]:
    """Host and port as they stand, however broken."""
    if task.startswith("[") and "]" in task and not task.rpartition("]")[2]:
        return task, ""
    host, colon, port = task.rpartition(":")
    return (host, port) if colon else (task, "")
