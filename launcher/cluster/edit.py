"""Editor of cluster files that changes single values and keeps comments and order.

Every edit is verified by parsing the result: if it does not have exactly the intended values, the
edit is refused. So a bug here, or in the library that keeps the comments, cannot damage a file.
"""

from __future__ import annotations

import copy
import json
import re
import tomllib
from collections.abc import Callable, Mapping
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AbstractTable, Array, InlineTable

from ..errors import TfmuxError
from ..printable import printable
from .addresses import AUTO, HERE, LOCALHOST, SshDestination, TaskAddress, bracketed
from .file_model import Slurm, node_name
from .host_names import host_name, missing_hosts, next_like
from .key_lines import KeyLines, KeyPath
from .shorthand.understood import ListedHost, Understood
from .values import MOST_HOSTS

TENSORBOARD = {
    "in_cluster": False,
    "forward": True,
    "command": ["{python}", "-m", "tensorboard.main", "--logdir", "{logdir}", "--port", "{port}",
                "--host", "127.0.0.1"],
    "env": {"PYTHONSAFEPATH": "1"},  # else a `queue.py` in its directory would be imported
}  # fmt: skip
"""Keys of a new job of this name beside its tasks."""
_ANY_HEADER = re.compile(r"[ \t]*\[[^\[\]]+\][ \t]*(?:#.*)?$")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_WIDE = 90
"""Characters of an array from which on it is written on several lines."""


class EditError(TfmuxError):
    """The file has a form that this edit cannot keep; nothing was changed."""


