"""Hosts × jobs: a row for each host, a column for each job, in a cell the ports of its tasks; and
a column for each key that any host has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType

from launcher.cluster.addresses import LOCALHOST
from launcher.cluster.draft import ParsedDraft
from launcher.cluster.edit import ClusterDocument, halves
from launcher.cluster.key_lines import KeyPath
from launcher.cluster.reference import keys
from launcher.cluster.roles import ROLES, USUAL_JOBS, jobs_with
from launcher.quantities import counted
from tui.screens.editor.form import line_of
from tui.tables import TableRow
from tui.widgets.colours import theme_colour
from tui.widgets.table import Table

ALL = ""
"""Key of the row of all hosts."""
OTHER = ""
"""Key of the column in which a job of any name is added."""
_KEYS = ("ssh", "python")
"""Keys of a host that have a column before the jobs; others that the file sets, behind them."""
_USUAL = USUAL_JOBS[:3]
"""Jobs that have a column before the file has one of their role."""
_WIDEST = 24
_MOST_PORTS = 3


class ClusterTable(Table):
    """Shows hosts and tasks of a document; the screen edits it."""

    BINDING_GROUP_TITLE = "Hosts × jobs"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("plus", "screen.add_task", "Add a task", id="edit.add_task"),
        Binding("minus", "screen.remove_task", "Remove a task", id="edit.remove_task"),
        Binding("enter", "select_cursor", "Form of the host or job", id="edit.form"),
        Binding("a", "screen.add", "Add hosts, or paste a cluster", id="edit.add"),
        Binding("x,delete", "screen.remove", "Delete the host, or the tasks", id="edit.remove"),
        Binding("u,ctrl+z", "screen.undo", "Undo", id="edit.undo"),
        Binding("ctrl+y", "screen.redo", "Redo", id="edit.redo"),
        Binding("h", "cursor_left", "Left", show=False),
    ]

    def __init__(self) -> None:
        super().__init__("hosts-and-jobs", "hosts × jobs", cells=True)
        self._jobs: tuple[str, ...] = ()
        self._others: tuple[str, ...] = ()
        """Keys of hosts that have a column behind the jobs."""
        self._hosts: tuple[str, ...] = ()

    @property
    def host(self) -> str:
        """The host under the cursor, or `ALL`."""
        return self.key or ALL

    @property
    def job(self) -> str | None:
        """The job under the cursor, or `OTHER`; None in a column of the host itself."""
        at = self.cursor_column - 1 - len(_KEYS)
        return self._jobs[at] if 0 <= at < len(self._jobs) else None

    @property
    def field(self) -> str:
        """The key of the host under the cursor; empty in its name and in a column of a job."""
        names = self._fields
        return names[self.cursor_column] if self.cursor_column < len(names) else ""

    @property
    def _fields(self) -> tuple[str, ...]:
        return ("", *_KEYS, *[""] * len(self._jobs), *self._others)

    def path(self, document: ClusterDocument) -> KeyPath:
        """Path of the table that the form under the cursor is about; it may not be there yet."""
        if self.job is not None:
            return ("jobs", self.job) if self.job else ()
        if self.host:
            return ("hosts", self.host)
        return ("slurm",) if document.nodes else ("defaults", "host")

    def hosts_meant(self) -> tuple[str, ...]:
        """The host under the cursor, or all of them."""
        return (self.host,) if self.host else self._hosts

    def go(self, host: str, job: str | None = None, field: str = "") -> None:
        """Moves the cursor to a host, and to a job or to a key of the host if one is given."""
        at, fields = None, self._fields
        if field and field in fields:
            at = fields.index(field)
        elif job in self._jobs:
            at = 1 + len(_KEYS) + self._jobs.index(job)
        self.go_to(host, at)

    def show_cluster(self, now: ParsedDraft) -> None:
        """Shows a document; the cursor stays with its host and job."""
        if (document := now.document) is None:
            return
        host, job, field, column = self.host, self.job, self.field, self.cursor_column
        known, written = bool(self._jobs), list(document.table("jobs"))
        jobs = written + [job for job in _USUAL if not jobs_with(ROLES[job], written)]
        self._jobs, self._hosts = (*jobs, OTHER), tuple(_hosts(document))
        entries = [document.table("hosts", name) for name in document.table("hosts")]
        used = {key for entry in (*entries, document.table("defaults", "host")) for key in entry}
        used -= {*_KEYS, "via"}  # `via` stands in the column of ssh
        self._others = tuple(key.name for key in keys("hosts") if key.name in used)
        titles = [Text(title) for title in ("host", *_KEYS, *written)]
        titles += [Text(title, "dim") for title in (*jobs[len(written) :], "+ job")]
        titles += map(Text, self._others)
        every = [ALL] if len(self._hosts) > 1 or document.host_names() else []
        places, wrong = document.places(), set(_wrong(now))
        names = (*every, *self._hosts)
        cells = [
            [
                self._host_cell(document, name, wrong),
                *(self._key_cell(document, name, key) for key in _KEYS),
                *self._tasks(document, name, jobs, places, wrong),
                *(self._key_cell(document, name, key) for key in self._others),
            ]
            for name in names
        ]
        self.show(titles, [TableRow(*row) for row in zip(names, cells, strict=True)])
        self.move_cursor(column=column if known else 1 + len(_KEYS))
        if known:
            self.go(host, job)
        if field in self._others:
            self.go(host, field=field)

    def _host_cell(self, document: ClusterDocument, host: str, wrong: set[tuple[str, str]]) -> Text:
        names = {ALL: "all nodes" if document.nodes else "all hosts", LOCALHOST: "this machine"}
        name = _end(names.get(host, host))
        return Text(f"{name} !", self._bad) if (host, "") in wrong else Text(name, "bold")

    def _key_cell(self, document: ClusterDocument, host: str, key: str) -> Text:
        """Cell of a key of a host; what it has from the defaults is dim."""
        common = document.table("defaults", "host")
        entry = document.table("hosts", host) if host else common
        value = entry.get(key)
        if key == "ssh" and isinstance(via := entry.get("via"), list):
            value = " ".join(map(str, via))
        inherited = value is None and key in common and host in document.table("hosts")
        text = _line(common[key] if inherited else value)
        return Text(_end(text), "dim" if inherited else "")

    def _tasks(
        self,
        document: ClusterDocument,
        host: str,
        jobs: Iterable[str],
        places: Mapping[str, Mapping[str, Sequence[str]]],
        wrong: set[tuple[str, str]],
    ) -> Iterable[Text]:
        """Cells of a host's tasks; of all hosts, their number."""
        for job in jobs:
            text = _ports(places.get(host, {}).get(job, ()))
            if not host and (count := len(document.tasks(job))):
                text = counted(count, "task")
            bad = (host, job) in wrong
            yield Text(f"{text} !", self._bad) if bad else Text(text, "" if host else "dim")
        yield Text("+" if host else "", "dim")

    @property
    def _bad(self) -> str:
        return f"bold {theme_colour(self.app, 'status-bad')}"


