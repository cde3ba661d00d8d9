"""Table models of the editor with a row for each key: its value, and what it is for."""

from __future__ import annotations

from collections.abc import Sequence

from launcher.cluster.draft import ParsedDraft
from launcher.cluster.edit import ClusterDocument
from launcher.errors import Problem
from tui.cells import Cell, Row
from tui.screens.editor.fields import Field, engine_fields, run_fields
from tui.screens.editor.table_models import TableModel


class KeyModel(TableModel):
    """Keys of one or several tables; a row for each, set or not."""

    titles = ("key", "value", "description")
    first = 1
    one_column = True
    widest = 28

    def __init__(self, name: str, fields: Sequence[Field]) -> None:
        self.name = name
        self._fields = fields

    def rows(self, seen: ParsedDraft) -> list[Row]:
        assert seen.document is not None
        wrong: dict[int, str] = {}
        for problem in seen.problems:
            if (place := self.place(problem, seen.document)) is not None:
                wrong.setdefault(place[0], problem.message)
        found = []
        for number, field in enumerate(self._fields):
            line = field.codec.line(seen.document.get(*field.path))
            cells = (
                Cell(field.title, fixed=True),
                Cell(line, field.default, wrong.get(number, "")),
                Cell("", field.about, fixed=True),
            )
            found.append(Row(field.title, cells))
        return found

    def field(self, row: int, column: int) -> Field | None:
        return self._fields[row]

    def put(self, document: ClusterDocument, row: int, column: int, line: str) -> ClusterDocument:
        field = self._fields[row]
        return document.put(field.path, field.codec.value(line))

    def remove(self, document: ClusterDocument, row: int) -> ClusterDocument:
        """Removes the key: its default holds."""
        return document.put(self._fields[row].path, None)

    def place(self, problem: Problem, document: ClusterDocument) -> tuple[int, int] | None:
        for number, field in enumerate(self._fields):
            if problem.path[: len(field.path)] == field.path:
                return number, 1
        return None


class RunModel(KeyModel):
    """`name`, `[run]`, `[start]`, `[metrics]` and `[hooks]`."""

    def __init__(self) -> None:
        super().__init__("run", run_fields())


class EngineModel(KeyModel):
    """Table of an engine, in place of `[hosts.*]`; without it there are no rows."""

    def __init__(self, table: str) -> None:
        super().__init__(table, engine_fields(table))

    def rows(self, seen: ParsedDraft) -> list[Row]:
        assert seen.document is not None
        return [] if seen.document.get(self.name) is None else super().rows(seen)
