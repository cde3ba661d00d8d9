"""Table model of `[hosts.*]`, with a last row for `[defaults.host]`: values of every host that has
none of its own, shown dimmed in its cells."""

from __future__ import annotations

from typing import Any

from launcher.cluster import HostDefaults
from launcher.cluster.draft import ParsedDraft
from launcher.cluster.edit import ClusterDocument, EditError
from launcher.cluster.shorthand import aliases, hosts, next_like
from launcher.errors import Problem
from tui.cells import Cell, Row
from tui.screens.dialogs import AskText
from tui.screens.editor.completion import Completion
from tui.screens.editor.fields import host_fields
from tui.screens.editor.table_models import NamedTables, problem_of

_DEFAULTS = ("defaults", "host")
_TITLE = "*"
"""As in ssh_config: every host."""


class HostModel(NamedTables):
    """Table of the hosts: `[hosts.*]`, and `[defaults.host]` as a row of its own."""

    name = "hosts"
    nothing = "no hosts, all tasks run on this machine"
    own = ("ssh", "address")

    def __init__(self) -> None:
        super().__init__(host_fields())

    def _defaults(self, document: ClusterDocument, name: str, entry: Any) -> dict[str, str]:
        common = document.table(*_DEFAULTS)
        return {
            field.title: field.codec.line(common[field.path[0]])
            for field in self._fields[1:]
            if field.path[0] in common and field.path[0] in HostDefaults.model_fields
        }

    def _rename(self, document: ClusterDocument, old: str, new: str) -> ClusterDocument:
        return document.rename_host(old, new)

    def _is_default(self, document: ClusterDocument, row: int) -> bool:
        return row == len(self._names(document))

    def rows(self, seen: ParsedDraft) -> list[Row]:
        """The hosts, and where there are any, their defaults."""
        assert seen.document is not None
        found, common = super().rows(seen), seen.document.table(*_DEFAULTS)
        if not found and not common:
            return []
        problems = [p for p in seen.problems if p.path[:2] == _DEFAULTS or p.path == _DEFAULTS[:1]]
        wrong = {self._column(problem): problem for problem in reversed(problems)}
        cells = [Cell(_TITLE, fixed=True)]
        for column, field in enumerate(self._fields[1:], 1):
            if field.path[0] in HostDefaults.model_fields:
                line = field.codec.line(common.get(field.path[0]))
                problem = wrong[column].message if column in wrong else ""
                cells.append(Cell(line, field.default, problem))
            else:
                cells.append(Cell("", fixed=True))
        return [*found, Row("", tuple(cells), str(wrong.get(None, "")))]

    def about(self, key: str) -> str:
        return "" if key else "values of every host that has none of its own: [defaults.host]"

    def put(self, document: ClusterDocument, row: int, column: int, line: str) -> ClusterDocument:
        if not self._is_default(document, row):
            return super().put(document, row, column, line)
        field = self._fields[column]
        if not column:
            raise EditError("this row holds for every host: it has no name")
        if field.path[0] not in HostDefaults.model_fields:
            raise EditError(f"each host has its own {field.title}")
        value = field.codec.value(line)
        if value is None and document.table(*_DEFAULTS).keys() <= {*field.path}:
            return _without_defaults(document)
        return document.put((*_DEFAULTS, *field.path), value)

    def fill(self, document: ClusterDocument, row: int, column: int) -> ClusterDocument:
        """Gives all hosts the value of one; from the defaults, removes what hosts have instead."""
        if not self._is_default(document, row):
            return super().fill(document, row, column)
        field = self._fields[column]
        if not column or field.title in self.own:
            raise EditError(f"each host has its own {field.title}")
        paths = (("hosts", name, *field.path) for name in self._names(document))
        return document.put_all(paths, None)

    def remove(self, document: ClusterDocument, row: int) -> ClusterDocument:
        if self._is_default(document, row):
            return _without_defaults(document)
        return super().remove(document, row)

    def place(self, problem: Problem, document: ClusterDocument) -> tuple[int, int] | None:
        if problem.path[:1] == _DEFAULTS[:1] and document.table(*_DEFAULTS):
            return len(self._names(document)), self._column(problem) or 0
        return super().place(problem, document)

    def add_dialog(self, document: ClusterDocument) -> AskText:
        about = "SSH destinations: root@tf[1-4], gpu7"
        return AskText(
            "Add hosts", "", lambda line: problem_of(line, hosts), about, Completion(aliases())
        )

    def add(self, document: ClusterDocument, line: str) -> ClusterDocument:
        """Adds hosts; those whose name is taken get the next one in its series."""
        for name, destination in hosts(line).items():
            names = self._names(document)
            fresh = next_like(names, name) if name in names else name
            document = document.put(("hosts", fresh), {"ssh": destination})
        return document

    def copy(self, document: ClusterDocument, row: int) -> ClusterDocument:
        """Adds a host with the next name and destination in their series."""
        if self._is_default(document, row):
            return document
        names = self._names(document)
        entry = dict(document.table("hosts", names[row]))
        taken = [str(document.get("hosts", name, "ssh")) for name in names]
        for key in ("ssh", "address"):
            if isinstance(entry.get(key), str):
                entry[key] = next_like(taken if key == "ssh" else [], entry[key])
        fresh = next_like(names, names[row])
        if isinstance(entry.get("via"), list):  # mostly the name of a container
            entry["via"] = [fresh if word == names[row] else word for word in entry["via"]]
        return document.put(("hosts", fresh), entry)


def _without_defaults(document: ClusterDocument) -> ClusterDocument:
    """Removes the table of defaults, and the one around it where that is then empty."""
    alone = document.table("defaults").keys() <= {"host"}
    return document.put(_DEFAULTS[:1] if alone else _DEFAULTS, None)
