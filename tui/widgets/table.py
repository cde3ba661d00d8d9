"""Table of the screens: Textual's `DataTable`, whose rows are given anew as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, ClassVar, TypeVar

from rich.text import Text
from textual import on
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.coordinate import Coordinate
from textual.message import Message
from textual.widgets import DataTable

from tui.tables import Cells, TableRow

from .colours import has_few_colours

Item = TypeVar("Item")
_ALL_BELOW = 200
"""Rows of a table of which also those out of sight are made."""


class Table(DataTable[Text]):
    """Shows rows; the cursor and what is in sight stay on their rows, and only cells that have
    changed are drawn anew. A click on a title orders the rows by that column."""

    DEFAULT_CSS = """
    Table { background: $background; height: 1fr; scrollbar-size: 0 1; }
    Table:focus { background-tint: $foreground 0%; }
    Table > .datatable--header, Table:focus > .datatable--header {
        background: $background; background-tint: $foreground 0%;
        color: $text-muted; text-style: bold;
    }
    Table > .datatable--fixed { background: $background; }
    Table > .datatable--cursor { background: $background; color: $foreground; text-style: none; }
    Table > .datatable--fixed-cursor { background: $background; color: $foreground; }
    Table:focus > .datatable--cursor, Table:focus > .datatable--fixed-cursor {
        background: $primary-muted; color: $text; text-style: bold;
    }
    Table > .datatable--header-cursor, Table:focus > .datatable--header-cursor {
        background: $background; color: $text-muted;
    }
    Table.-few-colours:focus > .datatable--cursor,
    Table.-few-colours:focus > .datatable--fixed-cursor {
        background: $foreground; color: $background;
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "cursor_up", "Up", show=False),
        Binding("down,j", "cursor_down", "Down", show=False),
        Binding("g,ctrl+home", "scroll_top", "First row", show=False),
        Binding("G,ctrl+end", "scroll_bottom", "Last row", show=False),
    ]

    class Ordered(Message):
        """A click on a title has asked for another order."""

    class PastEnd(Message):
        """The cursor was moved up from the first row, or down from the last one."""

        def __init__(self, table: Table, by: int) -> None:
            self.table = table
            self.by = by
            super().__init__()

    def __init__(
        self,
        id: str,  # noqa: A002 Textual's name
        title: str = "",
        *,
        cells: bool = False,
        fills: int | None = None,
        fits: bool = False,
    ) -> None:
        """`title` stands in the frame. `cells`: the cursor goes from cell to cell, and the first
        column is always in sight. The column `fills` takes the width that the others leave, and
        what is longer ends in an ellipsis there. A table that `fits` is as high as its rows."""
        super().__init__(
            id=id,
            classes="framed" if title else None,
            cursor_type="cell" if cells else "row",
            fixed_columns=int(cells),
            cursor_foreground_priority="renderable",
            show_row_labels=False,
        )
        self.border_title = Content(title)
        self._fills = fills
        self._fits = fits
        self._titles: list[Text] = []
        self._widths: list[int] = []
        self._rows: Sequence[TableRow] = ()
        self._order: tuple[int, bool] | None = None
        """Column by which a person wants the rows ordered, and whether the largest comes first."""

    def on_mount(self) -> None:
        if has_few_colours(self.app):
            self.add_class("-few-colours")
            self.cursor_foreground_priority = "css"

    def validate_cursor_coordinate(self, value: Coordinate) -> Coordinate:
        """Textual's cursor goes to the row above the first one at the end of an empty table."""
        row, column = super().validate_cursor_coordinate(value)
        return Coordinate(max(0, row), max(0, column))

    @property
    def key(self) -> str | None:
        """Key of the row under the cursor."""
        return self._rows[self.cursor_row].key if self.cursor_row < len(self._rows) else None

    @property
    def filled(self) -> Text:
        """The text under the cursor that may have no room in its row, as a whole."""
        if self._fills is None or self.cursor_row >= self.row_count:
            return Text()
        text = self.get_row_at(self.cursor_row)[self._fills]
        return Text(text.plain, text.style)

    def ordered(
        self, items: Iterable[Item], columns: Sequence[Callable[[Item], Any]]
    ) -> list[Item]:
        """The items in the order that a person has asked for; `columns` gives what each column
        orders by: those of which it has no value (None, nan) come last either way. Without
        such a wish they stay as they are."""
        if self._order is None or self._order[0] >= len(columns):
            return list(items)
        column, largest_first = self._order
        valued = [(columns[column](item), item) for item in items]
        known = [pair for pair in valued if _is_known(pair[0])]
        known.sort(key=itemgetter(0), reverse=largest_first)
        unknown = [item for value, item in valued if not _is_known(value)]
        return [*(item for _, item in known), *unknown]

    @on(DataTable.HeaderSelected)
    def _order_by(self, event: DataTable.HeaderSelected) -> None:
        """First the smallest on top, then the largest, then as it was."""
        event.stop()
        column = event.column_index
        if self.cursor_type == "cell":  # its columns are no figures, but places
            self.move_cursor(column=column)
            return
        if self._order == (column, True):
            self._order = None
        else:
            self._order = (column, self._order == (column, False))
        self.post_message(self.Ordered())

    def show(self, titles: Sequence[str | Text], rows: Sequence[TableRow]) -> None:
        """Shows these rows."""
        marks = {False: " ▴", True: " ▾"}
        labels = [title.copy() if isinstance(title, Text) else Text(title) for title in titles]
        if self._order is not None and self._order[0] < len(labels):
            labels[self._order[0]].append(marks[self._order[1]])
        if labels != self._titles:
            self._titles = labels
            self._rows, self._widths = (), []
            self.clear(columns=True)
            for number, label in enumerate(labels):
                self.add_column(label, key=str(number), width=label.cell_len)
        key, before = self.key, [row.key for row in self._rows]
        self._rows = rows
        self._draw(key, anew=before != [row.key for row in rows])
        if self._fits:  # Textual's `auto` is that of the rows before, while a table is hidden
            self.styles.height = len(rows) + 1 + self.gutter.height

    def _draw(self, key: str | None, *, anew: bool = False) -> None:
        """Puts what has changed into the rows; of a large table, into those in sight. Rows are
        replaced when they are other ones, which is `anew`, or when another width is left for the
        column that takes it; then the cursor goes to the row `key`."""
        made = {row.key: row.make() for row in self._in_sight()}
        widths = self._measured(made.values())
        # Set here, as Textual measures only when it is idle, and may draw a frame before.
        other_widths, self._widths = widths != self._widths, widths
        for column, width in zip(self.ordered_columns, widths, strict=True):
            column.width = width
        if self._fills is not None:
            for cells in made.values():
                cells[self._fills].no_wrap, cells[self._fills].overflow = True, "ellipsis"
        if anew or (other_widths and self._fills is not None):
            self._replace(made, key)
            return
        for row, cells in made.items():
            for number, (old, new) in enumerate(zip(self.get_row(row), cells, strict=True)):
                if old != new or old.style != new.style:
                    self.update_cell(row, str(number), new, update_width=other_widths)

    def _draw_again(self) -> None:
        if self._rows:
            self._draw(self.key)

    def _in_sight(self) -> Sequence[TableRow]:
        """The rows that are made: of a large table, those in sight."""
        if len(self._rows) <= _ALL_BELOW:
            return self._rows
        first = max(0, self.scroll_offset.y - 1)
        return self._rows[first : first + self.size.height + 2]

    def _measured(self, made: Iterable[Cells]) -> list[int]:
        """Width of each column. Those of a large table only grow, while one scrolls in it."""
        columns = zip(self._titles, *made, strict=True)
        widths = [max(text.cell_len for text in column) for column in columns]
        if len(self._rows) > _ALL_BELOW and self._widths:
            widths = list(map(max, widths, self._widths))
        if self._fills is not None:
            widths[self._fills] = 0
            # Before its first layout a table has no width: that of the screen is nearer than none.
            room = self.scrollable_content_region.width or self.app.size.width - self.gutter.width
            left = room - sum(widths)
            widths[self._fills] = max(8, left - 2 * self.cell_padding * len(widths))
        return widths

    def _replace(self, made: Mapping[str, Cells], key: str | None) -> None:
        at, scrolled, rows = self.cursor_row, self.scroll_offset.y, self._rows
        self._rows = ()
        self.clear()
        self._rows = rows
        empty = [Text()] * len(self._titles)
        for row in rows:
            self.add_row(*made.get(row.key, empty), key=row.key)
        keys = [row.key for row in rows]
        at = keys.index(key) if key in keys else min(at, max(0, len(rows) - 1))
        self.move_cursor(row=at, scroll=False)
        self.call_after_refresh(self._settle, scrolled)

    def _settle(self, scrolled: int) -> None:
        """Scrolls to where the table was, which it can only when its new rows are laid out."""
        self.scroll_to(y=scrolled, animate=False, force=True, immediate=True)
        self._scroll_to_cursor()
        self._draw_again()

    def _scroll_to_cursor(self) -> None:
        self.move_cursor(row=self.cursor_row, column=self.cursor_column)

    def go_to(self, key: str, column: int | None = None) -> None:
        """Moves the cursor to a row, and in it to a column, and scrolls there."""
        keys = [row.key for row in self._rows]
        if key in keys:
            self.move_cursor(row=keys.index(key), column=column)

    def on_resize(self) -> None:
        """Keeps the cursor in sight."""
        self.call_after_refresh(self._resized)

    def _resized(self) -> None:
        self._draw_again()
        self._scroll_to_cursor()

    def watch_scroll_y(self, old: float, new: float) -> None:
        super().watch_scroll_y(old, new)
        self._draw_again()

    def action_scroll_home(self) -> None:
        """The first row, or in a table of cells the first column."""
        if self.cursor_type == "row":
            self.action_scroll_top()
        else:
            super().action_scroll_home()

    def action_scroll_end(self) -> None:
        """The last row, or in a table of cells the last column."""
        if self.cursor_type == "row":
            self.action_scroll_bottom()
        else:
            super().action_scroll_end()

    def action_cursor_up(self) -> None:
        if self.cursor_row == 0:
            self.post_message(self.PastEnd(self, -1))
        super().action_cursor_up()

    def action_cursor_down(self) -> None:
        if self.cursor_row >= self.row_count - 1:
            self.post_message(self.PastEnd(self, 1))
        super().action_cursor_down()


def _is_known(value: object) -> bool:
    """False for None and nan, which have no place in an order."""
    return value is not None and value == value
