"""Reader of cluster files: makes a `ClusterModel` of the text, or a list of all problems in it.

All problems are reported at once, each with its key, line, the value there and what to write. To
check what must hold between values although some are wrong, the wrong ones are replaced by
stand-ins first.
"""

from __future__ import annotations

import difflib
import os
import re
import stat
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from ..errors import ClusterFileError, Problem
from ..printable import escaped
from .addresses import SshDestination, TaskAddress
from .key_lines import FileLines, KeyLines, KeyPath
from .model import NAMED_TABLES, TABLES, ClusterModel, Slurm, tables_in
from .problems import (
    UNKNOWN,
    Violation,
    at_default,
    too_long,
    unsupported,
    unused_defaults,
    violations,
)
from .values import nearest

_LARGEST = 16 * 1024 * 1024
_SHOWN = 60
_LONGEST_KEY = 100
"""Characters of an unknown key in a message."""
_NAME_ADDED = "  # the name of the file"
"""End of a line that is not the user's."""

_STAND_INS: dict[str, Any] = {
    "name": "unnamed",
    "tasks": [TaskAddress(UNKNOWN, None)],
    "ssh": SshDestination(None, UNKNOWN, None),
    "command": ["true"],
    "via": ["true"],
    "nodes": 1024,
    "time": "1",
}


def load(path: Path | str, *, base: Path | None = None, for_launch: bool = False) -> ClusterModel:
    """Reads a cluster file.

    Relative paths in it start from `base`, by default the file's directory (a run's own copy of
    its file is elsewhere). `for_launch` also checks that the local files and directories that it
    names exist.

    Raises:
        ClusterFileError: the file cannot be read, or something in it is wrong.
    """
    path = Path(path)
    base = base or path.absolute().parent
    return loads(read_text(path), escaped(str(path)), base, for_launch=for_launch)


def read_text(path: Path) -> str:
    """Reads the text of a cluster file.

    Raises:
        ClusterFileError: it cannot be read, is too large, or is not UTF-8.
    """
    source = escaped(str(path))
    try:
        data = _bytes(path)
    except (OSError, ValueError) as error:
        raise ClusterFileError(source, [Problem("", None, "", _why(path, error))]) from None
    return _decoded(data, source)


def loads(text: str, source: str, base: Path, *, for_launch: bool = False) -> ClusterModel:
    """Reads the text of a cluster file; `source` names it in errors. See `load`."""
    text = text.removeprefix("\ufeff")
    lines = KeyLines(text.replace("\r\n", "\n"))
    try:
        raw = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError: a number of 5,000 digits, too
        line, violation = toml_problem(error, text, lines)
        raise ClusterFileError(source, [_problem(violation, line)]) from None
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(source).stem).strip("-._")[:64]
    raw.setdefault("name", stem or "cluster")
    cluster, wrong = _read(raw)
    if cluster is not None:
        place = FileLines(lines, _lines_added(text), source)
        cluster = cluster.based_on(base, place).with_pending_nodes()
        between = [*violations(cluster), *too_long(cluster)]
        between += [*unused_defaults(cluster), *unsupported(cluster)]
        between += _missing_paths(cluster) if for_launch else ()
        between = [at_default(violation, raw) for violation in between]
        wrong += [violation for violation in between if not _covered(violation, wrong)]
    if cluster is None or wrong:
        problems = dict.fromkeys(_problem(f, lines.of(f.path)) for f in wrong)
        raise ClusterFileError(source, sorted(problems, key=lambda p: p.line or 0))
    return cluster


def with_file_name(text: str, name: str) -> str:
    """Returns the text with a name, for a copy of a file whose own name was that of the cluster."""
    return f'name = "{name}"{_NAME_ADDED}\n' + text.removeprefix("\ufeff")


def _lines_added(text: str) -> int:
    return int(text.partition("\n")[0].endswith(_NAME_ADDED))


