"""Aligned columns of a list, as Rich text: titles, and rows with a note that may wrap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rich import get_console
from rich.cells import cell_len
from rich.text import Text

from tui.cells import GAP, cut

_NOTE_FROM = 24
"""Fewest cells for a note beside the columns; with less it has lines of its own."""
_INDENT = 4


class CellText(NamedTuple):
    """Text of a row in one column, with a Rich style."""

    text: str = ""
    style: str = ""


class TableLine(NamedTuple):
    """A row: one field a column, and a note behind them, which may be of any length."""

    fields: Sequence[CellText]
    note: CellText = CellText()


@dataclass(frozen=True)
class Column:
    """A column; those with a larger `rank` are left out first when there is no room."""

    title: str = ""
    rank: int = 0
    right: bool = False
    """Its fields end at the same cell, as figures do."""
    least: int = 0
    """Cells that it has at least."""


def wrapped(text: Text, width: int) -> Text:
    """A text in lines of at most `width` cells, broken between words."""
    return Text("\n", end="").join(text.wrap(get_console(), max(1, width)))


def indented(text: Text, cells: int) -> Text:
    """A text whose lines all begin with so many blanks."""
    lines = text.split("\n")
    return Text("\n", no_wrap=True, end="").join(Text(" " * cells) + line for line in lines)


class Columns:
    """Rows of at most `width` cells, whose columns are as wide as their widest field."""

    def __init__(self, columns: Sequence[Column], lines: Sequence[TableLine], width: int) -> None:
        self._width = width
        self._columns = columns
        self._widths = [
            max(
                [column.least, cell_len(column.title)]
                + [cell_len(line.fields[at].text) for line in lines]
            )
            for at, column in enumerate(columns)
        ]
        self._shown = [at for at in range(len(columns)) if self._widths[at]]
        while self._used > width and any(columns[at].rank for at in self._shown):
            self._shown.remove(max(self._shown, key=lambda at: (columns[at].rank, at)))
        excess = self._used - width
        if excess > 0:  # the widest one gives way
            widest = max(self._shown, key=lambda at: self._widths[at])
            self._widths[widest] = max(1, self._widths[widest] - excess)

    @property
    def _used(self) -> int:
        return sum(self._widths[at] + GAP for at in self._shown) - GAP

    def titles(self, text: Text, indent: int) -> Text:
        """Appends to `text` the titles of the columns in their places; rows begin at `indent`."""
        start = indent
        for at in self._shown:
            title = self._aligned(at, self._columns[at].title)
            if title.strip() and text.cell_len < start + cell_len(title) - len(title.lstrip()):
                text.append(" " * (start - text.cell_len))
                text.append(title[max(0, text.cell_len - start) :], "dim")
            start += self._widths[at] + GAP
        text.rstrip()
        return text

    def row(self, line: TableLine) -> Text:
        """A row; its note goes on behind the last field that is not empty, or below where there is
        no room."""
        text = Text(no_wrap=True, end="")
        note, style = line.note
        filled = [at for at in self._shown if line.fields[at].text]
        for at in self._shown[: self._shown.index(filled[-1]) + 1] if filled else ():
            text.append(" " * GAP if text else "")
            text.append(self._aligned(at, line.fields[at].text), line.fields[at].style)
        if not note:
            return text
        left = self._width - text.cell_len - GAP
        beside = left >= min(cell_len(note), _NOTE_FROM)
        indent = self._width - left if beside else _INDENT
        lines = wrapped(Text(note, style), self._width - indent)
        if not beside:
            return text.append("\n").append_text(indented(lines, indent))
        first, *rest = lines.split("\n")
        text.append(" " * GAP).append_text(first)
        for part in rest:
            text.append("\n").append_text(indented(part, indent))
        return text

    def _aligned(self, at: int, text: str) -> str:
        text = cut(text, min(self._widths[at], cell_len(text)))
        blanks = " " * (self._widths[at] - cell_len(text))
        return blanks + text if self._columns[at].right else text + blanks