class ClusterDocument:
    """Text of a cluster file with its values. Immutable: an edit returns a new document."""

    def __init__(self, text: str, values: dict[str, Any] | None = None) -> None:
        """Parses the text, unless `values` are what it says.

        Raises:
            ValueError: it is not valid TOML.
        """
        self.text = text
        self.data: dict[str, Any] = _values(text) if values is None else values

    def get(self, *path: str | int) -> Any:
        """Returns the value at a path, None if there is none."""
        value: Any = self.data
        for key in path:
            if isinstance(value, dict) and isinstance(key, str):
                value = value.get(key)
            elif isinstance(value, list) and isinstance(key, int) and key < len(value):
                value = value[key]
            else:
                return None
        return value

    def table(self, *path: str) -> Mapping[str, Any]:
        """Returns the table at a path, empty if there is none."""
        found = self.get(*path)
        return found if isinstance(found, dict) else {}

    def put(self, path: KeyPath, value: Any) -> ClusterDocument:
        """Sets a value; None removes the key. Missing tables are created.

        Raises:
            EditError: the file's form does not allow it.
        """
        if self.get(*path) == value and (value is not None or not self._has(path)):
            return self
        meant = copy.deepcopy(self.data)
        _put_plain(meant, path, value)
        if value is None and (cut := _verified(self._without_lines(path), meant)):
            return cut
        return self._edited(
            meant,
            lambda document: _put(document, path, value, whole=False),
            lambda document: _put(document, path, value, whole=True),
            lambda document: _appended(document, path, value),
        )

    def remove(self, *path: str | int) -> ClusterDocument:
        """Removes a key or an element of a list.

        Raises:
            EditError: the file's form does not allow it.
        """
        if isinstance(path[-1], int):
            values = list(self.get(*path[:-1]) or ())
            del values[path[-1]]
            return self.put(path[:-1], values)
        return self.put(path, None)

    def rename(self, path: tuple[str, ...], name: str) -> ClusterDocument:
        """Renames a table in place.

        Raises:
            EditError: the name is taken, or the file's form does not allow it.
        """
        if name == path[-1]:
            return self
        outer = self.table(*path[:-1])
        if name in outer:
            raise EditError(f"there is already a {path[0].rstrip('s')} {printable(name[:60])}")
        meant = copy.deepcopy(self.data)
        table: dict[str, Any] = meant
        for key in path[:-1]:
            table = table[key]
        renamed = {name if key == path[-1] else key: value for key, value in table.items()}
        table.clear()
        table.update(renamed)
        for form in _forms(path):
            text = form.sub(lambda m: f"{m[1]}{_quoted(name)}{m[2]}", self.text)
            if text != self.text and (renamed_in_text := _verified(text, meant)):
                return renamed_in_text
        return self._edited(meant, lambda document: _rename(document, path, name))

    # hosts × jobs

    @property
    def nodes(self) -> int:
        """Nodes that Slurm is asked for; 0 without a table `[slurm]`."""
        if self.get(Slurm.table) is None:
            return 0
        nodes = self.get(Slurm.table, "nodes")
        return nodes if isinstance(nodes, int) and 0 < nodes <= MOST_HOSTS else 1

    def host_names(self) -> list[str]:
        """Hosts that the file defines: nodes of Slurm, or `[hosts.*]`."""
        return [node_name(n) for n in range(self.nodes)] or list(self.table("hosts"))

    def tasks(self, job: str) -> list[str]:
        """Tasks of a job as they stand; those that are not texts are left out."""
        found = self.get("jobs", job, "tasks")
        return [task for task in found if isinstance(task, str)] if isinstance(found, list) else []

    def places(self) -> dict[str, dict[str, list[str]]]:
        """Ports of the tasks on each host, by job."""
        found: dict[str, dict[str, list[str]]] = {}
        for job in self.table("jobs"):
            for task in self.tasks(job):
                host, port = halves(task)
                found.setdefault(host, {}).setdefault(job, []).append(port)
        return found

    def undefined_hosts(self) -> list[str]:
        """Hosts that tasks name and nothing defines."""
        if self.nodes:
            return []
        return missing_hosts(
            {job: self.tasks(job) for job in self.table("jobs")}, dict.fromkeys(self.host_names())
        )

    def add_task(self, host: str, job: str) -> ClusterDocument:
        """Adds a task on a host; a job that is not there is made. The port is that of the job's
        last task where it is free on the host, else `auto`.

        Raises:
            EditError: the tasks are no list, or the file's form does not allow it.
        """
        tasks = self._task_list(job)
        port = halves(str(tasks[-1]))[1] if tasks else AUTO
        taken = [port for ports in self.places().get(host, {}).values() for port in ports]
        if not port.isdigit() or port in taken:
            port = AUTO
        task = f"{host if host.startswith('[') else bracketed(host)}:{port}"
        if job not in self.table("jobs"):
            more = TENSORBOARD if job == "tensorboard" else {}
            if self.nodes:  # nothing logs in at a node, which could forward its port
                more = {key: value for key, value in more.items() if key != "forward"}
            return self.put(("jobs", job), {"tasks": [task], **more})
        return self.put(("jobs", job, "tasks"), [*tasks, task])

    def remove_task(self, host: str, job: str) -> ClusterDocument:
        """Removes the last task of a job on a host, with the last one a job that says no more.

        Raises:
            EditError: there is none, or the file's form does not allow it.
        """
        tasks = self._task_list(job)
        at = [i for i, task in enumerate(tasks) if halves(str(task))[0] == host]
        if not at:
            raise EditError(f"no task of {printable(job, 60)} is on {printable(host, 60)}")
        del tasks[at[-1]]
        if not tasks and self.table("jobs", job).keys() == {"tasks"}:
            # The form of the file has no place for an empty table.
            path = ("jobs", job) if len(self.table("jobs")) > 1 else ("jobs",)
            without = self.put(path, None)
            if without.text.count("#") == self.text.count("#"):  # no comment goes with it
                return without
        return self.put(("jobs", job, "tasks"), tasks)

    def add(self, understood: Understood) -> ClusterDocument:
        """Adds hosts, or jobs with tasks and the hosts that they name, and the commands of the jobs
        where the file has none.

        Raises:
            EditError: Slurm gives the hosts, or the file's form does not allow it.
        """
        if self.nodes and not understood.jobs:
            raise EditError("Slurm gives the hosts: nodes in [slurm] says how many")
        document = self
        names: dict[SshDestination, str] = {}
        for host in understood.logins():
            names[host.login], table = document._named(host, again=not understood.jobs)
            if table and not self.nodes:
                document = document.put(("hosts", names[host.login]), table)
        for job, tasks in understood.jobs.items():
            places = [str(TaskAddress(names[task.login], task.port)) for task in tasks]
            document = document.put(("jobs", job, "tasks"), places)
        if understood.command and document.get("run", "command") is None:
            document = document.put(("run", "command"), list(understood.command))
        for job, command in understood.commands.items():
            if document.get("run", "command") is None and job in understood.jobs:
                document = document.put(("jobs", job, "command"), list(command))
        return document

    def _named(self, host: ListedHost, *, again: bool) -> tuple[str, dict[str, Any]]:
        """The name of a host in the file, and its table where it has none yet; with `again` a host
        of the same name is another one."""
        login = host.login
        hosts = self.table("hosts")
        if login == HERE:
            return LOCALHOST, {}
        bare = login.user is None and login.port is None
        for name, entry in hosts.items():
            ssh = entry.get("ssh") if isinstance(entry, dict) else None
            if not again and (ssh == str(login) or (bare and name == login.host)):
                return name, {}
        if bare and not again and login.host in self.host_names():
            return login.host, {}
        name = host.name or host_name(login.host, {})
        taken = [LOCALHOST, *hosts]
        return (next_like(taken, name) if name in taken else name), host.table

    def remove_host(self, host: str) -> ClusterDocument:
        """Removes a host and its tasks; jobs without another task stay, with none.

        Raises:
            EditError: the file's form does not allow it.
        """
        document = self
        for job in self.table("jobs"):
            if kept := [task for task in self.tasks(job) if halves(task)[0] != host]:
                if len(kept) < len(self.tasks(job)):
                    tasks = [t for t in self._task_list(job) if halves(str(t))[0] != host]
                    document = document.put(("jobs", job, "tasks"), tasks)
                continue
            for _ in self.tasks(job):
                document = document.remove_task(host, job)
        if host not in self.table("hosts"):
            return document
        return document.put(("hosts", host) if len(self.table("hosts")) > 1 else ("hosts",), None)

    def _task_list(self, job: str) -> list[Any]:
        tasks = self.get("jobs", job, "tasks")
        if tasks is not None and not isinstance(tasks, list):
            raise EditError(
                f"the tasks of {printable(job, 60)} are not a list: correct the file first"
            )
        return list(tasks or ())

    # names

    def rename_host(self, old: str, new: str) -> ClusterDocument:
        """Renames a host, in the tasks as well.

        Raises:
            EditError: see `rename`.
        """
        result = self.rename(("hosts", old), new) if old in self.table("hosts") else self
        for job, entry in self.table("jobs").items():
            tasks = entry.get("tasks") if isinstance(entry, dict) else None
            if isinstance(tasks, list):
                moved = _mapped(tasks, lambda task: _moved(task, old, new))
                result = result.put(("jobs", job, "tasks"), moved)
        return result

    def rename_job(self, old: str, new: str) -> ClusterDocument:
        """Renames a job, in the order and in placeholders as well.

        Raises:
            EditError: see `rename`.
        """

        def entry(text: str) -> str:
            job, colon, index = text.partition(":")
            return f"{new}{colon}{index}" if job == old else text

        result = self.rename(("jobs", old), new)
        order = self.get("start", "order")
        if isinstance(order, list):
            result = result.put(("start", "order"), _mapped(order, entry))
        if old in self.table("start", "ready"):
            result = result.rename(("start", "ready", old), new)
        token = re.compile(  # doubled braces are those of the text itself
            rf"\{{\{{|\}}\}}|\{{((?:hosts|num)\.){re.escape(old)}\}}"
            rf"|\{{((?:host|port|address)\.){re.escape(old)}(\.\d+)\}}"
        )

        def write(found: re.Match[str]) -> str:
            if not (begin := found[1] or found[2]):
                return found[0]
            return f"{{{begin}{new}{found[3] or ''}}}"

        def named(text: str) -> str:
            return token.sub(write, text)

        tables = ((table, name) for table in ("hosts", "jobs") for name in result.table(table))
        for path in (("run",), ("defaults", "host"), *tables):
            for key, value in result.table(*path).items():
                result = result.put((*path, key), _mapped(value, named))
        return result

    def _without_lines(self, path: KeyPath) -> str:
        """The text without the lines of a key or table. Unlike tomlkit this keeps comments below
        it, which mostly belong to what follows; not for every form the result is right."""
        text, lines = self.text.split("\n"), KeyLines(self.text.replace("\r\n", "\n"))
        first = lines.of(path) or 1
        last, number = first, first
        while number < len(text) and (below := lines.on(number + 1))[: len(path)] in (path, ()):
            number += 1
            content = text[number - 1].strip()
            if below or (last == number - 1 and content and content[0] not in "#["):
                last = number
        while (
            last < len(text) - 1
            and not text[last].strip()
            and (first == 1 or not text[first - 2].strip())
        ):
            last += 1
        return "\n".join(text[: first - 1] + text[last:])

    def _has(self, path: KeyPath) -> bool:
        outer = self.get(*path[:-1]) if len(path) > 1 else self.data
        return isinstance(outer, dict) and path[-1] in outer

    def _edited(
        self, meant: dict[str, Any], *ways: Callable[[tomlkit.TOMLDocument], str | None]
    ) -> ClusterDocument:
        """Returns the result of the first way that gives the intended values."""
        for way in ways:
            try:
                document = tomlkit.parse(self.text.removeprefix("\ufeff"))
                text = way(document) or tomlkit.dumps(document)
            except (TOMLKitError, KeyError, TypeError, ValueError, AttributeError, IndexError):
                continue  # an unusual but valid form: the next way changes more
            for form in map(self._with_line_ends, (_spaced(text, self.text), text)):
                if edited := _verified(form, meant):
                    return edited
        raise EditError("the file has an unusual form: make this change in the text")

    def _with_line_ends(self, text: str) -> str:
        # tomlkit ends new lines with LF.
        return re.sub(r"(?<!\r)\n", "\r\n", text) if line_end(self.text) == "\r\n" else text


