"""Editor of cluster files that changes single values and keeps comments and order.

Every edit is verified by parsing the result: if it does not have exactly the intended values, the
edit is refused. So a bug here, or in the library that keeps the comments, cannot damage a file.
"""

from __future__ import annotations

import copy
import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import InlineTable

from ..errors import TfmuxError
from ..printable import printable
from .addresses import TaskAddress
from .key_lines import KeyPath
from .toml_values import appended, filled, item, put, quoted

_ANY_HEADER = re.compile(r"[ \t]*\[[^\[\]]+\][ \t]*(?:#.*)?$")


class EditError(TfmuxError):
    """The file has a form that this edit cannot keep; nothing was changed."""


class ClusterDocument:
    """Text of a cluster file with its values. Immutable: an edit returns a new document."""

    def __init__(self, text: str) -> None:
        """Parses the text.

        Raises:
            ValueError: it is not valid TOML.
        """
        self.text = text
        try:
            self.data: dict[str, Any] = tomllib.loads(text.removeprefix("\ufeff"))
        except RecursionError:
            raise ValueError("the brackets are nested too deeply") from None

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
        return self._edited(
            meant,
            lambda document: put(document, path, value, whole=False),
            lambda document: put(document, path, value, whole=True),
            lambda document: appended(document, path, value),
        )

    def put_all(self, paths: Iterable[KeyPath], value: Any) -> ClusterDocument:
        """Sets several keys to one value; None removes them.

        Raises:
            EditError: the file's form does not allow it.
        """
        meant, paths = copy.deepcopy(self.data), list(paths)
        for path in paths:
            _put_plain(meant, path, value)
        if _canonical(meant) == _canonical(self.data):
            return self

        def change(document: tomlkit.TOMLDocument, *, whole: bool) -> None:
            for path in paths:
                put(document, path, value, whole=whole)

        return self._edited(
            meant,
            lambda document: change(document, whole=False),
            lambda document: change(document, whole=True),
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
            text = form.sub(lambda m: f"{m[1]}{quoted(name)}{m[2]}", self.text)
            if text != self.text and _says(text, meant):
                return ClusterDocument(text)
        return self._edited(meant, lambda document: _rename(document, path, name))

    # hosts and jobs

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
                if _says(form, meant):
                    return ClusterDocument(form)
        raise EditError("the file has an unusual form: make this change on the File page")

    def _with_line_ends(self, text: str) -> str:
        # tomlkit ends new lines with LF.
        return re.sub(r"(?<!\r)\n", "\r\n", text) if line_end(self.text) == "\r\n" else text


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


def _says(text: str, meant: Mapping[str, Any]) -> bool:
    try:
        return _canonical(tomllib.loads(text)) == _canonical(meant)
    except ValueError:
        return False


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
    forms = [re.escape(quoted(name)), re.escape(json.dumps(name)), re.escape(f"'{name}'")]
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
            table[new] = filled(tomlkit.table(), value)
        else:
            table[new] = item(value)


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
