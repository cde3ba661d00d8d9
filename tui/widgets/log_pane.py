"""Log pane: a border with a title, and in it the lines of a log.

Only what is visible is read from the file, parsed and kept. The stock log widgets take about a
thousand lines a second in all; this one takes what the disk takes, because a line that scrolls
by unseen costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Self

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from launcher.quantities import thousands
from tui.log.folds import Fold
from tui.log.rows import wrap
from tui.log.sanitise import PLAIN, Attr, Span, TextStyle, make_drawable
from tui.log.view import LogView
from tui.log.viewport import Item, Viewport

from .paint import Painter
from .pane_frame import FramePen, PaneBorders, Title

WHEEL_ROWS = 3


class LogPane(Widget, can_focus=True):
    """Shows a `LogView`. It draws when `poll` finds news, never because a byte arrived."""

    ALLOW_SELECT = False
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "log-pane--title",
        "log-pane--name",
        "log-pane--spark",
        "log-pane--note",
        "log-pane--edge",
        "log-pane--placeholder",
        "log-pane--separator",
        "log-pane--waiting",
        "log-pane--busy",
        "log-pane--good",
        "log-pane--off",
        "log-pane--bad",
    }

    class TitleDoubleClicked(Message):
        """The title was double-clicked, which zooms the pane."""

    class LinesSelected(Message):
        """Lines were selected with the mouse."""

    def __init__(self) -> None:
        super().__init__()
        self.view: LogView | None = None
        self.frame = PaneBorders()
        self._title = Title()
        self._note = ""
        self._placeholder = ""
        self._painter: Painter | None = None
        self._cursor_painter: Painter | None = None
        self._styled: dict[tuple[str, bool], Style] = {}
        self._frame_pen: FramePen | None = None
        self._rows: dict[int, list[Strip]] = {}
        """The rows of lines in sight that are not folded."""
        self._shown: list[Strip] | None = None
        """What is below the title, as it was drawn last; None when that has changed."""
        self._drawn = 0
        """Rows of the log that were drawn last."""
        self._drag_from: int | None = None

    # what is shown

    @property
    def port(self) -> Viewport:
        """The place in the view, made to fit its lines and this pane before each use: a view
        moves between panes, and a filter gives it other lines."""
        if self.view is None:
            return Viewport()
        port = self.view.port
        port.update(self.view.lines.count, self._log_height, self._item_at)
        return port

    def show(self, view: LogView) -> None:
        if view is not self.view:
            self.view = view
            self._drag_from = None
            view.lines.refresh()
        self.redraw()

    def set_title(self, title: Title, note: str = "") -> None:
        """The title, and a note at its right end."""
        before = self._title
        if (title, note) == (before, self._note):
            return
        self._title, self._note = title, note
        if title.bad != before.bad:
            self._forget_styles()
            self.refresh()
            return
        self._refresh_title()
        if self.frame.whole and title[1:] != before[1:]:
            self.refresh(Region(0, self.size.height - 1, self.size.width, 1))

    def set_placeholder(self, text: str) -> None:
        """The text shown while the log is empty."""
        if text != self._placeholder:
            self._placeholder = text
            if self.view is None or not self.view.lines.count:
                self.refresh()

    def poll(self) -> bool:
        """Redraws when the log has grown; False when it has not."""
        if not self.view:
            return False
        order = self.view.lines.order
        if not self.view.lines.refresh():
            return False
        if order != self.view.lines.order:
            self._rows.clear()
        if self.view.port.following or self._drawn < self._log_height:
            self.refresh()
        else:
            self._refresh_title()
        return True

    def redraw(self) -> None:
        """Forgets what was drawn: options, selection, theme, size or border have changed."""
        self._forget_styles()
        self.refresh()

    # moving

    def move(self, change: Callable[[Viewport], None]) -> None:
        """Moves the view over its lines."""
        change(self.port)
        self.refresh()

    def go_to(self, line: int) -> None:
        """Brings a line into sight."""
        self.move(lambda port: port.show(line))

    def in_sight(self) -> list[int]:
        """The numbers of the lines in sight, those of folds among them."""
        items = dict.fromkeys(self._item_at(line) for line, _ in self.port.rows())
        return [line for item in items for line in range(item.first, item.end)]

    # drawing

    def refresh(self, *regions: Region, **how: bool) -> Self:
        """Draws the pane again; Textual asks for all of it whenever another pane has changed, too,
        and then gets what was drawn before."""
        if not regions:
            self._shown = None
        return super().refresh(*regions, **how)

    def notify_style_update(self) -> None:
        self._painter = None
        self._styled.clear()
        self._forget_styles()
        super().notify_style_update()

    def on_resize(self) -> None:
        self._rows.clear()

    def render_lines(self, crop: Region) -> list[Strip]:
        """The rows asked for; one strip is built for each line that has newly come into sight,
        and those that have left it are forgotten."""
        width = self.size.width
        rows = [self._pen().title(self._title, self._note_text(), width)]
        if crop.bottom > 1:
            if self._shown is None:
                self._shown = self._rows_below_title()
            rows += self._shown
        if self.frame.whole and crop.bottom >= self.size.height:
            rows.append(self._pen().bottom(self._title, width))
        rows = rows[crop.y : crop.bottom]
        if crop.x or crop.width != width:
            rows = [row.crop(crop.x, crop.right) for row in rows]
        return rows

    def _rows_below_title(self) -> list[Strip]:
        left, room = self._margins()
        (blank,) = self._with_right_border(
            [Strip([*left, Segment(" " * room, self._paint().base)])]
        )
        rows = self._log_rows(blank)
        return rows + [blank] * (self._log_height - len(rows))

    def _log_rows(self, blank: Strip) -> list[Strip]:
        if self.view is None:
            return []
        if not self.view.lines.count:
            return self._placeholder_rows()
        rows = []
        seen: dict[int, list[Strip]] = {}
        last = self.view.lines.count - 1
        for number, sub in self.port.rows():
            strips = seen.get(number) or self._rows.get(number)
            if strips is None:
                if fold := self.view.fold_at(number):
                    rows.append(self._fold_strips(fold)[sub])  # built anew: it may still grow
                    continue
                strips = self._strips(number)
            seen[number] = strips
            rows.append(strips[sub] if sub < len(strips) else blank)
        seen.pop(last, None)  # the last line may still grow
        self._rows, self._drawn = seen, len(rows)
        return rows

    def _placeholder_rows(self) -> list[Strip]:
        left, room = self._margins()
        style, base = self._style("placeholder"), self._paint().base
        rows = []
        for line in self._placeholder.splitlines():
            for part in wrap([Span(make_drawable(line), PLAIN)], room, 0):
                strip = Strip([*left, Segment("".join(span.text for span in part), style)])
                rows.append(strip.adjust_cell_length(len(left) + room, base))
        return self._with_right_border(rows[: self._log_height])

    def _refresh_title(self) -> None:
        self.refresh(Region(0, 0, self.size.width, 1))

    @property
    def _log_height(self) -> int:
        return self.size.height - self.frame.rows

    def _margins(self) -> tuple[list[Segment], int]:
        """The border at the left, and the cells between it and that at the right."""
        return self._pen().left, self.size.width - self.frame.columns

    def _with_right_border(self, rows: list[Strip]) -> list[Strip]:
        """The rows with the border at their right."""
        right = self._pen().right
        return [Strip([*row, *right]) for row in rows] if right else rows

    def _pen(self) -> FramePen:
        if self._frame_pen is None:
            self._frame_pen = FramePen(self.frame, self.has_focus, self._title.bad, self._style)
        return self._frame_pen

    def _forget_styles(self) -> None:
        """The border looks otherwise, and the rows that were drawn have parts of it."""
        self._frame_pen = None
        self._rows.clear()

    def _item_at(self, number: int) -> Item:
        """The fold that covers a line, or the line alone."""
        if strips := self._rows.get(number):
            return Item(number, number + 1, len(strips))
        if self.view and (fold := self.view.fold_at(number)):
            return Item(fold.first, fold.end, 1 + len(self.view.separators(fold.first)))
        return Item(number, number + 1, self._rows_of(number))

    def _rows_of(self, number: int) -> int:
        if not self.view:
            return 1
        if not self.view.options.wrap:
            return 1 + len(self.view.separators(number))
        strips = self._rows.get(number)
        if strips is None:
            strips = self._strips(number)
            if number < self.view.lines.count - 1:
                self._rows[number] = strips
        return len(strips)

    def _strips(self, number: int) -> list[Strip]:
        assert self.view is not None
        try:
            row, indent = self.view.render(self.view.lines.line(number))
        except (IndexError, OSError) as error:
            row, indent = [Span(f"cannot be read: {error}", TextStyle(attr=Attr.DIM))], 0
        left, room = self._margins()
        parts = wrap(row, room, indent) if self.view.options.wrap else [row]
        return self._paint_rows(number, parts, left, room)

    def _fold_strips(self, fold: Fold) -> list[Strip]:
        """Folded lines are one row, with the separators above it."""
        assert self.view is not None
        return self._paint_rows(fold.first, [self.view.render_fold(fold)], *self._margins())

    def _paint_rows(
        self, number: int, parts: list[list[Span]], left: list[Segment], room: int
    ) -> list[Strip]:
        """The rows of line `number`, below the separators that stand above it."""
        assert self.view is not None
        painter = self._paint()
        if number == self.view.cursor:
            painter = self._cursor_painter or painter
        base = painter.base
        if number in self.view.selected_lines:
            base = painter.style(TextStyle(attr=Attr.REVERSE))
            parts = [[Span(s.text, TextStyle(attr=Attr.REVERSE)) for s in part] for part in parts]
        result = [self._separator(text, left, room) for text in self.view.separators(number)]
        for part in parts:
            segments = [*left]
            used = 0
            for text, style in part:
                segments.append(Segment(text, painter.style(style)))
                used += cell_len(text)
            if used < room:
                segments.append(Segment(" " * (room - used), base))
            strip = Strip(segments, len(left) + max(used, room))
            result.append(strip if used <= room else strip.crop(0, len(left) + room))
        return self._with_right_border(result)

    def _separator(self, text: str, left: list[Segment], room: int) -> Strip:
        """A row that is on the screen only: an attempt begins below it."""
        segments = [*left, Segment(text.center(room, "─")[:room], self._style("separator"))]
        return Strip(segments, len(left) + room)

    def _paint(self) -> Painter:
        if self._painter is None:
            _, _, background, foreground = self.colors
            app = self.app
            palette, colourless = app.ansi_theme, app.no_color
            tint = background.blend(foreground, 0.16)
            self._painter = Painter(foreground, background, palette, colourless)
            self._cursor_painter = Painter(foreground, tint, palette, colourless)
        return self._painter

    def _style(self, name: str) -> Style:
        """The style of one of the component classes; reckoning it costs more than a line."""
        key = (name, self.has_focus)
        if key not in self._styled:
            self._styled[key] = self._make_style(name)
        return self._styled[key]

    def _make_style(self, name: str) -> Style:
        style = self.get_component_rich_style(f"log-pane--{name}")
        for line_filter in self.get_line_filters():
            segments = line_filter.apply([Segment(" ", style)], self.background_colors[1])
            style = segments[0].style or style
        return style

    def _note_text(self) -> str:
        """The note, and what a paused view has missed."""
        note = self._note
        if not self.port.following:
            note += f"  ↓ {thousands(self.port.new)} new" if self.port.new else "  paused"
        return note.strip()

    # mouse

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.move(lambda port: port.scroll(-WHEEL_ROWS))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.move(lambda port: port.scroll(WHEEL_ROWS))

    def on_click(self, event: events.Click) -> None:
        if event.y == 0 and event.chain == 2:
            self.post_message(self.TitleDoubleClicked())

    def on_mouse_down(self, event: events.MouseDown) -> None:
        border = self.frame.holds(event.x, event.y, *self.size)
        if self.view and not border and event.button == 1:
            self._drag_from = self._line_at(event.y)
            if self.view.selection:
                self.view.selection = None
                self.redraw()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        line = self._line_at(event.y)
        if self._drag_from is None or line is None or self.view is None:
            return
        if self.view.selection is None:
            if line == self._drag_from:
                return
            self.capture_mouse()
            self.port.pause()  # what is selected must not scroll away under the mouse
        self.view.selection = (self._drag_from, line)
        self.redraw()

    def on_mouse_up(self) -> None:
        if self._drag_from is not None:
            self._drag_from = None
            self.release_mouse()
            if self.view and self.view.selection:
                self.post_message(self.LinesSelected())

    def _line_at(self, y: int) -> int | None:
        rows = self.port.rows()
        return rows[min(max(0, y - 1), len(rows) - 1)][0] if rows else None

    def watch_has_focus(self, value: bool) -> None:
        super().watch_has_focus(value)
        self.redraw()
