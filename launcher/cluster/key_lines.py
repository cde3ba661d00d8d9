"""Line numbers of the keys and list elements of a TOML text.

Neither `tomllib` nor tomlkit gives line numbers, which error messages need. This is not a second
parser: it scans a text that `tomllib` has accepted, and of an invalid text the part before the
error.
"""

from __future__ import annotations

import bisect
import re
import tomllib
from dataclasses import field
from functools import cached_property

from ..frozen import frozen

KeyPath = tuple[str | int, ...]

_DEEPEST = 50
"""Parts of a key of which lines are looked for; no key of a cluster file has a tenth of it."""
_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_KEY = re.compile(r"\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*'|[A-Za-z0-9_-]+")
_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"""(?:"{0,2})'
    r"|'''.*?'''(?:'{0,2})"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'",
    re.DOTALL,
)
_SCALAR = re.compile(r"[^,\]}#\n]+")


class KeyLines:
    """Line numbers of one text, counted from 1. It is scanned when the first is asked for: of a
    file without problems nobody asks."""

    def __init__(self, text: str) -> None:
        self._text = text

    @cached_property
    def _found(self) -> _Scan:
        return _Scan(self._text)

    @property
    def last(self) -> int:
        """The line of the last key or element."""
        return self._found.last

    def of(self, path: KeyPath) -> int | None:
        """Returns the line of a key, else of the nearest table or list around it."""
        while path:
            if path in self._found.lines:
                return self._found.lines[path]
            path = path[:-1]
        return None

    def on(self, line: int) -> KeyPath:
        """Returns the last key or element that begins on a line; empty if there is none."""
        return self._found.paths.get(line, ())


class _Scan:
    """Scan of a text, from its begin to its end or to what is not TOML, which tomllib reports."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._breaks = [match.start() for match in re.finditer("\n", text)]
        self._repeats: dict[KeyPath, int] = {}
        self.lines: dict[KeyPath, int] = {}
        """The line of each key and element."""
        self.paths: dict[int, KeyPath] = {}
        """The last key or element that begins on a line."""
        self.last = 1
        try:
            self._document()
        except (_SyntaxError, RecursionError):
            pass

    def _document(self) -> None:
        table: KeyPath = ()
        while True:
            self._skip(_BLANK)
            if self._at >= len(self._text):
                return
            if self._text.startswith("[[", self._at):
                self._at += 2
                table = self._header(repeated=True)
                self._expect("]]")
            elif self._text.startswith("[", self._at):
                self._at += 1
                table = self._header(repeated=False)
                self._expect("]")
            else:
                self._pair(table)

    def _header(self, repeated: bool) -> KeyPath:
        line, names = self._line(), self._dotted()
        path: KeyPath = ()
        for number, name in enumerate(names):
            path = (*path, name)
            self._mark(path, line)
            if repeated and number == len(names) - 1:
                self._repeats[path] = self._repeats.get(path, -1) + 1
            if path in self._repeats:
                path = (*path, self._repeats[path])
                self._mark(path, line)
        return path

    def _pair(self, table: KeyPath) -> None:
        line = self._line()
        for name in self._dotted():
            table = (*table, name)
            self._mark(table, line)
        self.last = line
        self._expect("=")
        self._skip(_SPACE)
        self._value(table)

    def _value(self, path: KeyPath) -> None:
        if self._text.startswith("[", self._at):
            self._list(path)
        elif self._text.startswith("{", self._at):
            self._inline(path)
        elif self._text.startswith(("'", '"'), self._at):
            self._consume(_STRING)
        else:
            self._consume(_SCALAR)

    def _list(self, path: KeyPath) -> None:
        self._at += 1
        index = 0
        self._skip(_BLANK)
        while not self._text.startswith("]", self._at):
            self.last = self._line()
            self._mark((*path, index), self.last)
            self._value((*path, index))
            index += 1
            self._separator("]")
        self._at += 1

    def _inline(self, path: KeyPath) -> None:
        self._at += 1
        self._skip(_BLANK)
        while not self._text.startswith("}", self._at):
            self._pair(path)
            self._separator("}")
        self._at += 1

    def _separator(self, end: str) -> None:
        self._skip(_BLANK)
        if self._text.startswith(",", self._at):
            self._at += 1
            self._skip(_BLANK)
        elif not self._text.startswith(end, self._at):
            raise _SyntaxError

    def _dotted(self) -> list[str]:
        names = []
        while True:
            self._skip(_SPACE)
            names.append(_plain(self._consume(_KEY)))
            self._skip(_SPACE)
            if not self._text.startswith(".", self._at):
                return names
            if len(names) == _DEEPEST:
                raise _SyntaxError
            self._at += 1

    def _mark(self, path: KeyPath, line: int) -> None:
        self.lines.setdefault(path, line)
        self.paths[line] = path

    def _line(self) -> int:
        return bisect.bisect_left(self._breaks, self._at) + 1

    def _skip(self, pattern: re.Pattern[str]) -> None:
        match = pattern.match(self._text, self._at)
        self._at = match.end() if match else self._at

    def _consume(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._text, self._at)
        if match is None:
            raise _SyntaxError
        self._at = match.end()
        return match[0]

    def _expect(self, sign: str) -> None:
        if not self._text.startswith(sign, self._at):
            raise _SyntaxError
        self._at += len(sign)


class _SyntaxError(Exception):
    """The text is not TOML from here on."""


def _plain(key: str) -> str:
    if key[0] == "'":
        return key[1:-1]
    if key[0] != '"':
        return key
    try:
        return next(iter(tomllib.loads(f"{key} = 0")))
    except tomllib.TOMLDecodeError:
        raise _SyntaxError from None


@frozen
class SourceFile:
    """The file that a cluster was read from, of whose text the first `added` lines are not the
    user's; clusters do not differ by it."""

    lines: KeyLines | None = field(default=None, compare=False)
    added: int = field(default=0, compare=False)
    name: str = field(default="", compare=False)
    """The file's name in messages."""
    names_cluster: bool = field(default=False, compare=False)
    """The cluster has no other name than the file's."""

    def line(self, path: KeyPath) -> int | None:
        """Returns the line of a key, else of the nearest table around it, where it is known."""
        line = None if self.lines is None else self.lines.of(path)
        return None if line is None else line - self.added


NO_FILE = SourceFile()