def halves(task: str) -> tuple[str, str]:
    """Host and port of a task as they stand, however broken."""
    if task.startswith("[") and "]" in task and not task.rpartition("]")[2]:
        return task, ""
    host, colon, port = task.rpartition(":")
    return (host, port) if colon else (task, "")


def line_end(text: str) -> str:
    """Returns CRLF if all lines of a text end with it, otherwise LF."""
    return "\r\n" if 0 < text.count("\n") == text.count("\r\n") else "\n"


def _spaced(text: str, before: str) -> str:
    """Adds a blank line before a new table, and before the table after it."""
    known = {line for line in before.splitlines() if _ANY_HEADER.match(line)}
    result: list[str] = []
    fresh = False
    for line in text.split("\n"):
        if _ANY_HEADER.match(line):
            was, fresh = fresh, line not in known
            if (fresh or was) and result and result[-1].strip() and result[-1][0] != "#":
                result.append("")
        result.append(line)
    return "\n".join(result)


def _values(text: str) -> dict[str, Any]:
    """The values of a text.

    Raises:
        ValueError: it is not valid TOML.
    """
    try:
        return tomllib.loads(text.removeprefix("\ufeff"))
    except RecursionError:
        raise ValueError("the brackets are nested too deeply") from None


def _verified(text: str, meant: Mapping[str, Any]) -> ClusterDocument | None:
    """The document of an edited text, if it says what is meant."""
    try:
        document = ClusterDocument(text)
    except ValueError:
        return None
    return document if _canonical(document.data) == _canonical(meant) else None


