"""The cluster file as text: in colours, with the lines of problems marked; and its keys."""

from __future__ import annotations

import re
from collections.abc import Set
from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static, TextArea
from textual.widgets.text_area import (
    Document,
    DocumentNavigator,
    EditResult,
    Location,
    WrappedDocument,
)

from launcher.cluster.edit import line_end
from launcher.cluster.reference import keys, plain
from tui.widgets.colours import theme_colour

_TOKENS = re.compile(
    r"(?P<comment>#.*)|(?P<header>^\s*\[\[?[^\[\]]*\]\]?)|(?P<key>^\s*(?:[\w.-]|\"[^\"]*\"|'[^']*')+(?=\s*=))"
    r"|(?P<string>\"(?:[^\"\\]|\\.)*\"|'[^']*')|(?P<value>\b(?:true|false|[\d.]+)\b)"
)
_MOST_STEPS = 500
_KEY_CELLS = 15


class ExactDocument(Document):
    """Lines of a text that is given back as it was. Textual's own takes other characters for line
    ends, too, and gives back one kind of line end for all."""

    def __init__(self, text: str) -> None:
        super().__init__("")
        self._newline = "\r\n" if line_end(text) == "\r\n" else "\n"
        self._lines = text.split(self._newline)

    def replace_range(self, start: Location, end: Location, text: str) -> EditResult:
        (first, left), (last, right) = sorted((start, end))
        replaced = self.get_text_range(start, end)
        lines = self._lines
        fresh = text.split("\n")
        if self._newline == "\r\n":
            fresh = text.replace("\r\n", "\n").split("\n")
        after = lines[last][right:] if last < len(lines) else ""
        fresh[0] = (lines[first][:left] if first < len(lines) else "") + fresh[0]
        place = (first + len(fresh) - 1, len(fresh[-1]))
        fresh[-1] += after
        lines[first : last + 1] = fresh
        return EditResult(place, replaced)


class ClusterText(TextArea):
    """The text of a cluster file. Tab leads on and Escape back, as everywhere in the editor."""

    DEFAULT_CSS = """
    ClusterText .text--header { color: $accent-text; text-style: bold; }
    ClusterText .text--key { color: $accent-text; }
    ClusterText .text--string { color: $status-good; }
    ClusterText .text--value { color: $status-busy; }
    ClusterText .text--comment { color: $status-waiting; }
    ClusterText .text--wrong { color: $status-bad; text-style: underline; }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        f"text--{kind}" for kind in ("header", "key", "string", "value", "comment", "wrong")
    }
    BINDING_GROUP_TITLE = "File"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "screen.back", "To the table", id="edit.to_table"),
        Binding("ctrl+home", "ends('start')", "Start of the file", show=False),
        Binding("ctrl+end", "ends('end')", "End of the file", show=False),
    ]

    def __init__(self, text: str) -> None:
        super().__init__(show_line_numbers=True, max_checkpoints=_MOST_STEPS)
        self.document = ExactDocument(text)
        self.wrapped_document = WrappedDocument(self.document, tab_width=self.indent_width)
        self.navigator = DocumentNavigator(self.wrapped_document)
        self._wrong: Set[int] = frozenset()

    def mark(self, lines: Set[int]) -> None:
        """Marks the lines of problems, counted from 1."""
        if lines != self._wrong:
            self._wrong = lines
            self.notify_style_update()
            self.refresh()

    def put(self, text: str) -> None:
        """Replaces what differs, as one step of undo; the cursor goes to its first line."""
        if text == self.text:
            return
        assert isinstance(self.document, ExactDocument)
        first, last, fresh = difference(self.text, text)
        start, end = map(self.document.get_location_from_index, (first, last))
        self.history.checkpoint()
        self.replace(fresh, start, end)
        self.history.checkpoint()
        self.go_to(start[0] + 1)

    def go_to(self, line: int) -> None:
        """Moves the cursor to a line, counted from 1."""
        self.move_cursor((min(line, self.document.line_count) - 1, 0), center=True)

    def action_ends(self, side: str) -> None:
        """Moves to the begin or the end of the text."""
        self.move_cursor(self.document.start if side == "start" else self.document.end)

    def get_line(self, line_index: int) -> Text:
        """A line in colours."""
        line = super().get_line(line_index)
        for token in _TOKENS.finditer(line.plain):
            line.stylize(self._colour(token.lastgroup or ""), *token.span())
        if line_index + 1 in self._wrong:
            line.stylize(self._colour("wrong"))
        return line

    def _colour(self, kind: str) -> Style:
        return self.get_component_rich_style(f"text--{kind}", partial=True)

    def on_paste(self, event: events.Paste) -> None:
        """Terminals send line ends of several kinds."""
        event.text = re.sub(r"\r\n?", "\n", event.text)


def difference(old: str, new: str) -> tuple[int, int, str]:
    """Begin and end, in a text, of what another one has something else for, and that."""
    head = _common(old, new)
    head -= old[head - 1 : head] == "\r"  # not between CR and LF
    tail = _common(old[head:][::-1], new[head:][::-1])
    tail -= tail > 0 and old[len(old) - tail - 1 : len(old) - tail + 1] == "\r\n"
    return head, len(old) - tail, new[head : len(new) - tail]


def _common(one: str, other: str) -> int:
    """Characters at the beginning that are the same."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


class KeyList(VerticalScroll, can_focus=False):
    """The documented keys of one table with their sentences; that under the cursor stands out."""

    def compose(self) -> ComposeResult:
        yield Static(markup=False)

    def show(self, table: str, chosen: str) -> None:
        """Shows the keys of a table, and the chosen one in full."""
        text, at = Text(), 0
        accent = theme_colour(self.app, "accent-text")
        for number, key in enumerate(keys(table)):
            here = key.name == chosen
            at = number if here else at
            row = Text(no_wrap=True, overflow="ellipsis", end="\n")
            row.append(f"{key.name:<{_KEY_CELLS}} ", f"bold reverse {accent}" if here else accent)
            row.append(key.brief, "" if here else "dim")
            if key.default:
                row.append(f"  default: {plain(key.default)}", "dim")
            row.truncate(max(20, self.size.width - 2), overflow="ellipsis")
            text.append_text(row).append("\n")
        self.query_one(Static).update(text)
        self.border_title = Content(f"settings of [{table}]" if table else "settings of the file")
        self.scroll_to(y=max(0, at - 2), animate=False)
