"""Pane: the lines of a log in a border with a title, which keys scroll, select, copy and save.

Only what is visible is read from the file, parsed and kept. The stock log widgets take about a
thousand lines a second in all; this one takes what the disk takes, because a line that scrolls
by unseen costs nothing.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

from rich.cells import cell_len
from rich.color import Color as RichColor
from rich.color import ColorType
from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import TerminalTheme
from rich.text import Text
from textual import events, work
from textual.binding import Binding, BindingType
from textual.color import Color
from textual.filter import LineFilter
from textual.geometry import Region, Size
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from launcher.errors import TfmuxError
from launcher.lines import PLAIN, TRUE_COLOUR, Attr, TextStyle
from launcher.masking import mask
from launcher.paths import expand_user, tilde
from launcher.quantities import counted, thousands
from launcher.secret_values import MASK
from tui.clipboard import copy
from tui.log.log_views import LogView
from tui.log.rows import wrap
from tui.log.sanitise import Span, make_drawable, plain_text
from tui.log.viewport import MOST_HIDDEN, Viewport
from tui.memory import Memory

from .colours import (
    TEXT_CONTRAST,
    has_few_colours,
    has_sixteen_colours,
    readable_style,
    theme_colour,
)
from .fit import Part, fit
from .prompt import Prompt
from .titles import NAME, NOTE, Title

WHEEL_ROWS = 3
COPY_LIMIT = 100_000
"""Bytes; terminals drop a longer OSC 52."""
_LINE = Binding.Group("Line down, up")
_PAGE = Binding.Group("Page down, up")
_ENDS = Binding.Group("First line, follow")
_SELECTED = Binding.Group("Select, copy, save")
_HALF = Binding.Group("Half a page down, up")
_NOTE_RANK, _HIDDEN_RANK = 1, 7
_LABEL_ENDS = 6
"""Cells of a border that no title takes: a corner, a line and a blank at either end."""


@dataclass(frozen=True)
class _DrawnPage:
    """What is inside a border, and the lines of which it is; hidden ones between them count."""

    rows: list[Strip]
    lines: range
    silent: bool = False
    """No line is shown, but what the task is doing."""


def _span(places: list[tuple[int, int]]) -> range:
    """The lines from the first to the last of some rows."""
    return range(places[0][0], places[-1][0] + 1) if places else range(0)


class Pane(Widget, can_focus=True):
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
        Binding(
            "G,end",
            "follow",
            "Follow the end",
            id="scroll.follow",
            tooltip="New lines move the pane again",
            group=_ENDS,
        ),
        Binding(
            "v",
            "select",
            "Select lines",
            id="log.select",
            tooltip="The keys that scroll move the end",
            group=_SELECTED,
        ),
        Binding(
            "y",
            "copy",
            "Copy",
            id="log.copy",
            tooltip="The selected lines, or those in sight",
            group=_SELECTED,
        ),
        Binding(
            "ctrl+s",
            "save",
            "Save lines to a file",
            id="log.save",
            tooltip="The selected lines, or the whole log",
            group=_SELECTED,
        ),
    ]
    COMPONENT_CLASSES: ClassVar[set[str]] = {"pane--placeholder", "pane--separator"}
    auto_links = False

    class TitleDoubleClicked(Message):
        """The title was double-clicked, which zooms the pane."""

    def __init__(self, memory: Memory, lent: Container[str] = ()) -> None:
        """`memory` has the directory where lines were saved last; `lent` are actions whose keys
        mean something else at present."""
        super().__init__()
        self._memory = memory
        self._lent = lent
        self.view: LogView | None = None
        self._title = Title()
        self._note = ""
        self._labels: dict[str, Text] = {}
        """The titles of the upper and the lower border, as they were shown last."""
        self.has_old_labels = True
        """The titles are out of date; they are made anew once a frame at most."""
        self._border_row: Region | None = None
        """The row of the border of which the title is being set."""
        self._placeholder = ""
        self._placeholder_height = 0
        """The rows that it takes."""
        self._placeholder_style = Style()
        self._painter: Painter | None = None
        self._cursor_painter: Painter | None = None
        self._rows: dict[int, list[Strip]] = {}
        """The rows of lines in sight."""
        self._page: _DrawnPage | None = None
        """What is inside the border, as it was drawn last; None when that has changed."""
        self._hidden: str | None = None
        """How many remarks are hidden here; None when that has changed."""
        self._drag_from: int | None = None
        self._drawn_size = Size(0, 0)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Selected lines are copied whatever else the key may mean."""
        if action == "copy" and self.view is not None and self.view.selection:
            return True
        return action not in self._lent

    # what is shown

    @property
    def port(self) -> Viewport:
        """The place in the view, made to fit its lines and this pane before each use: a view
        moves between panes, and a filter gives it other lines."""
        if self.view is None:
            return Viewport()
        port = self.view.port
        port.update(self.view.lines.count, self.size.height, self._rows_of)
        return port

    def show(self, view: LogView) -> None:
        if view is not self.view:
            if self.view is not None and view.task != self.view.task:
                self._title = Title((Part(0, f"{view.task or ''}", NAME),))  # until more comes
            self.view = view
            self._drag_from = None
            view.lines.refresh()
        self.redraw()

    def set_title(self, title: Title, note: str = "") -> None:
        """The title, and a note of what a person has asked for here."""
        if title.bad != self._title.bad:
            self.set_class(title.bad, "-bad")
        if (title, note) != (self._title, self._note):
            self._title, self._note = title, note
            self.has_old_labels = True
        if self.has_old_labels:
            self._show_labels()

    def set_placeholder(self, text: str) -> None:
        """The text shown while no line of the log is. It tells the time: only its rows are
        drawn where there is nothing else."""
        if text != self._placeholder:
            self._placeholder = text
            if self.view is None or not self.view.lines.count:
                self._page, height = None, self._placeholder_height
                self._drawn()
                height = max(height, self._placeholder_height)
                self.refresh(Region(0, 0, self.size.width, height))
            elif self._page is None or self._page.silent:
                self.refresh()

    def poll(self) -> bool:
        """Redraws when the log has grown; False when it has not."""
        if not self.view:
            return False
        order = self.view.lines.order
        if not self.view.lines.refresh():
            return False
        self.has_old_labels = True
        if order != self.view.lines.order:
            self._rows.clear()
        is_full = self._page is not None and len(self._page.rows) >= self.size.height
        if self.view.port.following or not is_full:
            self.refresh()
        return True

    def redraw(self) -> None:
        """Forgets what was drawn: options, selection or theme have changed."""
        self._rows.clear()
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
        return _span(self.port.rows())

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

    @work(group="commands")
    async def action_copy(self) -> None:
        """Copies the selected lines, or those in sight, to the clipboard."""
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
        view.selection = None
        self.redraw()
        if not count:
            self.notify("there is no line to copy", timeout=3)
            return
        masked = mask(text)
        hidden = masked.count(MASK) - text.count(MASK)
        where = await copy(self.app, masked)
        if hidden:
            where += f", {counted(hidden, 'secret')} masked"
        cut = f" (the first of {len(numbers)})" if count < len(numbers) else ""
        self.notify(f"{counted(count, 'line')} {where}{cut}. The whole log: {view.path}", timeout=6)

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
        if folder := self._memory.choices.directory:
            name = os.path.join(tilde(Path(folder)), name)
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
            self._memory.keep(directory=str(path.parent))

    # titles

    def _show_labels(self) -> None:
        """Puts the title into the upper border, and the rest into the lower one where there is
        one."""
        self.has_old_labels = False
        title, focused, size = self._title, self.has_focus, self.outer_size
        accent = "bold " + theme_colour(self.app, "accent-text")
        styles = {NAME: accent if focused else "bold", NOTE: accent}
        upper, lower = list(title.upper), list(title.lower)
        if hidden := self._hidden_text():
            lower.append(Part(_HIDDEN_RANK, hidden))
        if self._note:
            lower.append(Part(_NOTE_RANK, self._note, NOTE, shortens=True))
        if not self.port.following:
            missed = f"↓ {thousands(self.port.new)} new" if self.port.new else "paused"
            lower.append(Part(_NOTE_RANK, missed, NOTE))
        if focused and upper:
            upper[0] = upper[0]._replace(text=f"▸{upper[0].text}")
        if not self.styles.border_bottom[0]:
            upper, lower = upper + lower, []
        for name, parts, y in (
            ("border_title", upper, 0),
            ("border_subtitle", lower, size.height - 1),
        ):
            shown = [
                part._replace(
                    text=make_drawable(part.text), style=styles.get(part.style, part.style)
                )
                for part in parts
            ]
            label = fit(shown, size.width - _LABEL_ENDS)
            if not self.styles.border_right[0]:  # Textual puts blanks beside corners only
                before = "" if self.styles.border_left[0] else " "
                label = Text(before).append_text(label).append(" ")
            if label != self._labels.get(name):
                self._labels[name] = label
                self._border_row = Region(0, y, size.width, 1) - self.content_offset
                setattr(self, name, label)
                self._border_row = None

    def _hidden_text(self) -> str:
        """How many remarks are hidden among the lines in sight and right before and after them."""
        if self._hidden is None and self.view is not None and self.view.lines.count:
            view, port, lines = self.view, self.port, self._drawn().lines
            first, end = (lines.start, lines.stop) if lines else (port.top, port.top)
            for _ in range(MOST_HIDDEN):
                if not first or not view.hides(first - 1):
                    break
                first -= 1
            if port.following:
                end = min(port.count, max(end, first) + MOST_HIDDEN)
            self._hidden = view.hidden_text(first, end)
        return self._hidden or ""

    # drawing

    def refresh(self, *regions: Region, **how: bool) -> Self:
        """Draws the pane again, or when a title is set nothing but that row: Textual would draw
        all of it."""
        if self._border_row is not None:
            regions = (self._border_row,)
        elif not regions:
            self._page = self._hidden = None
            self.has_old_labels = True
        return super().refresh(*regions, **how)

    def notify_style_update(self) -> None:
        self._painter = self._page = None
        self._rows.clear()
        self.has_old_labels = True
        self._labels.clear()
        super().notify_style_update()

    def render_lines(self, crop: Region) -> list[Strip]:
        """The rows of the pane; one of another size has other titles and rows."""
        if self.outer_size != self._drawn_size:
            self._drawn_size = self.outer_size
            self._page = self._hidden = None
            self._rows.clear()
            self._labels.clear()
            self._show_labels()
        return super().render_lines(crop)

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Filters of a screen with few colours or none: else everything is drawn as it is to be,
        and text is drawable and readable."""
        return super().get_line_filters() if has_few_colours(self.app) else ()

    def render_line(self, y: int) -> Strip:
        """A row inside the border."""
        rows = self._drawn().rows
        if y < len(rows):
            return rows[y]
        return Strip.blank(self.size.width, self._paint().base)

    def _drawn(self) -> _DrawnPage:
        """What is inside the border: made once for the titles and the drawing of a frame."""
        if self._page is None:
            self._page = self._make_page()
        return self._page

    def _make_page(self) -> _DrawnPage:
        """The rows in sight; strips are built for each line that has newly come into sight, and
        those of lines that have left it are forgotten."""
        if self.view is None:
            return _DrawnPage([], range(0))
        if not self.view.lines.count:
            return _DrawnPage(self._placeholder_rows(), range(0), silent=True)
        drawn = []
        seen: dict[int, list[Strip]] = {}
        places = self.port.rows()
        for number, sub in places:
            strips = seen.get(number) or self._rows.get(number) or self._strips(number)
            seen[number] = strips
            if sub < len(strips):
                drawn.append(strips[sub])
        seen.pop(self.view.lines.count - 1, None)  # the last line may still grow
        self._rows = seen
        silent = all(self.view.hides(number) for number, _ in places)
        if silent:
            drawn = [*drawn, *self._placeholder_rows()][: self.size.height]
        return _DrawnPage(drawn, _span(places), silent)

    def _placeholder_rows(self) -> list[Strip]:
        width, base, style = self.size.width, self._paint().base, self._placeholder_style
        rows = []
        for line in self._placeholder.splitlines():
            for part in wrap([Span(make_drawable(line), PLAIN)], width, 0):
                strip = Strip([Segment("".join(span.text for span in part), style)])
                rows.append(strip.adjust_cell_length(width, base))
        self._placeholder_height = min(len(rows), self.size.height)
        return rows[: self.size.height]

    def _rows_of(self, number: int) -> int:
        if strips := self._rows.get(number):
            return len(strips)
        if not self.view:
            return 1
        hidden = self.view.hides(number)
        if hidden or not self.view.options.wrap:
            return (not hidden) + len(self.view.separators(number))
        strips = self._strips(number)
        if number < self.view.lines.count - 1:
            self._rows[number] = strips
        return len(strips)

    def _strips(self, number: int) -> list[Strip]:
        """The rows of a line, below the separators that stand above it."""
        assert self.view is not None
        width, painter = self.size.width, self._paint()
        separators = self.view.separators(number)
        style = self.get_component_rich_style("pane--separator") if separators else Style()
        result = [
            Strip([Segment(text.center(width, "─")[:width], style)], width) for text in separators
        ]
        if self.view.hides(number):
            return result
        if number == self.view.cursor:
            painter = self._cursor_painter or painter
        base = painter.base
        parts = self._parts(number, width)
        if number in self.view.selected_lines:
            base = painter.style(TextStyle(attr=Attr.REVERSE))
            parts = [[Span(s.text, TextStyle(attr=Attr.REVERSE)) for s in part] for part in parts]
        for part in parts:
            segments = []
            used = 0
            for text, text_style in part:
                segments.append(Segment(text, painter.style(text_style)))
                used += cell_len(text)
            if used < width:
                segments.append(Segment(" " * (width - used), base))
            strip = Strip(segments, max(used, width))
            result.append(strip if used <= width else strip.crop(0, width))
        return result

    def _parts(self, number: int, width: int) -> list[list[Span]]:
        assert self.view is not None
        try:
            row, indent = self.view.render(self.view.lines.line(number))
        except (IndexError, OSError) as error:
            row, indent = [Span(f"cannot be read: {error}", TextStyle(attr=Attr.DIM))], 0
        return wrap(row, width, indent) if self.view.options.wrap else [row]

    def _paint(self) -> Painter:
        if self._painter is None:
            _, _, background, foreground = self.colors
            app = self.app
            palette, colourless, sixteen = app.ansi_theme, app.no_color, has_sixteen_colours(app)
            tint = background.blend(foreground, 0.16)
            self._painter = Painter(foreground, background, palette, colourless, sixteen)
            self._cursor_painter = Painter(foreground, tint, palette, colourless, sixteen)
            self._placeholder_style = self.get_component_rich_style("pane--placeholder")
        return self._painter

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
        inside = event.get_content_offset(self)
        if self.view and inside is not None and event.button == 1:
            self._drag_from = self._line_at(inside.y)
            if self.view.selection:
                self.view.selection = None
                self.redraw()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        line = self._line_at(event.get_content_offset_capture(self).y)
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
            self.copy_selected()

    def _line_at(self, y: int) -> int | None:
        rows = self.port.rows()
        return rows[min(max(0, y), len(rows) - 1)][0] if rows else None

    def watch_has_focus(self, value: bool) -> None:
        super().watch_has_focus(value)
        self._show_labels()


class Painter:
    """Styles for one background, each made once and readable on it. Palette colours are taken from
    the theme; without colours (`NO_COLOR`) there are only greys, as on the rest of the screen."""

    def __init__(
        self,
        foreground: Color,
        background: Color,
        palette: TerminalTheme,
        colourless: bool,
        sixteen: bool,
    ) -> None:
        self._foreground = foreground
        self._background = background
        self._palette = palette
        self._colourless = colourless
        self._sixteen = sixteen
        self._styles: dict[TextStyle, Style] = {}
        self.base = self.style(PLAIN)

    def style(self, text_style: TextStyle) -> Style:
        """The Rich style of a text style on this background."""
        style = self._styles.get(text_style)
        if style is None:
            style = self._styles[text_style] = self._make(text_style)
        return style

    def _make(self, text_style: TextStyle) -> Style:
        fg = self._foreground if text_style.fg < 0 else self._colour(text_style.fg)
        bg = self._background if text_style.bg < 0 else self._colour(text_style.bg)
        attr = text_style.attr
        if attr & Attr.DIM:
            fg = bg.blend(fg, 0.6)
        if self._colourless:
            # A red line would be a dim one, unless it stands on a colour of its own.
            grey = fg.monochrome
            hue = text_style.bg < 0 and grey != fg
            fg, bg = self._foreground if hue else grey, bg.monochrome
        style = Style(
            color=fg.rich_color,
            bgcolor=bg.rich_color,
            bold=bool(attr & Attr.BOLD),
            italic=bool(attr & Attr.ITALIC),
            underline=bool(attr & Attr.UNDERLINE),
            reverse=bool(attr & Attr.REVERSE),
            strike=bool(attr & Attr.STRIKE),
        )
        return readable_style(style, TEXT_CONTRAST, self._sixteen)

    def _colour(self, number: int) -> Color:
        if number >= TRUE_COLOUR:
            return Color(number >> 16 & 255, number >> 8 & 255, number & 255)
        kind = ColorType.STANDARD if number < 16 else ColorType.EIGHT_BIT
        rich = RichColor(str(number), kind, number=number)
        return Color.from_rich_color(RichColor.from_triplet(rich.get_truecolor(self._palette)))


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
