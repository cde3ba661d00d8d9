"""Table model of `name`, `[run]`, `[start]` and `[metrics]`."""

from __future__ import annotations

from launcher.cluster.draft import ParsedDraft
from launcher.cluster.edit import ClusterDocument
from launcher.errors import Problem
from tui.cells import Cell, Row
from tui.screens.editor.fields import Field, run_fields


class RunModel:
    """`name`, `[run]`, `[start]` and `[metrics]`, a key a row."""

    nothing = ""
    titles = ("key", "value", "description")

    def rows(self, seen: ParsedDraft) -> list[Row]:
        """One row for each key, set or not."""
        assert seen.document is not None
        found = []
        for field in run_fields():
            problem = next(
                (p for p in seen.problems if p.path[: len(field.path)] == field.path), None
            )
            value = seen.document.get(*field.path)
            cells = (
                Cell(field.title, fixed=True),
                Cell(
                    field.codec.line(value) if value is not None else "",
                    field.default,
                    problem.message if problem else "",
                ),
                Cell("", field.about, fixed=True),
            )
            found.append(Row(field.title, cells))
        return found

    def field(self, row: int, column: int) -> Field | None:
        """Key of the row."""
        return run_fields()[row]

    def put(self, document: ClusterDocument, row: int, column: int, line: str) -> ClusterDocument:
        """Changes a value."""
        return document.put(run_fields()[row].path, run_fields()[row].codec.value(line))

    def remove(self, document: ClusterDocument, row: int) -> ClusterDocument:
        """Removes the key: its default holds."""
        return document.put(run_fields()[row].path, None)

    def place(self, problem: Problem, document: ClusterDocument) -> tuple[int, int] | None:
        """See `TableModel`."""
        for number, field in enumerate(run_fields()):
            if problem.path[: len(field.path)] == field.path:
                return number, 1
        return None

    def add_prompt(self, document: ClusterDocument) -> None:
        """There are no more keys."""

    def add(self, document: ClusterDocument, line: str) -> ClusterDocument:
        """There are no more keys."""
        return document

    def copy(self, document: ClusterDocument, row: int) -> None:
        """Keys cannot be copied."""