def _read(raw: dict[str, Any]) -> tuple[ClusterModel | None, list[Violation]]:
    """Validates the tables: the cluster with patched values (None: impossible), and what is
    wrong."""
    try:
        return ClusterModel.model_validate(raw), []
    except ValidationError as error:
        details = error.errors(include_url=False)
    wrong = [_violation(detail) for detail in details]
    meant = {
        (*f.path[:-1], near)
        for f, detail in zip(wrong, details, strict=True)
        if detail["type"] == "extra_forbidden" and (near := _meant(f.path))
    }
    wrong = [f for f in wrong if f.found is not None or f.path not in meant]
    patched = _copied(raw, 4)
    try:
        for violation in wrong:
            if len(violation.path) == 1:
                _move_table(patched, str(violation.path[0]))
            _patch_value(patched, violation.path)
        for path in meant:
            if len(path) > 1:
                _patch_value(patched, path)
        return ClusterModel.model_validate(patched), wrong
    except (ValidationError, KeyError, TypeError, IndexError, AttributeError):
        return None, wrong


def _patch_value(raw: dict[str, Any], path: KeyPath) -> None:
    """Replaces a wrong value by a stand-in, or removes its key.

    Raises:
        KeyError, TypeError, IndexError: there is no stand-in for it.
    """
    first = str(path[0])
    named = first in NAMED_TABLES
    if named and len(path) == 1:
        raise KeyError(first)
    if named and len(path) == 2:
        needed = "ssh" if first == "hosts" else "tasks"
        raw[first][path[1]] = {needed: _STAND_INS[needed]}
        return
    outer = path[: 2 if named else 1] if len(path) > 1 else ()
    table: Any = raw
    for key in outer:
        table = table[key]
    field, *rest = map(str, path[len(outer) :])
    inner = table.get(field)
    if field == "tasks" and len(rest) == 1 and isinstance(inner, list):
        inner[int(rest[0])] = _STAND_INS["tasks"][0]
    elif field in ("env", "ready") and len(rest) == 1 and isinstance(inner, dict):
        inner.pop(rest[0], None)
    elif field in _STAND_INS and first != "start":
        table[field] = _STAND_INS[field]
    else:
        table.pop(field, None)


def _move_table(raw: dict[str, Any], table: str) -> None:
    """Copies a table with a wrong name to the place that was meant."""
    near = _meant((table,))
    if _is_job(raw.get(table)) and table not in TABLES:
        raw.setdefault("jobs", {}).setdefault(table, raw[table])
    elif near and near != table:
        raw.setdefault(near, raw[table])


def _is_job(value: object) -> bool:
    return isinstance(value, dict) and "tasks" in value


def _copied(value: Any, levels: int) -> Any:
    """Copies the outer levels, which are all that is patched, however deep the rest is."""
    if levels and isinstance(value, dict):
        return {key: _copied(inner, levels - 1) for key, inner in value.items()}
    return list(value) if levels and isinstance(value, list) else value


def _covered(violation: Violation, wrong: list[Violation]) -> bool:
    """Something at the same place is wrong already, and may be the cause."""
    paths = ((violation.path, other.path) for other in wrong)
    return any(mine[: len(its)] == its[: len(mine)] for mine, its in paths)


def _violation(detail: ErrorDetails) -> Violation:
    path = tuple(key for key in detail["loc"] if key != "[key]")
    match detail["type"]:
        case "missing" if path[-1] == "tasks":
            message = 'the job has no tasks: write such as tasks = ["tf1:2222"]'
            return Violation(path, None, message)
        case "missing" if issubclass(table := TABLES.get(str(path[0]), ClusterModel), Slurm):
            return Violation(path, None, table.missing(str(path[-1])))
        case "missing":
            return Violation(path, None, "the file has no jobs: write such as [jobs.worker]")
        case "extra_forbidden":
            return Violation(path, detail["input"], _unknown(path, detail["input"]))
        case "model_type" | "model_attributes_type" | "dict_type":
            return Violation(path, detail["input"], f"write a table: [{_dotted(path)}]")
        case "tuple_type":
            return Violation(path, detail["input"], "write a list")
    part = detail.get("ctx", {}).get("part")
    return Violation(path, detail["input"], detail["msg"], part)


def _known(table: KeyPath) -> list[str]:
    """Lists the keys that a table may have."""
    model: type[BaseModel] = ClusterModel
    for key in table:
        model = tables_in(model).get(str(key), model)
    return list(model.model_fields)


