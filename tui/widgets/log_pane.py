"""One task's pane: a title row, and below it the lines of its log.

Only what is visible is read from the file, parsed and kept. The stock log widgets take about a
thousand lines a second in all; this one takes what the disk takes, because a line that scrolls
by unseen costs nothing.
"""

from __future__ import annotations

from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from launcher.snapshot import TaskView
from tui.log.view import LogView, wrapped
from tui.log.viewport import Viewport
from tui.words import age, figure, mood, thousands

from .paint import Painter

WHEEL_ROWS = 3


class LogPane(Widget, can_focus=True):
    """Shows a `LogView`. It draws when `poll` finds news, never because a byte arrived."""

    ALLOW_SELECT = False
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "log-pane--title",
        "log-pane--name",
        "log-pane--note",
        "log-pane--edge",
        "log-pane--waiting",
        "log-pane--busy",
        "log-pane--good",
        "log-pane--off",
        "log-pane--bad",
    }

    class Chosen(Message):
        """The pane was clicked on its title twice: it wants to be zoomed."""

        def __init__(self, pane: LogPane) -> None:
            self.pane = pane
            super().__init__()

    def __init__(self) -> None:
        super().__init__()
        self.view: LogView | None = None
        self.port = Viewport()
        self.edge = False
        """Draws a line on the left: another pane stands there."""
        self._about: TaskView | None = None
        self._silence = ""
        self._painter: Painter | None = None
        self._rows: dict[int, list[Strip]] = {}

    # what is shown

    def show(self, view: LogView | None, task: TaskView | None) -> None:
        """Takes up a view; None leaves the pane empty."""
        self._about = task
        if view is not self.view:
            self.view = view
            self.port = view.port if view else Viewport()
            self.port.rows_of = self._rows_of
            if view:
                view.lines.refresh()
        self.redraw()

    def set_task(self, task: TaskView, now: float) -> None:
        """The task's state, for the title."""
        silence = age(now - task.last_output) if task.last_output and task.state.live else ""
        if task is not self._about or silence != self._silence:
            self._about, self._silence = task, silence
            self.refresh(Region(0, 0, self.size.width, 1))

    def poll(self) -> None:
        """Redraws when the log has grown."""
        if self.view and self.view.lines.refresh():
            if self.port.following:
                self.refresh()
            else:
                self.port.update(self.view.lines.count, self.port.height)
                self.refresh(Region(0, 0, self.size.width, 1))

    def redraw(self) -> None:
        """Forgets what was drawn: options, theme or size have changed."""
        self._rows.clear()
        self.refresh()

    # moving

    def scroll_rows(self, rows: int) -> None:
        """Moves the view by rows."""
        self._update_port()
        self.port.scroll(rows)
        self.refresh()

    def scroll_pages(self, pages: float) -> None:
        """Moves the view by pages or halves of one."""
        self._update_port()
        self.port.page(pages)
        self.refresh()

    def go_home(self) -> None:
        """To the first line of the run."""
        self._update_port()
        self.port.home()
        self.refresh()

    def go_end(self) -> None:
        """To the end, and follows."""
        self.port.follow()
        self.refresh()

    # drawing

    def notify_style_update(self) -> None:
        self._painter = None
        self._rows.clear()
        super().notify_style_update()

    def on_resize(self) -> None:
        self._rows.clear()

    def render_lines(self, crop: Region) -> list[Strip]:
        """All rows; one strip is built for each line that has newly come into sight."""
        width = self.size.width
        rows = [self._title(width)]
        painter = self._paint()
        left, room = self._margins()
        blank = Strip([*left, Segment(" " * room, painter.base)], width)
        if self.view:
            self._update_port()
            before, self._rows = self._rows, {}
            lines = self.view.lines
            for number, sub in self.port.rows():
                strips = self._rows.get(number) or before.get(number)
                if strips is None:
                    strips = self._strips(number)
                if number < lines.count - 1:  # the last line may still grow
                    self._rows[number] = strips
                rows.append(strips[sub] if sub < len(strips) else blank)
        rows.extend([blank] * (self.size.height - len(rows)))
        rows = rows[crop.y : crop.bottom]
        if crop.x or crop.width != width:
            rows = [row.crop(crop.x, crop.right) for row in rows]
        return rows

    def _update_port(self) -> None:
        if self.view:
            self.port.update(self.view.lines.count, self.size.height - 1)

    def _margins(self) -> tuple[list[Segment], int]:
        if not self.edge:
            return [], self.size.width
        return [Segment("│", self._style("edge"))], self.size.width - 1

    def _rows_of(self, number: int) -> int:
        if not self.view or not self.view.options.wrap:
            return 1
        strips = self._rows.get(number)
        if strips is None:
            strips = self._strips(number)
            if number < self.view.lines.count - 1:
                self._rows[number] = strips
        return len(strips)

    def _strips(self, number: int) -> list[Strip]:
        assert self.view is not None
        left, room = self._margins()
        painter = self._paint()
        try:
            row = self.view.row_pieces(self.view.lines.line(number))
        except (IndexError, OSError):
            row = []
        result = []
        for part in wrapped(row, room) if self.view.options.wrap else [row]:
            segments = [Segment(piece.text, painter.style(piece.look)) for piece in part]
            strip = Strip(segments).adjust_cell_length(room, painter.base)
            result.append(Strip([*left, *strip], room + len(left)))
        return result

    def _paint(self) -> Painter:
        if self._painter is None:
            _, _, background, foreground = self.colors
            app = self.app
            self._painter = Painter(foreground, background, app.ansi_theme, app.no_color)
        return self._painter

    def _style(self, name: str) -> Style:
        style = self.get_component_rich_style(f"log-pane--{name}")
        for line_filter in self.get_line_filters():
            segments = line_filter.apply([Segment("", style)], self.background_colors[1])
            style = segments[0].style or style
        return style

    def _title(self, width: int) -> Strip:
        """`worker:1 @tf3  running  step 4 113  loss 0.21  ⏱ 2 s`; what matters least goes
        first when the pane is narrow."""
        task = self._about
        plain, name, note = self._style("title"), self._style("name"), self._style("note")
        if task is None or self.view is None:
            return Strip([Segment(" " * width, plain)], width)
        mark = "▸" if self.has_focus else " "
        right = f" ↓ {thousands(self.port.new)} new " if not self.port.following else ""
        parts = [
            (0, f"{mark}{task.id}", name),
            (3, f" @{task.host}", plain),
            (1, f"  {task.how}", self._style(mood(task))),
        ]
        if task.attempt > 1:
            parts.append((2, f"  try {task.attempt}", plain))
        if task.step is not None:
            parts.append((2, f"  step {thousands(task.step)}", plain))
        if task.loss is not None:
            parts.append((4, f"  loss {figure(task.loss)}", plain))
        if self._silence:
            parts.append((5, f"  ⏱ {self._silence}", plain))
        room = width - cell_len(right) - self.edge
        while sum(cell_len(text) for _, text, _ in parts) > room and len(parts) > 1:
            parts.remove(max(parts, key=lambda part: part[0]))
        left = [Segment("│", self._style("edge"))] if self.edge else []
        segments = [Segment(text, style) for _, text, style in parts]
        strip = Strip(segments).adjust_cell_length(max(1, room), plain)
        return Strip([*left, *strip, *([Segment(right, note)] if right else [])])

    # mouse

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.scroll_rows(-WHEEL_ROWS)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.scroll_rows(WHEEL_ROWS)

    def on_click(self, event: events.Click) -> None:
        if event.y == 0 and event.chain == 2:
            self.post_message(self.Chosen(self))

    def watch_has_focus(self, value: bool) -> None:
        super().watch_has_focus(value)
        self.refresh()
