"""Codecs between a value of the file and the line of text in its cell.

A line that cannot be a value of its kind becomes a text where a text will be explained by the
cluster file's own checks ("abc" for a number), and an error only where it stands for nothing
at all, such as a quote that is not closed. Control characters have visible stand-ins, so that
a line is always one line.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from launcher.cluster.shorthand import entries
from launcher.printable import invisible, visible

_INTEGER = re.compile(r"[-+]?\d{1,18}")
_FLOAT = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d{1,3})?")
_PLAIN_WORD = re.compile(r"[^\s'\"\\]+")
_YES = ("yes", "true", "on", "y")
_NO = ("no", "false", "off", "n")
EMPTY = '""'
"""A text that is there and empty; an empty line takes the key out."""
_QUOTES = re.compile(r'(?:"")*')
"""Texts that are shown with two quotes more, the empty one among them."""


@dataclass(frozen=True)
class CellCodec:
    """`line` makes a line of a value (None: the key is not there), `value` a value of a line.

    `value` raises `ValueError` with a sentence for a line that means nothing. `form` says how a
    value is written, where that is not obvious.
    """

    line: Callable[[Any], str]
    value: Callable[[str], Any]
    form: str = ""


def words(line: str) -> list[str]:
    """The words of a line, quoted as for a POSIX shell.

    Raises:
        ValueError: a quote is not closed, or a backslash stands at the end.
    """
    try:
        return [invisible(word) for word in shlex.split(line)]
    except ValueError as error:
        if "escaped" in str(error):
            raise ValueError("a backslash stands at the end: write two for one") from None
        raise ValueError("a quote is not closed: write another one at the end") from None


def line_of(found: list[str]) -> str:
    """A line whose words are these."""
    return " ".join(_word(visible(word)) for word in found)


def _word(word: str) -> str:
    if _PLAIN_WORD.fullmatch(word):
        return word
    if "'" not in word:
        return f"'{word}'"
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _other(value: Any) -> str:
    """A value of another kind than expected, as well as it goes."""
    if isinstance(value, str):
        return visible(value) + EMPTY if _QUOTES.fullmatch(value) else visible(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return line_of([str(inner) for inner in value])
    if isinstance(value, dict):
        return line_of([f"{key}={inner}" for key, inner in value.items()])
    return "" if value is None else visible(str(value))


def _text(line: str) -> Any:
    if line and _QUOTES.fullmatch(line):
        return line[: -len(EMPTY)]
    return invisible(line) or None


def _number(line: str) -> Any:
    word = line.strip()
    if _INTEGER.fullmatch(word) and word.isascii():
        return int(word)
    if _FLOAT.fullmatch(word) and word.isascii():
        return float(word)
    return _text(line)


def _flag(line: str) -> Any:
    word = line.strip().lower()
    return True if word in _YES else False if word in _NO else _text(line)


def _warm(line: str) -> Any:
    flag = _flag(line)
    return flag if isinstance(flag, bool) else _list(line)


def _list(line: str) -> Any:
    return words(line) or None


def _env(line: str) -> Any:
    pairs: dict[str, str] = {}
    for word in words(line):
        name, equals, value = word.partition("=")
        if not equals:
            shown = visible(word if len(word) <= 40 else word[:39] + "…")
            raise ValueError(f"{shown} has no value: write NAME=value, with blanks between pairs")
        if name in pairs:
            raise ValueError(f"{visible(name[:40])} stands twice: keep one of them")
        pairs[name] = value
    return pairs or None


def _tasks_line(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(task, str) for task in value):
        if not any(set(",; \t\n") & set(task) for task in value):
            return visible(", ".join(value))
    return _other(value)


def _tasks(line: str) -> Any:
    return entries(invisible(line))


def _ready_line(value: Any) -> str:
    if isinstance(value, dict) and len(value) == 1:
        key, inner = next(iter(value.items()))
        return visible(f"{key} {inner}")
    return _other(value)


def _ready(line: str) -> Any:
    word, _, rest = line.strip().partition(" ")
    if word == "log":
        return {"log": invisible(rest.strip())}
    if word == "after":
        return {"after": _number(rest)}
    return _text(line.strip())


def _order_line(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(stage, list) for stage in value):
        return " > ".join(", ".join(map(str, stage)) for stage in value) or EMPTY
    return _other(value)


def _order(line: str) -> Any:
    if not line.strip():
        return None
    if line.strip() == EMPTY:  # all at once, which no key at all does not mean
        return [[]]
    stages = [[entry.strip() for entry in stage.split(",")] for stage in line.split(">")]
    return [[entry for entry in stage if entry] for stage in stages]


TEXT = CellCodec(_other, _text)
NUMBER = CellCodec(_other, _number)
FLAG = CellCodec(_other, _flag)
WORDS = CellCodec(_other, _list)
ENV = CellCodec(_other, _env, "NAME=value …")
TASKS = CellCodec(_tasks_line, _tasks, "tf[1-4]:2222 and tf1:auto*5 stand for many; or a TF_CONFIG")
WARM = CellCodec(_other, _warm, "yes, no, or modules")
READY = CellCodec(_ready_line, _ready, "listening, started, auto, log REGEX, or after SECONDS")
ORDER = CellCodec(_order_line, _order, "ps > worker:0 > worker")