def _canonical(data: object) -> str:
    # Not by ==: a nan is not equal to itself, and 1 would be equal to 1.0 and to true.
    return json.dumps(data, sort_keys=True, default=repr)


def _put_plain(data: dict[str, Any], path: KeyPath, value: Any) -> None:
    for key in path[:-1]:
        inner = data.get(str(key))
        if not isinstance(inner, dict):
            if value is None:
                return
            inner = data[str(key)] = {}
        data = inner
    if value is None:
        data.pop(str(path[-1]), None)
    else:
        data[str(path[-1])] = copy.deepcopy(value)


def _forms(path: tuple[str, ...]) -> list[re.Pattern[str]]:
    """Makes patterns that find a table's name, between two groups: in its header and in those of
    the tables below it; also in dotted keys; also in keys below another header."""
    outer = r"\s*\.\s*".join(_any_form(name) for name in path[:-1]) + r"[ \t]*\.[ \t]*"
    name = _any_form(path[-1])
    begins = (rf"\[[ \t]*{outer}", rf"(?:\[[ \t]*)?{outer}", rf"(?:\[?[ \t]*{outer})?")
    return [re.compile(rf"^([ \t]*{begin}){name}([ \t]*[.\]=])", re.MULTILINE) for begin in begins]


def _any_form(name: str) -> str:
    forms = [re.escape(_quoted(name)), re.escape(json.dumps(name)), re.escape(f"'{name}'")]
    return f"(?:{'|'.join(dict.fromkeys(forms))})"


def _rename(document: Any, path: tuple[str, ...], name: str) -> None:
    """Removes all entries of the table above and adds them again, one with its new name."""
    table = document
    for key in path[:-1]:
        table = table[key]
    entries = [(key, table[key].unwrap()) for key in list(table)]
    for key, _ in entries:
        del table[key]
    for key, value in entries:
        new = name if key == path[-1] else key
        if isinstance(value, dict) and not isinstance(table, InlineTable):
            table[new] = _filled(tomlkit.table(), value)
        else:
            table[new] = _item(value)


