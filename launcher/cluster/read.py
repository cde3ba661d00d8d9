"""Reader of cluster files: makes a `ClusterModel` of the text, or a list of the problems in it.

Each problem has its key, line, the value there and what to write. They come in rounds: a text that
is no TOML has one; then all problems of single values; when there are none, all between values.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ..errors import ClusterFileError, Problem
from ..frozen import frozen
from ..printable import escaped
from .file_model import ClusterModel
from .key_lines import KeyLines, SourceFile
from .problems import Violation, as_problem, limits, value_problems, violations
from .values import nearest

_LARGEST = 16 * 1024 * 1024
_MOST_VALUES = 1 << 16
_DEEPEST = 20
"""Parts of a key, and brackets around a value; no key needs more than four."""
_MOST_PROBLEMS = 100
"""Problems that are told at once."""
_SHOWN = 60
_NOT_UTF8 = "it has bytes that are not UTF-8, which a cluster file cannot hold: write other names"
_NAME_ADDED = "  # the name of the file"
"""End of a line that is not the user's."""


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
    toml = parse_toml(read_text(path))
    return model_of(toml, escaped(str(path)), base, for_launch=for_launch)


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
    return model_of(parse_toml(text), source, base, for_launch=for_launch)


@frozen
class TomlText:
    """Text of a cluster file as TOML."""

    text: str
    lines: KeyLines
    """Lines of the keys; of a text that is not valid, those before the error."""
    values: dict[str, Any] | None = None
    """None: the text is not valid TOML, or refused unread."""
    problem: Problem | None = None
    """Why there are no values."""


def parse_toml(text: str) -> TomlText:
    """Parses the text of a cluster file."""
    text = text.removeprefix("\ufeff")
    if refused := _not_utf8(text) or _too_much(text):
        return TomlText(text, KeyLines(""), problem=refused)
    lines = KeyLines(text.replace("\r\n", "\n"))
    try:
        return TomlText(text, lines, tomllib.loads(text))
    except (ValueError, RecursionError) as error:  # ValueError: a number of 5,000 digits, too
        line, violation = toml_problem(error, text, lines)
        return TomlText(text, lines, problem=as_problem(violation, line))


def model_of(toml: TomlText, source: str, base: Path, *, for_launch: bool = False) -> ClusterModel:
    """The cluster of a text; `source` names the file in errors. See `load`."""
    if toml.problem is not None:
        raise ClusterFileError(source, [toml.problem])
    raw, lines = dict(toml.values or {}), toml.lines
    if names_cluster := "name" not in raw:
        stem = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(source).stem).strip("-._")[:64]
        raw["name"] = stem or "cluster"
    if beyond := list(limits(raw)):
        raise _error(source, beyond, lines)
    try:
        cluster = ClusterModel.model_validate(raw)
    except ValidationError as error:
        details = error.errors(include_url=False)
        wrong = value_problems(details[: _MOST_PROBLEMS + 1])
        raise _error(source, wrong, lines, error.error_count()) from None
    file = SourceFile(lines, _lines_added(toml.text), source, names_cluster)
    cluster = cluster.based_on(base, file).with_pending_nodes()
    found = violations(cluster, raw, for_launch=for_launch)
    if wrong := list(islice(found, _MOST_PROBLEMS + 1)):
        raise _error(source, wrong, lines)
    return cluster


def _error(
    source: str, wrong: Sequence[Violation], lines: KeyLines, count: int = 0
) -> ClusterFileError:
    """The error of a text, its problems in the order of the lines, the first hundred of more.
    `count` is the number of all, where it is known."""
    found = dict.fromkeys(as_problem(each, lines.of(each.path)) for each in wrong[:_MOST_PROBLEMS])
    problems = sorted(found, key=lambda p: p.line or 0)
    if len(wrong) > _MOST_PROBLEMS:
        more = f"{count - _MOST_PROBLEMS:,} more problems" if count else "more problems"
        problems.append(Problem("", None, "", f"and {more}: correct these first"))
    return ClusterFileError(source, problems)


_TOKEN = re.compile(
    r"#[^\n]*"
    r'|"""(?:[^"\\]++|\\.|"{1,2}(?!"))*+(?:"{3,5}|\Z)'
    r"|'''(?:[^']++|'{1,2}(?!'))*+(?:'{3,5}|\Z)"
    r'|"(?:[^"\\\n]++|\\.)*+(?:"|(?=\n)|\Z)'
    r"|'[^'\n]*+'?"
    r"|(?P<sign>[=,.\[\]{}])",
    re.DOTALL,
)


def _not_utf8(text: str) -> Problem | None:
    """The problem of a text with bytes of a command line, which Python keeps as surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return Problem("", text.count("\n", 0, error.start) + 1, "", _NOT_UTF8)
    return None


def _too_much(text: str) -> Problem | None:
    """The problem of a text that no cluster file has, and that would take long to parse: parsers
    need more time for each part of a key than for the one before."""
    if len(text) > _LARGEST:
        return Problem("", None, "", _TOO_LARGE)
    values = dots = depth = 0
    for match in _TOKEN.finditer(text):
        match match["sign"]:
            case None:
                continue
            case ".":
                dots += 1
            case "[" | "{":
                dots, depth = 0, depth + 1
            case "]" | "}":
                dots, depth = 0, depth - 1
            case _:
                dots = 0
        values += 1
        if max(dots, depth) > _DEEPEST or values > _MOST_VALUES:
            line = text.count("\n", 0, match.start()) + 1
            found = _line_text(text, line)
            if values > _MOST_VALUES:
                message = f"the file has more than {_MOST_VALUES:,} keys and values"
            elif dots > _DEEPEST:
                message = f"the key has more than {_DEEPEST} parts: no key needs more than four"
            else:
                message = _advice("too deep", "")
            return as_problem(Violation((), found, message), line)
    return None


_TOO_LARGE = "larger than 16 MiB: this cannot be a cluster file"


def with_file_name(text: str, name: str) -> str:
    """Returns the text with a name, for a copy of a file whose own name was that of the cluster."""
    return f'name = "{name}"{_NAME_ADDED}\n' + text.removeprefix("\ufeff")


def without_file_name(text: str) -> str:
    """Returns the text of a file, from its copy with a name."""
    first, _, rest = text.partition("\n")
    return rest if first.endswith(_NAME_ADDED) else text


def _lines_added(text: str) -> int:
    return int(text.partition("\n")[0].endswith(_NAME_ADDED))


def _bytes(path: Path) -> bytes:
    # A named pipe without a writer would block the open for ever.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("not a regular file")
        data = file.read(_LARGEST + 1)
    if len(data) > _LARGEST:
        raise ValueError(_TOO_LARGE)
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
