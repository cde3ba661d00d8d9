"""Form of one table of the file: a line for each documented key, checked while it is typed.

A value is a line of text: words as for a shell, variables as NAME=value, anything else as in the
file. A line that cannot be a value of its key becomes a text, which the file's own checks explain;
it is refused only where it stands for nothing, such as a quote that is not closed. Control
characters have visible stand-ins, so that a line is always one line.
"""

from __future__ import annotations

import asyncio
import re
import shlex
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar

import tomlkit
from textual import events, on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.suggester import Suggester
from textual.widgets import Input, Label

from launcher.cluster.draft import ParsedDraft
from launcher.cluster.edit import ClusterDocument, EditError
from launcher.cluster.file_model import NAMED_TABLES, TABLES
from launcher.cluster.key_lines import KeyPath
from launcher.cluster.reference import KeyReference, keys, plain
from launcher.cluster.shorthand import ShorthandError, split
from launcher.cluster.ssh_aliases import aliases
from launcher.printable import invisible, visible
from tui.screens.dialogs import Dialog
from tui.widgets.line_input import LineInput, ProblemLine

EDIT_ERRORS = (EditError, ShorthandError, ValueError)
"""Raised by edits that cannot be made, with a sentence to show."""
PAUSE = 0.12
"""Seconds without a key after which a text is checked: checking a large cluster takes longer than
a finger needs for the next key."""
NAME = "name"
_PLAIN_WORD = re.compile(r"[^\s'\"\\\[{][^\s'\"\\]*")
_FLAGS = dict.fromkeys(("yes", "true", "on", "y"), True)
_FLAGS |= dict.fromkeys(("no", "false", "off", "n"), False)
_LAST_WORD = re.compile(r"[^\s,;@]*$")
_FORMS = {
    "tasks": "tf[1-4]:2222 tf1:auto*5 stand for many",
    "env": "NAME=value …",
    "ready": 'listening, started, auto, { log = "regex" } or { after = 5.0 }',
}


# values as lines


def line_of(value: Any, kind: str = "") -> str:
    """A value as a line; empty for None. `kind` is the type of its key in the JSON Schema."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        with suppress(ValueError):
            if value_of(visible(value), kind) == value:
                return visible(value)
        return _inline(value)
    if kind == "array" and isinstance(value, list) and all(isinstance(v, str) for v in value):
        line = " ".join(map(_word, value))
        # One word may be a value of TOML: `true`, `5`.
        return line if line and value_of(line, kind) == value else _inline(value)
    if kind == "object" and isinstance(value, dict):
        if all(isinstance(v, str) and n and "=" not in n for n, v in value.items()):
            return " ".join(_word(f"{n}={v}") for n, v in value.items()) or _inline(value)
    return _inline(value)


def value_of(line: str, kind: str = "") -> Any:
    """The value that a line stands for; None for an empty one.

    Raises:
        ValueError: it stands for nothing.
    """
    text = line.strip()
    if not text:
        return None
    if kind == "boolean" and text.lower() in _FLAGS:
        return _FLAGS[text.lower()]
    quoted = text[0] == '"' and text[-1] == '"'
    if (kind != "string" or quoted) and (found := _toml(invisible(text))) is not None:
        if not isinstance(found, str) or quoted:
            return found
    if kind == "array":
        return _words(text)
    if kind == "object":
        pairs = [word.partition("=") for word in _words(text)]
        for number, (name, equals, _) in enumerate(pairs):
            if not equals:
                shown = visible(name if len(name) <= 40 else name[:39] + "…")
                what = f"{shown} has no value: write NAME=value, with blanks between pairs"
                raise ValueError(what)
            if name in [other for other, _, _ in pairs[:number]]:
                raise ValueError(f"{visible(name[:40])} is there twice: keep one of them")
        return {name: value for name, _, value in pairs}
    return invisible(text)


def _words(line: str) -> list[str]:
    try:
        return [invisible(word) for word in shlex.split(line)]
    except ValueError as error:
        if "escaped" in str(error):
            raise ValueError("a backslash is at the end: write two for one") from None
        raise ValueError("a quote is not closed: write another one at the end") from None


def _word(word: str) -> str:
    shown = visible(word)
    return shown if _PLAIN_WORD.fullmatch(shown) else shlex.quote(shown)


def _toml(text: str) -> Any:
    """The value that a text is in TOML; None if it is none."""
    try:
        return tomllib.loads(f"a = {text}")["a"] if "\n" not in text else None
    except (ValueError, RecursionError):
        return None


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        pairs = (f"{tomlkit.key(name).as_string()} = {_inline(v)}" for name, v in value.items())
        return f"{{ {', '.join(pairs)} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_inline, value))}]"
    return visible(str(tomlkit.item(value).as_string()))


# forms


def table_at(path: KeyPath) -> tuple[str, KeyPath]:
    """The documented table that a place of the file is in, and its path."""
    for table in TABLES:
        parts = (*table.split("."), *path[1:2]) if table in NAMED_TABLES else table.split(".")
        if path[: len(parts)] == tuple(parts) and len(parts) > (table in NAMED_TABLES):
            return table, tuple(parts)
    return "", ()


def filled(document: ClusterDocument, path: KeyPath, lines: Mapping[str, str]) -> ClusterDocument:
    """Puts the lines of a form into its table, and renames it where the name is one of them.

    Raises:
        EditError, ShorthandError, ValueError: a line stands for nothing, or the file's form does
            not allow it.
    """
    for key, kind in ((key.name, _kind(key)) for key in keys(table_at(path)[0])):
        if key in lines:
            value = value_of(lines[key], kind)
            if key == "tasks" and not lines[key].lstrip().startswith("["):
                value = split(invisible(lines[key]))
            document = document.put((*path, key), value)
    if (name := lines.get(NAME)) is not None:
        if not name.strip():
            raise EditError(f"a {str(path[0]).rstrip('s')} needs a name")
        rename = document.rename_host if path[0] == "hosts" else document.rename_job
        document = rename(str(path[1]), name.strip())
    return document


def lines_of(document: ClusterDocument, path: KeyPath) -> dict[str, str]:
    """The lines of a form, the name first where the table has one of its own."""
    table = table_at(path)[0]
    name = {NAME: visible(str(path[1]))} if table in NAMED_TABLES else {}
    return name | {
        key.name: line_of(document.get(*path, key.name), _kind(key)) for key in keys(table)
    }


def _kind(key: KeyReference) -> str:
    return str(key.schema.get("type", ""))


class Completion(Suggester):
    """Completes the last word of a line by the first candidate that begins with it; → takes it."""

    def __init__(self, candidates: Sequence[str]) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self._candidates = candidates

    async def get_suggestion(self, value: str) -> str | None:
        match = _LAST_WORD.search(value)
        if match is None or not match[0]:
            return None
        found = (each for each in self._candidates if each.startswith(match[0]))
        return next((value[: match.start()] + each for each in found if each != match[0]), None)


class Field(LineInput):
    """Line of one key; up and down go to the others."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down", "app.focus_next", "Next setting", show=False),
        Binding("up", "app.focus_previous", "Previous setting", show=False),
    ]


