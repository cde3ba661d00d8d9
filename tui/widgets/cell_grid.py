"""Grid of cells with titles and a cursor; problems are shown below their row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from tui.cells import GAP, Cell, Row, cut
from tui.format import StatusColor

WIDEST = 44


class CellGrid(ScrollView, can_focus=True):
    """A grid whose title row and first column stay when the rest scrolls."""

    DEFAULT_CSS = """
    CellGrid { height: 1fr; background: $background; scrollbar-size: 0 1; }
    CellGrid .cells--title { background: $surface; color: $text-muted; text-style: bold; }
    CellGrid .cells--row { background: $boost; }
    CellGrid .cells--cursor { background: $primary; color: $text; text-style: bold; }
    CellGrid .cells--default { color: $text-disabled; }
    CellGrid .cells--problem { color: $status-bad; }
    CellGrid .cells--busy { color: $status-busy; }
    CellGrid .cells--good { color: $status-good; }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "cells--title",
        "cells--cursor",
        "cells--row",
        "cells--default",
        "cells--problem",
        "cells--busy",
        "cells--good",
    }
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1, 0)", "Up", show=False),
        Binding("down,j", "move(1, 0)", "Down", show=False),
        Binding("left,h", "move(0, -1)", "Left", show=False),
        Binding("right", "move(0, 1)", "Right", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown", "page(1)", "Page down", show=False),
        Binding("home", "edge(-1)", "First column", show=False),
        Binding("end", "edge(1)", "Last column", show=False),
        Binding("ctrl+home,g", "ends(-1)", "First row", show=False),
        Binding("ctrl+end,G", "ends(1)", "Last row", show=False),
        Binding("enter,f2", "edit", "Edit", show=False),
    ]

    class Moved(Message):
        """The cursor is on another cell."""

    class Chosen(Message):
        """Enter, or a click on the cell under the cursor."""

    def __init__(self, nothing: str = "", first: int = 0, widest: int = WIDEST) -> None:
        """`nothing` is shown while there are no rows; `first` is the first column that the
        cursor goes to; `widest` limits the width of all columns but the last."""
        super().__init__()
        self._widest = widest
        self._first = first
        self.titles: tuple[str, ...] = ()
        self.rows: tuple[Row, ...] = ()
        self._row = 0
        self._column = first
        self.nothing = nothing
        self._widths: list[int] = []
        self._lines: list[tuple[int, str]] = []
        """Row and problem of each line below the titles; an empty problem is the row itself."""

    def show(self, titles: Sequence[str], rows: Sequence[Row]) -> None:
        """Shows rows; the cursor stays on its row's key, otherwise where it was."""
        key = self.rows[self.row].key if self.rows else None
        self.titles, self.rows = tuple(titles), tuple(rows)
        keys = [row.key for row in self.rows]
        if key in keys:
            self.row = keys.index(key)
        self._measure()
        self.refresh()

    def _measure(self) -> None:
        self._widths = []
        for number, title in enumerate(self.titles):
            texts = [
                min(self._widest, cell_len(row.cells[number].display_text))
                for row in self.rows[:200]
            ]
            self._widths.append(max([cell_len(title), 4, *texts]))
        if self._widths and self.size.width:  # the last column may have what is left
            free = self.size.width - sum(self._widths) - GAP * len(self._widths)
            last = [cell_len(row.cells[-1].display_text) for row in self.rows[:200]]
            self._widths[-1] += max(0, min(free, max([0, *last]) - self._widths[-1]))
        self._lines = []
        for number, row in enumerate(self.rows):
            self._lines.append((number, ""))
            for title, cell in zip(self.titles, row.cells, strict=True):
                if cell.problem:
                    self._lines.append((number, f"{title}: {cell.problem}"))
            if row.problem:
                self._lines.append((number, row.problem))
        width = sum(self._widths) + GAP * len(self._widths)
        self.virtual_size = Size(width, len(self._lines) + 1)

    def on_resize(self) -> None:
        """Keeps the cursor in sight."""
        self._measure()
        if self.rows:
            self._scroll_to_cursor()

    @property
    def row(self) -> int:
        """The cursor's row, always one that is shown; 0 if there is none."""
        return min(self._row, max(0, len(self.rows) - 1))

    @row.setter
    def row(self, row: int) -> None:
        self._row = max(0, row)

    @property
    def column(self) -> int:
        """The cursor's column, always one that is shown."""
        return max(self._first, min(self._column, len(self.titles) - 1))

    @column.setter
    def column(self, column: int) -> None:
        self._column = column

    @property
    def cell(self) -> Cell | None:
        """The cell under the cursor."""
        return self.rows[self.row].cells[self.column] if self.rows else None

    def go_to(self, row: int, column: int) -> None:
        """Moves the cursor to a cell and scrolls it into view."""
        self.row = min(row, len(self.rows) - 1)
        self.column = min(column, len(self.titles) - 1)
        self._scroll_to_cursor()
        self.refresh()
        self.post_message(self.Moved())

    def _scroll_to_cursor(self) -> None:
        region = self.region_of(self.row, self.column)
        fixed = self._widths[0] + GAP if self._widths else 0
        left = region.x - (fixed if self.column else region.x)
        # The title row covers one line of what is scrolled under it.
        self.scroll_to_region(
            Region(left, region.y - 1, region.width + fixed, 2),
            animate=False,
            force=True,
            immediate=True,
        )

    def region_of(self, row: int, column: int) -> Region:
        """Region of a cell, not scrolled."""
        x = sum(self._widths[:column]) + GAP * column
        y = 1 + next((i for i, line in enumerate(self._lines) if line == (row, "")), 0)
        return Region(x, y, self._widths[column] if self._widths else 0, 1)

    def cell_offset(self, row: int, column: int) -> tuple[int, int]:
        """Offset of a cell within the widget, as scrolled."""
        region = self.region_of(row, column)
        x = region.x - (self.scroll_offset.x if column else 0)
        return x, region.y - self.scroll_offset.y

    def action_move(self, rows: int, columns: int) -> None:
        self.go_to(self.row + rows, self.column + columns)

    def action_page(self, pages: int) -> None:
        """Moves the cursor by a page."""
        self.go_to(self.row + pages * max(1, self.size.height - 2), self.column)

    def action_edge(self, side: int) -> None:
        """Moves to the first or last column."""
        self.go_to(self.row, 0 if side < 0 else len(self.titles) - 1)

    def action_ends(self, side: int) -> None:
        """Moves to the first or last row."""
        self.go_to(0 if side < 0 else len(self.rows) - 1, self.column)

    def action_edit(self) -> None:
        """Asks for the cell to be edited."""
        if self.rows:
            self.post_message(self.Chosen())

    def on_click(self, event: events.Click) -> None:
        """Moves to a cell; edits it if the cursor is there already."""
        y = event.y + self.scroll_offset.y - 1
        if event.y < 1 or not 0 <= y < len(self._lines):
            return
        x = event.x
        fixed = self._widths[0] + GAP
        if x >= fixed:
            x += self.scroll_offset.x
        column, start = 0, 0
        while column < len(self._widths) - 1 and x >= start + self._widths[column] + GAP:
            start += self._widths[column] + GAP
            column += 1
        row = self._lines[y][0]
        if (row, column) == (self.row, self.column) and self.has_focus:
            self.action_edit()
        else:
            self.go_to(row, column)

    def render_line(self, y: int) -> Strip:
        """One line: the titles, or what is scrolled to there."""
        width = self.size.width
        base = self.rich_style
        if y == 0:
            style = self.get_component_rich_style("cells--title")
            return self._strip([(title, style) for title in self.titles], style, width)
        number = y - 1 + self.scroll_offset.y
        if not self.rows:
            text = f" {self.nothing}" if y == 1 else ""
            style = self.get_component_rich_style("cells--default")
            return Strip([Segment(set_cell_size(text, width), style)])
        if number >= len(self._lines):
            return Strip.blank(width, base)
        row, problem = self._lines[number]
        if problem:
            style = self.get_component_rich_style("cells--problem")
            return Strip([Segment(set_cell_size(f"  ! {problem}", width), style)])
        here = row == self.row
        line = self.get_component_rich_style("cells--row") if here else base
        cells = [
            (cell.display_text, self._style(cell, line, here and column == self.column))
            for column, cell in enumerate(self.rows[row].cells)
        ]
        return self._strip(cells, line, width)

    def _style(self, cell: Cell, line: Style, cursor: bool) -> Style:
        if cursor and self.has_focus:
            return self.get_component_rich_style("cells--cursor")
        if cell.color in (StatusColor.BUSY, StatusColor.GOOD):
            return line + Style(color=self.get_component_rich_style(f"cells--{cell.color}").color)
        if cell.problem or cell.color:
            return line + Style(
                color=self.get_component_rich_style("cells--problem").color, bold=True
            )
        if not cell.text:
            return line + Style(color=self.get_component_rich_style("cells--default").color)
        return line

    def _strip(self, cells: Sequence[tuple[str, Style]], gap: Style, width: int) -> Strip:
        segments = []
        for (text, style), wide in zip(cells, self._widths, strict=True):
            segments.append(Segment(cut(text, wide), style))
            segments.append(Segment(" " * GAP, gap))
        fixed = Strip(segments[:2])
        rest = Strip(segments[2:]).crop(self.scroll_offset.x)
        strip = Strip.join([fixed, rest])
        return strip.extend_cell_length(width, gap).crop(0, width)
