"""Cells in rows: the content of a table, drawn by `CellGrid` on a screen or printed with Rich."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.table import Table
from rich.text import Text

from tui.format import StatusColor

GAP = 2
"""Blanks between two columns."""


@dataclass(frozen=True)
class Cell:
    """Text of a cell, or, dimmed, the default that applies while it is empty."""

    text: str
    default: str = ""
    problem: str = ""
    fixed: bool = False
    """Cannot be edited."""
    color: StatusColor | None = None

    @property
    def display_text(self) -> str:
        """Returns the cell's text, or the default that is shown dimmed where it is empty."""
        return self.text or self.default


@dataclass(frozen=True)
class Row:
    """Cells of a row; `key` identifies it among the others."""

    key: str
    cells: tuple[Cell, ...]
    problem: str = ""
    """A problem of the row that belongs to none of its cells."""


def cut(text: str, width: int) -> str:
    """A text as `width` cells of a terminal, with an ellipsis if it is longer."""
    if cell_len(text) > width:
        text = set_cell_size(text, width - 1) + "…"
    return set_cell_size(text, width)


def rich_tables(
    titles: Sequence[str],
    rows: Sequence[Row],
    colours: Mapping[StatusColor, str],
    *,
    width: int,
    widest: int,
) -> Iterator[Table]:
    """Tables of at most `width` cells: the first column and as many of the others as fit, the
    rest in further tables. `widest` limits each column but the first."""
    widths = [
        max(cell_len(title), *(cell_len(row.cells[column].display_text) for row in rows))
        for column, title in enumerate(titles)
    ]
    widths[1:] = [min(widest, wide) for wide in widths[1:]]
    columns = list(range(1, len(titles)))
    while columns:
        chosen = [columns.pop(0)]
        used = widths[0] + GAP + widths[chosen[0]]
        while columns and used + GAP + widths[columns[0]] <= width:
            used += GAP + widths[columns[0]]
            chosen.append(columns.pop(0))
        yield _table(titles, rows, [0, *chosen], widths, colours)


def _table(
    titles: Sequence[str],
    rows: Sequence[Row],
    columns: Sequence[int],
    widths: Sequence[int],
    colours: Mapping[StatusColor, str],
) -> Table:
    """One table, without the rows that say nothing in these columns."""
    table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="bold")
    for column in columns:
        title = cut(titles[column], widths[column])
        table.add_column(Text(title), width=widths[column], no_wrap=True)
    for row in rows:
        cells = [row.cells[column] for column in columns]
        if any(cell.text for cell in cells[1:]):
            texts = (cut(row.cells[column].display_text, widths[column]) for column in columns)
            styles = (colours[cell.color] if cell.color else "" for cell in cells)
            table.add_row(*(Text(text, style) for text, style in zip(texts, styles, strict=True)))
    return table