def _hosts(document: ClusterDocument) -> list[str]:
    """Hosts of the file, then those that only tasks name; without any, this machine."""
    found = dict.fromkeys([*document.host_names(), *document.table("hosts")])
    found |= dict.fromkeys(filter(None, document.places()))
    return list(found or {LOCALHOST: None})


def _line(value: object) -> str:
    kind = {str: "string", list: "array", dict: "object"}
    return line_of(value, next((word for of, word in kind.items() if isinstance(value, of)), ""))


def _ports(ports: Iterable[str]) -> str:
    """`:2222`, or `:auto ×8`."""
    counts = Counter(ports)
    shown = [f":{port} ×{n}" if n > 1 else f":{port}" for port, n in counts.items()]
    more = [f"… {sum(counts.values())}"] if len(shown) > _MOST_PORTS else []
    return " ".join(shown[:_MOST_PORTS] + more)


def _end(text: str) -> str:
    """The end of a long text: of a path that is its name."""
    text = "".join(letter if letter.isprintable() else " " for letter in text)
    return text if len(text) <= _WIDEST else f"…{text[1 - _WIDEST :]}"


def _wrong(now: ParsedDraft) -> Iterable[tuple[str, str]]:
    """Host and job of each cell that a problem is about."""
    assert now.document is not None
    for problem in now.problems:
        match problem.path:
            case ("hosts", str(host), *_):
                yield host, ""
            case ("defaults" | "slurm", *_):
                yield ALL, ""
            case ("jobs", str(job), "tasks", int(index), *_):
                tasks = now.document.get("jobs", job, "tasks")
                if isinstance(tasks, list) and index < len(tasks):
                    yield halves(str(tasks[index]))[0], job
            case ("jobs", str(job), *_):
                yield ALL, job
