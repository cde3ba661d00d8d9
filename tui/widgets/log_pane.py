"""Log pane: a border with a title, and in it the lines of a log, which keys scroll, select, copy
and save.

Only what is visible is read from the file, parsed and kept. The stock log widgets take about a
thousand lines a second in all; this one takes what the disk takes, because a line that scrolls
by unseen costs nothing.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar, Self

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events, work
from textual.binding import Binding, BindingType
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from launcher.errors import TfmuxError
from launcher.paths import expand_user
from launcher.quantities import counted, thousands
from tui.keys import key_of
from tui.log.rows import wrap
from tui.log.sanitise import PLAIN, Attr, Span, TextStyle, make_drawable, plain_text
from tui.log.viewport import MOST_HIDDEN, Viewport
from tui.log.views import LogView

from .fit import Part
from .paint import Painter
from .pane_frame import FramePen, PaneBorders, Title
from .prompt import Prompt

WHEEL_ROWS = 3
_LINE = Binding.Group("Line down, up")
_PAGE = Binding.Group("Page down, up")
_ENDS = Binding.Group("First line, follow")
_SELECTED = Binding.Group("Select, copy, save")
_HALF = Binding.Group("Half a page down, up")
COPY_LIMIT = 100_000
"""Bytes; terminals drop a longer OSC 52."""


class LogPane(Widget, can_focus=True):
    """Shows a `LogView`. It draws when `poll` finds news, never because a byte arrived.

    While lines are selected, the keys that scroll move the end of the selection.
    """

    ALLOW_SELECT = False
    BINDING_GROUP_TITLE = "Log"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "rows(1)", "Line down", id="scroll.down", group=_LINE),
        Binding("k", "rows(-1)", "Line up", id="scroll.up", group=_LINE),
        Binding("pagedown", "pages(1)", "Page down", id="scroll.page_down", group=_PAGE),
        Binding("pageup", "pages(-1)", "Page up", id="scroll.page_up", group=_PAGE),
        Binding("ctrl+d", "pages(0.5)", "Half a page down", id="scroll.half_down", group=_HALF),
        Binding("ctrl+u", "pages(-0.5)", "Half a page up", id="scroll.half_up", group=_HALF),
        Binding("g,home", "first_line", "First line of the run", id="scroll.home", group=_ENDS),
        Binding("G,end", "follow", "Follow the end", id="scroll.follow", group=_ENDS),
        Binding("v", "select", "Select lines", id="log.select", group=_SELECTED),
        Binding("y", "copy", "Copy", id="log.copy", group=_SELECTED),
        Binding("ctrl+s", "save", "Save lines to a file", id="log.save", group=_SELECTED),
    ]
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
        """The rows of lines in sight."""
        self._shown: list[Strip] | None = None
        """What is below the title, as it was drawn last; None when that has changed."""
        self._hidden: str | None = None
        """How many remarks are hidden here; None when that has changed."""
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
        port.update(self.view.lines.count, self._log_height, self._rows_of)
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

    def mark(self, line: int) -> None:
        """Marks a line as the last hit, and brings it into sight."""
        if self.view is not None:
            self.view.cursor = line
            self.go_to(line)
            self.redraw()

    def leave_hit(self) -> bool:
        """Marks no line as the last hit any more; False when none was."""
        if self.view is None or self.view.cursor is None:
            return False
        self.view.cursor = None
        self.redraw()
        return True

    def action_rows(self, rows: int) -> None:
        self._move_or_select(lambda port: rows, lambda port: port.scroll(rows))

    def action_pages(self, pages: float) -> None:
        """Scrolls by pages or halves of one."""
        self._move_or_select(lambda port: int(port.height * pages), lambda port: port.page(pages))

    def action_first_line(self) -> None:
        """To the first line of the run."""
        self._move_or_select(lambda port: -port.count, Viewport.home)

    def action_follow(self) -> None:
        """To the end, and follows it."""
        self._move_or_select(lambda port: port.count, Viewport.follow)

    def _move_or_select(
        self, by: Callable[[Viewport], int], scroll: Callable[[Viewport], None]
    ) -> None:
        """Moves the end of the selection, or scrolls where nothing is selected."""
        if self.view is None or not self.view.selection:
            self.move(scroll)
            return
        first, last = self.view.selection
        port = self.port
        last = port.shown_from(last, by(port))
        self.view.selection = (first, last)
        port.reveal(last)
        self.redraw()

    def in_sight(self) -> range:
        """The lines in sight, and those that are hidden between them."""
        rows = self.port.rows()
        return range(rows[0][0], rows[-1][0] + 1) if rows else range(0)

    @property
    def hidden_text(self) -> str:
        """How many remarks are hidden among the lines in sight and right before and after them."""
        if self._hidden is None:
            self._hidden = self._find_hidden()
        return self._hidden

    def _find_hidden(self) -> str:
        if self.view is None:
            return ""
        view, port = self.view, self.port
        lines = self.in_sight()
        first, end = (lines.start, lines.stop) if lines else (port.top, port.top)
        for _ in range(MOST_HIDDEN):
            if not first or not view.hides(first - 1):
                break
            first -= 1
        end = min(port.count, max(end, first) + MOST_HIDDEN) if port.following else end
        return view.hidden_text(first, end)

    # selecting, copying and saving

    def action_select(self) -> None:
        """Begins selecting at the last hit in sight or the last line, or ends it."""
        if self.view is None:
            return
        visible = self.in_sight()
        if self.view.selection or not visible:
            self.view.selection = None
        else:
            self.port.pause()
            cursor = self.view.cursor
            at = cursor if cursor is not None and cursor in visible else visible[-1]
            self.view.selection = (at, at)
        self.redraw()

    def leave_selection(self) -> bool:
        """Selects no line any more; False when none was."""
        if self.view is None or not self.view.selection:
            return False
        self.view.selection = None
        self.redraw()
        return True

    def action_copy(self) -> None:
        """Copies the selected lines, or those in sight, to the terminal's clipboard."""
        view = self.view
        if view is None:
            return
        numbers: Sequence[int] = view.selected_lines or self.in_sight()
        text, count = "", 0
        for number in numbers:
            line = _text(view, number) + "\n"
            if len(text) + len(line) > COPY_LIMIT:
                break
            text += line
            count += 1
        self.app.copy_to_clipboard(text)
        cut = f" (the first of {len(numbers)})" if count < len(numbers) else ""
        copied = counted(count, "line")
        self.notify(f"{copied} copied{cut}. The whole log: {view.path}", timeout=6)
        view.selection = None
        self.redraw()

    def copy_selected(self) -> bool:
        """Copies the selected lines; False when there are none."""
        if self.view is None or not self.view.selection:
            return False
        self.action_copy()
        return True

    @work(group="commands")
    async def action_save(self) -> None:
        """Asks for a file and saves the selected lines, or all that the pane shows."""
        if self.view is None:
            return
        name = f"{self.view.name}-{time.strftime('%H%M%S')}.txt"
        answer = await self.screen.query_one(Prompt).ask("save to", name)
        view = self.view
        if not answer or view is None:
            return
        numbers = view.selected_lines or range(view.lines.count)
        try:
            path = await asyncio.to_thread(_write, answer, view, numbers)
        except (TfmuxError, OSError, IndexError, ValueError) as error:
            self.notify(f"not saved: {error}", severity="error")
        else:
            self.notify(f"{counted(len(numbers), 'line')} saved to {path}")

    # drawing

    def refresh(self, *regions: Region, **how: bool) -> Self:
        """Draws the pane again; Textual asks for all of it whenever another pane has changed, too,
        and then gets what was drawn before."""
        if not regions:
            self._shown = self._hidden = None
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
        title = self._title
        if not self.frame.whole and self.hidden_text:
            title = title._replace(parts=(*title.parts, Part(8, f"  {self.hidden_text}", "note")))
        rows = [self._pen().title(title, self._note_text(), width)]
        if crop.bottom > 1:
            if self._shown is None:
                self._shown = self._rows_below_title()
            rows += self._shown
        if self.frame.whole and crop.bottom >= self.size.height:
            rows.append(self._pen().bottom(self._title, self.hidden_text, width))
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

    def _rows_of(self, number: int) -> int:
        if strips := self._rows.get(number):
            return len(strips)
        if not self.view:
            return 1
        if not self.view.options.wrap or self.view.hides(number):
            shown = not self.view.hides(number)
            return shown + len(self.view.separators(number))
        strips = self._strips(number)
        if number < self.view.lines.count - 1:
            self._rows[number] = strips
        return len(strips)

    def _strips(self, number: int) -> list[Strip]:
        assert self.view is not None
        left, room = self._margins()
        if self.view.hides(number):
            return self._paint_rows(number, [], left, room)
        try:
            row, indent = self.view.render(self.view.lines.line(number))
        except (IndexError, OSError) as error:
            row, indent = [Span(f"cannot be read: {error}", TextStyle(attr=Attr.DIM))], 0
        parts = wrap(row, room, indent) if self.view.options.wrap else [row]
        return self._paint_rows(number, parts, left, room)

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
                commands = {"log.copy": "copies", "log.save": "saves", "back": "leaves"}
                keys = (f"{key_of(self, name)} {text}" for name, text in commands.items())
                self.notify(", ".join(keys), timeout=3)

    def _line_at(self, y: int) -> int | None:
        rows = self.port.rows()
        return rows[min(max(0, y - 1), len(rows) - 1)][0] if rows else None

    def watch_has_focus(self, value: bool) -> None:
        super().watch_has_focus(value)
        self.redraw()


def _text(view: LogView, number: int) -> str:
    line = view.lines.line(number)
    before = f"{line.task} | " if line.task else ""
    return before + plain_text(line.data)


def _write(name: str, view: LogView, numbers: Sequence[int]) -> Path:
    """Writes lines to a new file."""
    path = Path(os.path.realpath(expand_user(name)))
    with path.open("x", encoding="utf-8") as file:
        file.writelines(_text(view, number) + "\n" for number in numbers)
    return path
