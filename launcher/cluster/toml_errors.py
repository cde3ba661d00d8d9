"""Explanations of TOML syntax errors: the line, its text, and what to write instead.

`tomllib` reports forgotten quotes as "Invalid value (at line 3, column 7)". Its exceptions have no
other value than that text, so the advice depends on it.
"""

from __future__ import annotations

import re

from .checks import Violation
from .key_lines import KeyLines

_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_PAIR = re.compile(r"\s*(?P<key>[\w.\"'-]+)\s*=\s*(?P<value>[^#\n]*)")
_UNFINISHED = ("Unterminated", "Unclosed", "Expected ']'", "Invalid value")
_LONGEST = 60
"""Characters of a value that is quoted."""


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
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
