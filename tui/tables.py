"""Tables of styled text: rows that a `widgets.table.Table` shows, or that Rich prints."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.table import Table
from rich.text import Text

GAP = 2
"""Blanks between two printed columns."""
NOTHING = "–"
"""Text of a cell that says nothing."""
Cells = Sequence[Text]


class TableRow(NamedTuple):
    """Row of a table. Cells that cost something to make are given as a function, which is called
    for the rows in sight only."""

    key: str
    cells: Cells | Callable[[], Cells]

    def make(self) -> Cells:
        """Returns the cells."""
        return self.cells() if callable(self.cells) else self.cells


class RowFilter:
    """Words that a row must have, whatever their case, or with a `!` before them must not."""

    def __init__(self, text: str = "") -> None:
        self.text = text.strip()
        words = self.text.casefold().split()
        self._wanted = [word for word in words if not word.startswith("!")]
        self._unwanted = [word[1:] for word in words if word.startswith("!") and len(word) > 1]

    def __bool__(self) -> bool:
        return bool(self.text)

    def of(self, rows: Sequence[TableRow]) -> list[TableRow]:
        """The rows that match, in their order."""
        return [row for row in rows if self._matches(row)] if self else list(rows)

    def _matches(self, row: TableRow) -> bool:
        cells = " ".join(cell.plain for cell in row.make())
        text = f"{row.key} {cells}".casefold()
        wanted = all(word in text for word in self._wanted)
        return wanted and not any(word in text for word in self._unwanted)


def right(text: str, style: str = "") -> Text:
    """Text that ends at the right edge of its column, as figures do."""
    return Text(text, style, justify="right", no_wrap=True)


def cut(text: str, width: int) -> str:
    """A text as `width` cells of a terminal, with an ellipsis if it is longer."""
    if cell_len(text) > width:
        text = set_cell_size(text, width - 1) + "…"
    return set_cell_size(text, width)


def rich_tables(
    titles: Sequence[str], rows: Sequence[TableRow], *, width: int, widest: int
) -> Iterator[Table]:
    """Tables of at most `width` cells: the first column and as many of the others as fit, the
    rest in further tables, each without the rows that say nothing there. `widest` limits each
    column but the first."""
    content = [row.make() for row in rows]
    widths = [
        max(cell_len(title), *(cells[column].cell_len for cells in content))
        for column, title in enumerate(titles)
    ]
    widths[1:] = [min(widest, wide) for wide in widths[1:]]
    columns = list(range(1, len(titles)))
    while columns:
        chosen = [0, columns.pop(0)]
        used = sum(widths[column] for column in chosen) + GAP
        while columns and used + GAP + widths[columns[0]] <= width:
            used += GAP + widths[columns[0]]
            chosen.append(columns.pop(0))
        table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="bold")
        for column in chosen:
            table.add_column(Text(titles[column]), width=widths[column], no_wrap=True)
        for cells in content:
            if any(cells[column].plain != NOTHING for column in chosen[1:]):
                table.add_row(*(cells[column] for column in chosen))
        yield table