def _moved(task: str, old: str, new: str) -> str:
    try:
        place = TaskAddress.parse(task)
    except ValueError:
        return task
    if place.host != old:
        return task
    return str(TaskAddress(new, place.port)) if ":" in new else f"{new}:{task.rpartition(':')[2]}"


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    """Returns a value with all strings in it changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_mapped(inner, change) for inner in value]
    if isinstance(value, dict):
        return {key: _mapped(inner, change) for key, inner in value.items()}
    return value


# values in the document of tomlkit


def _put(document: Any, path: KeyPath, value: Any, *, whole: bool) -> None:
    """Changes as little as possible; with `whole`, replaces the whole value."""
    table = document
    for depth, key in enumerate(path[:-1]):
        if key not in table:
            if value is None:
                return
            inline = isinstance(table, InlineTable)
            # [hosts] above [hosts.tf1] needs no header of its own.
            above = depth == 0 and len(path) > 2
            table[key] = (
                tomlkit.inline_table() if inline else tomlkit.table(is_super_table=above or None)
            )
        table = table[key]
    key = path[-1]
    if value is None:
        if key in table:
            del table[key]
        return
    old = table.get(key)
    if (
        not whole
        and isinstance(old, Array)
        and isinstance(value, list)
        and _keeps_lines(old, value)
    ):
        _change_list(old, value)
    elif not whole and isinstance(old, AbstractTable | InlineTable) and isinstance(value, dict):
        for name in [name for name in old if name not in value]:
            del old[name]
        for name, inner in value.items():
            if name not in old or old[name] != inner:
                old[name] = _item(inner)
    elif isinstance(value, dict) and len(path) <= 2 and not isinstance(table, InlineTable):
        table[key] = _filled(tomlkit.table(), value)
    else:
        _assign(table, key, value)


def _appended(document: tomlkit.TOMLDocument, path: KeyPath, value: Any) -> str:
    """Appends a table to the text, for files whose tables have no headers."""
    if not isinstance(value, dict):
        raise TypeError("only a table can be appended")
    name = ".".join(_quoted(str(key)) for key in path)
    pairs = (f"{_quoted(key)} = {_item(inner).as_string()}" for key, inner in value.items())
    return "\n".join([tomlkit.dumps(document).rstrip("\n"), "", f"[{name}]", *pairs, ""])


def _assign(table: Any, key: Any, value: Any) -> None:
    old = table.get(key)
    new = _item(value)
    trivia = getattr(old, "trivia", None)
    if trivia is not None and hasattr(new, "trivia"):
        new.trivia.comment_ws, new.trivia.comment = trivia.comment_ws, trivia.comment
    table[key] = new


def _item(value: Any) -> Any:
    if isinstance(value, dict):
        return _filled(tomlkit.inline_table(), value)
    if isinstance(value, list):
        array = tomlkit.array()
        for inner in value:
            array.append(_item(inner))
        if len(array.as_string()) > _WIDE and all(isinstance(v, str) for v in value):
            return _lines_of(value)
        return array
    return tomlkit.item(value)


def _filled(table: Any, values: Mapping[str, Any]) -> Any:
    for name, inner in values.items():
        table[name] = _item(inner)
    return table


def _lines_of(words: list[str]) -> Any:
    """Makes a long list of strings on several lines."""
    rows: list[list[str]] = [[]]
    for word in words:
        text = tomlkit.item(word).as_string()
        if rows[-1] and sum(len(t) + 2 for t in rows[-1]) + len(text) > _WIDE:
            rows.append([])
        rows[-1].append(text)
    inside = ",\n    ".join(", ".join(row) for row in rows)
    return tomlkit.parse(f"a = [\n    {inside},\n]\n")["a"]


def _change_list(array: Array, values: list[Any]) -> None:
    """Replaces only the elements between the equal ones at both ends."""
    old = [item.unwrap() if hasattr(item, "unwrap") else item for item in array]
    start = 0
    while start < min(len(old), len(values)) and _same(old[start], values[start]):
        start += 1
    end = 0
    while end < min(len(old), len(values)) - start and _same(old[-1 - end], values[-1 - end]):
        end += 1
    fresh = values[start : len(values) - end]
    gone = len(old) - end - start
    for offset, value in enumerate(fresh[:gone]):
        array[start + offset] = _item(value)
    for offset, value in enumerate(fresh[gone:]):
        array.insert(start + gone + offset, _item(value))
    for _ in range(gone - len(fresh)):
        del array[start + len(fresh)]


def _keeps_lines(old: Array, values: list[Any]) -> bool:
    """Whether the list has several lines already, or will fit on one."""
    return "\n" in old.as_string() or len(json.dumps(values, ensure_ascii=False)) <= _WIDE


def _same(one: object, other: object) -> bool:
    return type(one) is type(other) and one == other


def _quoted(name: str) -> str:
    return name if _BARE.fullmatch(name) else tomlkit.item(name).as_string()