def _meant(path: KeyPath) -> str:
    matches = difflib.get_close_matches(str(path[-1])[:100], _known(path[:-1]), n=1, cutoff=0.6)
    return matches[0] if matches else ""


def _unknown(path: KeyPath, value: object) -> str:
    """Says what to write in place of an unknown key."""
    key, table = str(path[-1]), path[:-1]
    if len(key) > _LONGEST_KEY:
        key = f"{key[:_LONGEST_KEY]}…"
    if not table and _is_job(value):
        return f"unknown table: a job is written [jobs.{key}]"
    tables = [name for name, model in TABLES.items() if key in model.model_fields]
    if tables and not (table and table[0] in tables):
        below = [name for name in tables if table and name.startswith(f"{table[0]}.")]
        right = (below or tables)[0]
        right = right if right not in NAMED_TABLES else f"{right}.NAME"
        return f"unknown key here: {key} belongs in [{right}]"
    if near := _meant(path):
        return f'unknown key: did you mean "{near}"?'
    return f"unknown key: the keys here are {', '.join(_known(table))}"


def _missing_paths(cluster: ClusterModel) -> Iterator[Violation]:
    """Local files and directories that the file names and that do not exist."""
    run = cluster.run
    folders: list[tuple[KeyPath, str]] = [(("run", "data", i), p) for i, p in enumerate(run.data)]
    if "{" not in run.workdir:
        folders.append((("run", "workdir"), run.workdir))
    for name, job in cluster.jobs.items():
        folders += [(("jobs", name, "data", i), path) for i, path in enumerate(job.data)]
    for place, path in folders:
        if path and not os.path.isdir(cluster.local_path(path)):
            yield Violation(place, path, f"no such directory: {cluster.local_path(path)}")
    for name, host in cluster.hosts.items():
        for key, file in (("identity", host.identity), ("known_hosts", host.known_hosts)):
            if file and not os.path.isfile(cluster.local_path(file)):
                message = f"no such file: {cluster.local_path(file)}"
                yield Violation(("hosts", name, key), file, message)


def _bytes(path: Path) -> bytes:
    # A named pipe without a writer would block the open for ever.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("not a regular file")
        data = file.read(_LARGEST + 1)
    if len(data) > _LARGEST:
        raise ValueError("larger than 16 MiB: this cannot be a cluster file")
    return data


def _why(path: Path, error: OSError | ValueError) -> str:
    if "\0" in str(path):  # versions of Python say it in different words
        return "a path cannot contain a null byte"
    if isinstance(error, IsADirectoryError) or (isinstance(error, ValueError) and path.is_dir()):
        return "is a directory: give the file in it"
    if isinstance(error, FileNotFoundError):
        hint = nearest(path.name, map(escaped, _siblings(path)))
        return f"no such file: {hint}" if hint else "no such file"
    if isinstance(error, PermissionError):
        return "permission denied"
    if isinstance(error, OSError):
        return f"cannot be read: {error.strerror}"
    return str(error)


def _siblings(path: Path) -> list[str]:
    try:
        return os.listdir(path.parent)[:1000]
    except OSError:
        return []


