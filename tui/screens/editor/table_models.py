"""Table models of the editor: rows of a cluster file, and edits of the file by cell and row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from launcher.cluster.addresses import LOCALHOST
from launcher.cluster.draft import ParsedDraft
from launcher.cluster.edit import ClusterDocument, EditError
from launcher.cluster.shorthand import ShorthandError, hosts, next_like, spec
from launcher.cluster.ssh_aliases import aliases
from launcher.errors import Problem
from launcher.printable import visible
from tui.cells import Cell, Row
from tui.screens.editor.cell_codecs import READY, WORDS
from tui.screens.editor.document_edits import halves, put_spec
from tui.screens.editor.fields import Field, host_fields, job_fields

_TENSORBOARD = {
    "in_cluster": False,
    "forward": True,
    "command": ["{python}", "-m", "tensorboard.main", "--logdir", "{logdir}", "--port", "{port}",
                "--host", "127.0.0.1"],
    "env": {"PYTHONSAFEPATH": "1"},  # else a `queue.py` in its directory would be imported
}  # fmt: skip
_LONGEST_DEFAULT = 200
_JOB_NAMES = ("ps", "worker", "chief", "evaluator", "tensorboard")


@dataclass(frozen=True)
class AddPrompt:
    """Question for the line that `TableModel.add` takes."""

    title: str
    about: str
    start: str
    problem: Callable[[str], str]
    """What is wrong with a line; empty if nothing is."""
    candidates: Sequence[str]
    """Completions."""


class TableModel(Protocol):
    """One table of the editor. A line that means nothing raises `ValueError`, `ShorthandError` or
    `EditError` with the sentence to show."""

    @property
    def nothing(self) -> str:
        """Text shown while there are no rows."""

    @property
    def titles(self) -> Sequence[str]:
        """Titles of the columns."""

    def rows(self, seen: ParsedDraft) -> list[Row]:
        """All rows with their problems."""

    def field(self, row: int, column: int) -> Field | None:
        """Field of a cell; None if it cannot be edited."""

    def put(self, document: ClusterDocument, row: int, column: int, line: str) -> ClusterDocument:
        """Puts a text into a cell."""

    def remove(self, document: ClusterDocument, row: int) -> ClusterDocument:
        """Removes a row."""

    def place(self, problem: Problem, document: ClusterDocument) -> tuple[int, int] | None:
        """Row and column of the cell that a problem is about, if it is in this table."""

    def add_prompt(self, document: ClusterDocument) -> AddPrompt | None:
        """Question for new rows; None if there can be no more."""

    def add(self, document: ClusterDocument, line: str) -> ClusterDocument:
        """Adds the rows that a line stands for."""

    def copy(self, document: ClusterDocument, row: int) -> ClusterDocument | None:
        """Adds one more row like this; None if rows cannot be copied."""


class HostModel:
    """`[hosts.*]`."""

    nothing = "no hosts: all tasks run on this machine. a adds hosts"

    @property
    def titles(self) -> Sequence[str]:
        """See `TableModel`."""
        return [field.title for field in host_fields()]

    def rows(self, seen: ParsedDraft) -> list[Row]:
        """One row for each host."""
        assert seen.document is not None
        found = []
        for name, entry in seen.document.table("hosts").items():
            found.append(_row(name, entry, host_fields(), ("hosts", name), seen.problems))
        return found

    def field(self, row: int, column: int) -> Field | None:
        """Field of the column."""
        return host_fields()[column]

    def put(self, document: ClusterDocument, row: int, column: int, line: str) -> ClusterDocument:
        """Changes a value, or renames the host."""
        name = list(document.table("hosts"))[row]
        if column:
            field = host_fields()[column]
            return document.put(("hosts", name, *field.path), field.codec.value(line))
        return document.rename_host(name, _named(line, "a host"))

    def remove(self, document: ClusterDocument, row: int) -> ClusterDocument:
        """Removes the host; tasks that name it become problems."""
        return document.remove("hosts", list(document.table("hosts"))[row])

    def place(self, problem: Problem, document: ClusterDocument) -> tuple[int, int] | None:
        """See `TableModel`."""
        return _place("hosts", host_fields(), problem, document)

    def add_prompt(self, document: ClusterDocument) -> AddPrompt:
        """Asks for SSH destinations."""
        return AddPrompt(
            "Add hosts",
            "SSH destinations: root@tf[1-4], gpu7",
            "",
            lambda line: many_problem(line, hosts),
            aliases(),
        )

    def add(self, document: ClusterDocument, line: str) -> ClusterDocument:
        """Adds hosts; those whose name is taken get the next one in its series."""
        for name, destination in hosts(line).items():
            names = list(document.table("hosts"))
            fresh = next_like(names, name) if name in names else name
            document = document.put(("hosts", fresh), {"ssh": destination})
        return document

    def copy(self, document: ClusterDocument, row: int) -> ClusterDocument:
        """Adds a host with the next name and destination in their series."""
        names = list(document.table("hosts"))
        entry = dict(document.table("hosts", names[row]))
        taken = [str(document.get("hosts", name, "ssh")) for name in names]
        for key in ("ssh", "address"):
            if isinstance(entry.get(key), str):
                entry[key] = next_like(taken if key == "ssh" else [], entry[key])
        return document.put(("hosts", next_like(names, names[row])), entry)


class JobModel:
    """`[jobs.*]`."""

    nothing = "no jobs: a adds one, p pastes a TF_CONFIG"

    @property
    def titles(self) -> Sequence[str]:
        """See `TableModel`."""
        return [field.title for field in job_fields()]

    def rows(self, seen: ParsedDraft) -> list[Row]:
        """One row for each job."""
        assert seen.document is not None
        found = []
        command = seen.document.get("run", "command")
        for name, entry in seen.document.table("jobs").items():
            defaults = {}
            if isinstance(command, list):
                defaults["command"] = WORDS.line(command)[:_LONGEST_DEFAULT]
            helper = isinstance(entry, dict) and entry.get("in_cluster") is False
            started = helper or name == "evaluator"
            wait = seen.document.get("start", "ready", name)
            defaults["ready"] = "started" if started else "listening"
            if wait is not None:
                defaults["ready"] = READY.line(wait)
            found.append(_row(name, entry, job_fields(), ("jobs", name), seen.problems, defaults))
        return found

    def field(self, row: int, column: int) -> Field | None:
        """Field of the column."""
        return job_fields()[column]

    def put(self, document: ClusterDocument, row: int, column: int, line: str) -> ClusterDocument:
        """Changes a value, renames the job, or puts a whole cluster spec given as tasks."""
        name = list(document.table("jobs"))[row]
        field = job_fields()[column]
        if not column:
            return document.rename_job(name, _named(line, "a job"))
        if field.title == "tasks" and (found := spec(line)) is not None:
            return put_spec(document, found)
        return document.put(("jobs", name, *field.path), field.codec.value(line))

    def remove(self, document: ClusterDocument, row: int) -> ClusterDocument:
        """Removes the job."""
        return document.remove("jobs", list(document.table("jobs"))[row])

    def place(self, problem: Problem, document: ClusterDocument) -> tuple[int, int] | None:
        """See `TableModel`."""
        return _place("jobs", job_fields(), problem, document)

    def add_prompt(self, document: ClusterDocument) -> AddPrompt:
        """Asks for a name."""
        free = [name for name in _JOB_NAMES if name not in document.table("jobs")]
        about = f"its name, such as {', '.join(free[:4]) or 'helper'}"
        return AddPrompt("Add a job", about, next(iter(free), ""), lambda line: "", free)

    def add(self, document: ClusterDocument, line: str) -> ClusterDocument:
        """Adds a job with one task on the first host."""
        name = _named(line, "a job")
        if name in document.table("jobs"):
            raise EditError(f"there is already a job {visible(name[:60])}")
        host = next(iter(document.table("hosts")), LOCALHOST)
        entry: dict[str, Any] = {"tasks": [f"{host}:auto"]}
        if name == "tensorboard":
            entry |= _TENSORBOARD
        return document.put(("jobs", name), entry)

    def copy(self, document: ClusterDocument, row: int) -> ClusterDocument:
        """Adds a job under the next name; fixed ports become `auto`."""
        names = list(document.table("jobs"))
        entry = dict(document.table("jobs", names[row]))
        if isinstance(entry.get("tasks"), list):
            entry["tasks"] = [f"{halves(str(task))[0]}:auto" for task in entry["tasks"]]
        return document.put(("jobs", next_like(names, names[row])), entry)


def many_problem(line: str, parse: Callable[[str], object]) -> str:
    """What is wrong with a line that stands for many entries; empty if nothing is."""
    try:
        parse(line)
    except ShorthandError as error:
        return str(error)
    return ""


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
        text = "" if value is None else field.codec.line(value)
        cells.append(Cell(text, default, wrong.get(column, "")))
    return Row(name, tuple(cells), rest)


def _column(fields: Sequence[Field], path: Sequence[str | int]) -> int | None:
    if not path:
        return 0
    return next((i for i, field in enumerate(fields) if field.path == (path[0],)), None)


def _place(
    table: str, fields: Sequence[Field], problem: Problem, document: ClusterDocument
) -> tuple[int, int] | None:
    names = list(document.table(table))
    if problem.path[:1] != (table,) or len(problem.path) < 2 or problem.path[1] not in names:
        return None
    return names.index(str(problem.path[1])), _column(fields, problem.path[2:]) or 0


def _named(line: str, what: str) -> str:
    if not line.strip():
        raise EditError(f"{what} needs a name")
    return line.strip()