class Form(Dialog[dict[str, str]]):
    """Asks for the keys of one table, and answers with the lines that were changed."""

    DEFAULT_CSS = """
    Form VerticalScroll { margin: 1 0 0 0; }
    Form .row { height: 1; }
    Form .row Label { width: 16; color: $text-muted; }
    Form .row Input { width: 1fr; padding: 0; }
    Form .row Input:focus { background: $primary-muted; }
    Form ProblemLine { min-height: 2; max-height: 3; margin: 1 0; }
    Form.-low VerticalScroll, Form.-low ProblemLine { margin: 0; }
    """

    def __init__(
        self,
        title: str,
        document: ClusterDocument,
        path: KeyPath,
        check: Callable[[Mapping[str, str]], ParsedDraft],
        begin: str = "",
    ) -> None:
        """`check` parses the file with lines put into it; the cursor begins at the key `begin`."""
        super().__init__(title)
        self._path, self._check, self._begin = path, check, begin
        self._before = lines_of(document, path)
        self._about = {NAME: "its name in this file"}
        self._fields: dict[str, Field] = {}
        defaults: dict[str, str] = {}
        words: dict[str, Sequence[str]] = dict.fromkeys(("ssh", "jump"), aliases())
        words["tasks"] = [f"{host}:" for host in document.host_names()]
        for key in keys(table_at(path)[0]):
            form = _FORMS.get(key.name) or ", ".join(key.choices)
            self._about[key.name] = f"{key.brief} ({form})" if form else key.brief
            defaults[key.name] = plain(key.default).strip('"')
            words.setdefault(key.name, key.choices)
        for name, line in self._before.items():
            completion = Completion(words.get(name, ()))
            self._fields[name] = Field(
                line, defaults.get(name, ""), name=name, suggester=completion,
                compact=True, select_on_focus=False,
            )  # fmt: skip

    def body(self) -> ComposeResult:
        with VerticalScroll(can_focus=False):
            for key, field in self._fields.items():
                with Horizontal(classes="row"):
                    yield Label(key.replace("_", " "), markup=False)
                    yield field
        yield ProblemLine()

    def note(self) -> str:
        return f"Enter accepts, ↑ ↓ other settings, → completes, {super().note()}"

    def on_mount(self) -> None:
        first = next(iter(self._fields.values()))
        self.set_focus(self._fields.get(self._begin, first))

    @property
    def _changed(self) -> dict[str, str]:
        lines = {key: field.value for key, field in self._fields.items()}
        return {key: line for key, line in lines.items() if line != self._before[key]}

    @on(events.DescendantFocus)
    @on(Input.Changed)
    @work(exclusive=True, group="check")
    async def _look(self) -> None:
        """Checks the lines, in a thread, and says what is wrong with the one under the cursor."""
        key = self.focused.name or "" if isinstance(self.focused, Field) else ""
        lines, said = self._changed, self.query_one(ProblemLine)
        said.show("", self._about.get(key, ""))
        await asyncio.sleep(PAUSE)
        try:
            now = await asyncio.to_thread(self._check, lines)
        except EDIT_ERRORS as error:
            said.show(str(error))
            return
        path = (*self._path[:-1], lines[NAME].strip()) if NAME in lines else self._path
        own = [p for p in now.problems if p.path[: len(path)] == path]
        for field in self._fields.values():
            at = (*path, field.name)
            wrong = any(p.path[: len(at)] == at for p in own)
            field.set_class(wrong, "wrong")
        at = (*path, key)
        problem = next((p.message for p in own if p.path[: len(at)] == at), "")
        said.show(problem, self._about.get(key, ""))

    @on(Input.Submitted)
    def _submitted(self) -> None:
        lines = self._changed
        try:
            self._check(lines)
        except EDIT_ERRORS as error:
            self.workers.cancel_group(self, "check")
            self.query_one(ProblemLine).show(str(error))
            self.app.bell()
        else:
            self.dismiss(lines)