def _decoded(data: bytes, source: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        found = f"byte 0x{data[error.start]:02x}"
        message = "not UTF-8: save the file as UTF-8"
        if data.startswith((b"\xff\xfe", b"\xfe\xff")):
            message = "the file is UTF-16: save it as UTF-8"
        raise ClusterFileError(source, [Problem("", line, found, message)]) from None


def _problem(violation: Violation, line: int | None) -> Problem:
    found = "" if violation.found is None else _display(violation.found)
    key = escaped(_dotted(violation.path))
    path = violation.path if violation.part is None else (*violation.path, str(violation.part))
    return Problem(key, line, found, escaped(violation.message), path)


def _display(found: object) -> str:
    """Formats a value of the file, shortened and without control characters."""
    match found:
        case str():
            quoted = '"' + escaped(found[: _SHOWN + 1]) + '"'
        case bool():
            quoted = str(found).lower()
        case dict():
            quoted = "a table"
        case list() | tuple():
            quoted = "a list" if found else "an empty list"
        case int() if abs(found) > 10**_SHOWN:
            quoted = "a huge number"
        case _:
            quoted = str(found)
    return quoted if len(quoted) <= _SHOWN + 2 else quoted[:_SHOWN] + '…"'


def _dotted(path: KeyPath) -> str:
    """Formats a path of keys: `jobs.ps.tasks[0]`."""
    text = ""
    for key in path:
        if isinstance(key, int):
            text += f"[{key}]"
        else:
            plain = re.fullmatch(r"[A-Za-z0-9_-]+", key)
            short = key if len(key) <= _SHOWN else key[: _SHOWN - 1] + "…"
            text += ("." if text else "") + (short if plain else f'"{short}"')
    return text


_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_PAIR = re.compile(r"\s*(?P<key>[\w.\"'-]+)\s*=\s*(?P<value>[^#\n]*)")
_UNFINISHED = ("Unterminated", "Unclosed", "Expected ']'", "Invalid value")


def toml_problem(error: Exception, text: str, lines: KeyLines) -> tuple[int, Violation]:
    """Finds the line (from 1), and the key, the text of that line, and what to write instead.

    `error` is what `tomllib.loads(text)` raised, `lines` has the lines before the error.
    """
    said = str(error)
    place = _PLACE.search(said)
    what = said[: place.start()] if place else said.partition(":")[0]
    if isinstance(error, RecursionError):
        what, line = "too deep", lines.last
    elif what.startswith("Unclosed") or not place:  # the parser notices it too late
        line = lines.last
    elif place[1]:
        line = int(place[1])
    elif what.startswith(_UNFINISHED):
        line = lines.last
    else:
        line = text.rstrip().count("\n") + 1
    found = _line_text(text, line)
    return line, Violation(lines.on(line)[:4], found, _advice(what, found))


def _advice(what: str, found: str) -> str:
    pair = _PAIR.match(found)
    value = pair["value"].strip() if pair else ""
    if what == "too deep":
        return "the brackets are nested too deeply: no key needs more than two levels"
    if what.startswith("Cannot overwrite"):
        return "this key or table is defined twice: keep one of them"
    if what.startswith("Cannot declare"):
        table = found.strip().strip("[]")
        return f"the table [{table}] is defined twice: put its keys into one"
    if what.startswith("Exceeds the limit"):
        return "the number has too many digits"
    if pair and not value:
        return f'the value is missing: write such as {pair["key"]} = "…"'
    if value in ("True", "False", "TRUE", "FALSE", "yes", "no", "on", "off"):
        better = "true" if value.lower() in ("true", "yes", "on") else "false"
        return f"write {better}"
    if pair and what.startswith("Invalid value") and re.match(r"[A-Za-z_~/{$%]", value):
        if not value.startswith("{") and '"' not in value:
            return f'text needs quotes: write {_short(pair["key"])} = "{_short(value)}"'
    if what.startswith("Invalid value") and (
        bare := re.search(r"[\[,]\s*([A-Za-z_][^\s,\]]*)", value)
    ):
        return f'text needs quotes: write "{_short(bare[1])}"'
    if what.startswith("Unescaped '\\'"):
        return "a backslash in double quotes begins an escape: write \\\\, or use single quotes"
    if what.startswith("Illegal character '\\n'") or what.startswith("Unterminated"):
        return "the closing quote is missing on this line"
    if what.startswith("Illegal character"):
        return f"{what[0].lower()}{what[1:]}: write it as an escape"
    if what.startswith("Unclosed array") or (value.startswith("[") and "]" not in value):
        return "the list is not closed: a ']' or a comma is missing"
    if what.startswith("Expected '=' after a key"):
        return 'write key = value; a key with blanks or dots needs quotes, "such as.this"'
    if what.startswith(("Expected newline", "Invalid statement")):
        return "write one key = value on each line"
    if value.startswith("{") and "}" not in value:
        return "a table in braces must be on one line: write key = { a = 1, b = 2 }"
    return f"not valid TOML: {what[0].lower()}{what[1:]}"


def _line_text(text: str, line: int) -> str:
    rows = text.split("\n")
    return rows[line - 1].strip() if line <= len(rows) else ""


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
